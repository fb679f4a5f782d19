"""Write docs/cli.md from the program itself; with --check, say whether what is there is up to date.

Help texts and tables of methods are never typed twice: `scripts/check` runs this with --check.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from localspec.axes import resolve_axes
from localspec.cli.app import cli
from localspec.config import Speculation
from localspec.errors import UsageError
from localspec.methods import describe
from localspec.verify import VERIFIERS

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
WIDTH = 96
SHAPES = ("chain", "static:3,2,1")


def page() -> str:
    """Return the whole page."""
    parts = ["# The command line\n", "Made by `scripts/docs.py` from the program; do not edit.\n"]
    with click.Context(cli, info_name="localspec", max_content_width=WIDTH, terminal_width=WIDTH) as group:
        parts.append(fenced(cli.get_help(group)))
        for name in cli.list_commands(group):
            command = cli.get_command(group, name)
            assert command is not None
            with click.Context(command, group, name, max_content_width=WIDTH, terminal_width=WIDTH) as context:
                parts.append(f"## localspec {name}\n\n{fenced(command.get_help(context))}")
    parts += ["## Methods\n", methods(), "## Which rule judges which draft\n", combinations()]
    return "\n".join(parts)


def fenced(text: str) -> str:
    """Return `text` as a block, without trailing blanks."""
    return "```text\n" + "\n".join(line.rstrip() for line in text.splitlines()) + "\n```\n"


def methods() -> str:
    """Return the table of methods."""
    rows = ["| method | what it does | needs | paper | text's law unchanged | default -k |", "|---|---|---|---|---|---|"]
    for info in describe():
        paper = f"[{info.paper}](https://arxiv.org/abs/{info.paper})" if info.paper else ""
        exact = "yes" if info.is_lossless else "no"
        rows.append(f"| `{info.name}` | {info.summary} | {info.needs} | {paper} | {exact} | {info.default_k} |")
    return "\n".join(rows) + "\n"


def combinations() -> str:
    """Return the table of verifiers against shapes, each cell how the draft is drawn, asked of the axes themselves."""
    rows = ["| --verify | " + " | ".join(f"`--tree {shape}`" for shape in SHAPES) + " |", "|---|---|---|"]
    for name in VERIFIERS:
        cells = []
        for shape in SHAPES:
            try:
                wanted = Speculation(method="draft-model", tree=shape, verify=name)
                axes = resolve_axes(wanted, has_draft=True, is_seeded=False)
                cells.append(f"drawn {axes.draw.value}")
            except UsageError:
                cells.append("refused")
        rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Write the page, or compare it."""
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit("docs/cli.md is out of date: run ./scripts/docs")
        return
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
