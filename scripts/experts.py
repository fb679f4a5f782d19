"""What rows cost a mixture of experts: on a running text, and on tokens drawn at random.

  experts.py --work FOLDER                      writes a random mixture there, and times it
  experts.py --model MOE.gguf

A pass reads every expert that some row chose. Rows of a text choose more alike than random tokens, so random tokens
make rows look dearer than they are. For each number of rows the table has the share of the experts that a pass read,
and its time over that of one row. Counts do not depend on the machine's load, times do.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from statistics import mean

import numpy as np
from make_random_gguf import Shape, write_random_gguf

from localspec.backends import llama_cpp
from localspec.backends.importance import Importance, WatchedModel
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.options import LoadOptions
from localspec.backends.tokenizer import STRIDE, sample_tokens

ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
# Not Q4_0: the mean of its random blocks is not zero, so all rows have a part in common and choose the same experts.
SHAPE = Shape(vocab=8192, width=1024, layers=6, heads=16, kv_heads=4, ff=768, quant="Q8_0", experts=32, used=4)


def drawn(model: Model, start: int, n: int) -> np.ndarray:
    """Return `n` tokens that have nothing to do with each other."""
    return (np.arange(start, start + n) * STRIDE % model.n_vocab).astype(np.int32)


TOKENS = {"text": sample_tokens, "drawn": drawn}


def unions(path: Path, options: LoadOptions) -> dict[str, dict[int, float]]:
    """Return by kind of tokens and rows the mean share of a layer's experts that a pass reads, after 64 of the kind."""
    importance, found = Importance(), {}
    with WatchedModel(path, options, importance) as model, LlamaBackend(model, options) as backend:
        n_experts = int(model.metadata(f"{model.architecture}.expert_count") or 0)
        for kind, tokens in TOKENS.items():
            found[kind] = dict[int, float]()
            for rows in ROWS:
                shares = []
                for first in range(0, 32, 8):
                    backend.truncate(0)
                    backend.prefill(tokens(model, first, 64).tolist(), lambda: False)
                    importance.forget()
                    with importance.counting():
                        backend.extend(tokens(model, first + 64, rows).tolist(), range(-1, rows - 1))
                    read = [n for name, n in importance.chosen().items() if "ffn_gate_exps" in name]
                    shares.append(mean(read[:-1]) / n_experts)
                found[kind][rows] = mean(shares)
    return found


def times(path: Path, options: LoadOptions, rounds: int) -> dict[str, dict[int, float]]:
    """Return by kind of tokens and rows the seconds of the fastest pass."""
    found: dict[str, dict[int, float]] = {kind: dict.fromkeys(ROWS, math.inf) for kind in TOKENS}
    with Model(path, options) as model, LlamaBackend(model, options) as backend:
        for _ in range(rounds):
            for rows in ROWS:
                for kind, tokens in TOKENS.items():
                    llama_cpp.sample_tokens = tokens  # what the backend times itself with
                    found[kind][rows] = min(found[kind][rows], backend.time_rows(rows))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--work", type=Path, default=Path())
    parser.add_argument("--rounds", type=int, default=20, help="0 leaves out the times")
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    path = asked.model or asked.work / "experts.gguf"
    if not path.is_file():
        write_random_gguf(path, SHAPE)
    options = LoadOptions(n_ctx=512, threads=asked.threads)
    read = unions(path, options)
    took = times(path, options, asked.rounds) if asked.rounds else None
    print("| rows | experts read, text | drawn | time, text | drawn |\n|---|---|---|---|---|")
    for rows in ROWS:
        cells = [f"{100 * read[kind][rows]:.0f} %" for kind in TOKENS]
        cells += ["-" if took is None else f"{took[kind][rows] / took[kind][1]:.2f}" for kind in TOKENS]
        print(f"| {rows} | {' | '.join(cells)} |")
    if took is not None:
        print(f"one row: {1e3 * took['text'][1]:.1f} ms")


if __name__ == "__main__":
    main()
