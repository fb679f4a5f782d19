"""Write random models that keep a state, with the bundled tokenizer: a target, and a draft of its first layers.

    make_stateful_pair.py granitehybrid ~/stateful --late 0.07

Both files hold the same embedding, output and first layers. `--late` scales what all later layers of the target add,
so it sets how often the draft is right: with 0 always, with 1 hardly ever. `--late` counts from `--whole` layers on.
With `--whole 0` a qwen35 target has its last token as its main input, which its block for further tokens knows too.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from stateful_models import ARCHS, LARGE, write_stateful


def main() -> None:
    """Read the command line and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arch", choices=ARCHS)
    parser.add_argument("folder", type=Path, help="where target.gguf and draft.gguf are written")
    parser.add_argument("--layers", type=int, default=16, help="of the target: about 10 MB each")
    parser.add_argument("--draft-layers", type=int, default=0, help="the least that the architecture has by default")
    parser.add_argument("--whole", type=int, help="layers that --late leaves alone; by default those of the draft")
    parser.add_argument("--late", type=float, default=1.0, help="the share that the other layers add")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    n_draft = options.draft_layers or ARCHS[options.arch][1]
    whole = n_draft if options.whole is None else options.whole
    target = replace(LARGE, layers=options.layers, whole=whole, late=options.late)
    write_stateful(options.folder / "target.gguf", options.arch, target, "Q8_0", options.seed)
    draft = replace(target, layers=n_draft, has_block=False)
    write_stateful(options.folder / "draft.gguf", options.arch, draft, "Q8_0", options.seed)


if __name__ == "__main__":
    main()
