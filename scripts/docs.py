"""Write the generated pages from the program itself; with --check, say whether what is there is up to date.

docs/cli.md holds the help texts, docs/methods.md the methods with their measurements, docs/json.md the fields of --json
and --events, and docs/glossary.md the terms. localspec/ui/pages/bias.json holds the bias of lossy rules as tests/exact
pins it. `scripts/check` runs this with --check.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import json_page
import methods_page

from localspec.cli.app import cli
from localspec.errors import UsageError, exit_codes
from localspec.settings.request import Speculation
from localspec.speculation import registered
from localspec.speculation.resolve import resolve_axes
from localspec.ui.glossary import TERMS

ROOT = Path(__file__).parent.parent
WIDTH = 96
SHAPES = ("chain", "static:3,2,1")
MADE = "Made by `scripts/docs.py` from the program; do not edit."


def page() -> str:
    """Return the whole page."""
    parts = ["# The command line\n", f"{MADE}\n"]
    with click.Context(cli, info_name="localspec", max_content_width=WIDTH, terminal_width=WIDTH) as group:
        parts.append(fenced(cli.get_help(group)))
        for name in cli.list_commands(group):
            command = cli.get_command(group, name)
            assert command is not None
            parts += _helps(command, group, name, "##")
    parts.append(f"## Exit codes\n\n{codes()}")
    parts += ["## Which rule judges which draft\n", "[Methods](methods.md) explains the rules.\n", combinations()]
    return "\n".join(parts)


def _helps(command: click.Command, parent: click.Context, name: str, heading: str) -> Iterator[str]:
    """Yield the help of a command, and of those below it."""
    with click.Context(command, parent, name, max_content_width=WIDTH, terminal_width=WIDTH) as context:
        yield f"{heading} {context.command_path}\n\n{fenced(command.get_help(context))}"
        for each, inner in getattr(command, "commands", {}).items():
            yield from _helps(inner, context, each, "###")


def fenced(text: str) -> str:
    """Return `text` as a block, without trailing blanks."""
    return "```text\n" + "\n".join(line.rstrip() for line in text.splitlines()) + "\n```\n"


def codes() -> str:
    """Return the table of exit codes, with the kind of each in `--json` and `--events`."""
    lines = ["| code | `kind` in `--json` | |", "|---|---|---|"]
    for code, (kind, text) in exit_codes().items():
        lines.append(f"| {code} | {f'`{kind}`' if kind else ''} | {text} |")
    return "\n".join(lines) + "\n"


def combinations() -> str:
    """Return the table of verifiers against shapes, each cell how the draft is drawn, asked of the axes themselves."""
    rows = ["| --verify | " + " | ".join(f"`--tree {shape}`" for shape in SHAPES) + " |", "|---|---|---|"]
    for name in registered("verify"):
        cells = []
        for shape in SHAPES:
            try:
                wanted = Speculation(method="draft-model", tree=shape, verify=name, approximate=True)
                axes = resolve_axes(wanted, has_draft=True, is_seeded=False)
                cells.append(f"drawn {axes.draw.value}")
            except UsageError:
                cells.append("refused")
        rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def glossary() -> str:
    """Return the terms in alphabetical order, each with its line, its sentences and links to related terms."""
    parts = [f"# Glossary\n\n{MADE} `localspec explain TERM` prints an entry in the terminal.\n"]
    for _, term in sorted(TERMS.items()):
        see = ", ".join(f"[{TERMS[one].name}](#{anchor(TERMS[one].name)})" for one in term.see)
        parts.append(f"## {term.name}\n\n*{term.short}*\n\n{term.text}" + (f" See also: {see}." if see else "") + "\n")
    return "\n".join(parts)


def anchor(heading: str) -> str:
    """Return a heading's address as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def bias() -> str:
    """Return the stored bias of every lossy rule, which tests/exact/test_approximate.py measures and pins."""
    sys.path.insert(0, str(ROOT))
    from tests.exact.test_approximate import CASES

    found: dict[str, list[object]] = {}
    for case in CASES:
        values = dict(zip(("0.3", "1", "2"), case.bias, strict=True))
        found.setdefault(case.verifier.name, []).append({"case": case.name, "total_variation": values})
    return json.dumps(found, indent=1) + "\n"


def main() -> None:
    """Write the pages, or compare them. The bias goes first: methods.md shows it."""
    for path, make in (
        ("localspec/ui/pages/bias.json", bias),
        ("docs/cli.md", page),
        ("docs/glossary.md", glossary),
        ("docs/json.md", json_page.page),
        ("docs/methods.md", methods_page.page),
    ):
        text, file = make(), ROOT / path
        if "--check" not in sys.argv[1:]:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is out of date: run ./scripts/docs")


if __name__ == "__main__":
    main()
