#!/usr/bin/env python
"""Train, distil, export and measure the bundled pair. Development only; see models/storyteller/README.md.

    train_storyteller.py all --corpus DIR --work DIR                        # everything, from nothing
    train_storyteller.py target --corpus DIR --work DIR --init CHECKPOINT   # one stage

Each stage leaves its result under --work and is resumable: run the same command again after a kill.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from storyteller import stages
from storyteller.optim import Log

STAGES = {
    "base": stages.base,
    "warm": stages.warm,
    "target": stages.target,
    "generate": stages.generate,
    "draft": stages.draft,
    "export": stages.export_pair,
    "heads": stages.heads,
    "masks": stages.masks,
    "evaluate": stages.evaluate,
}


def parse() -> argparse.Namespace:
    """Read the command line."""
    lines = [f"  {name:9} {stage.__doc__.splitlines()[0]}" for name, stage in STAGES.items()]
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="\n".join(["stages:", *lines, "  all       All of them in this order."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("stage", choices=(*STAGES, "all"))
    parser.add_argument("--corpus", type=Path, required=True, help="folder of stories-{train,valid}.txt.xz")
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints and results")
    parser.add_argument("--init", type=Path, help="trained target to start from, in place of the base stage")
    parser.add_argument("--out", type=Path, default=Path("models/storyteller"), help="folder for the GGUF files")
    parser.add_argument("--base-steps", type=int, default=stages.BUDGET.base)
    parser.add_argument("--warm-steps", type=int, default=stages.BUDGET.warm)
    parser.add_argument("--target-steps", type=int, default=stages.BUDGET.target)
    parser.add_argument("--draft-steps", type=int, default=stages.BUDGET.draft)
    parser.add_argument("--shards", type=int, default=stages.BUDGET.shards, help="shards of the target's own text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: all)")
    parser.add_argument("--precision", choices=("bf16", "f32"), default="bf16", help="of matrix products in training")
    return parser.parse_args()


def main() -> None:
    """Run one stage, or all."""
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    budget = stages.Budget(
        options.base_steps, options.warm_steps, options.target_steps, options.draft_steps, options.shards
    )
    place = stages.Place(
        corpus=options.corpus,
        work=options.work,
        init=options.init,
        out=options.out,
        device="cuda" if torch.cuda.is_available() else "cpu",
        bf16=options.precision == "bf16",
        seed=options.seed,
        budget=budget,
        log=Log(options.work / "train.log"),
    )
    chosen = list(STAGES) if options.stage == "all" else [options.stage]
    if options.stage == "all" and options.init is not None:
        chosen.remove("base")
    for name in chosen:
        STAGES[name](place)


if __name__ == "__main__":
    main()
