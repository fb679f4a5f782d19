"""How a finding looks: its state, its name, what is so, and below it what to try."""

from __future__ import annotations

from typing import IO

from localspec.cli.console import Console
from localspec.cli.doctor.checks import Finding
from localspec.sanitize import one_line

MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "bad": ("BAD", "red"), "broken": ("BROKEN", "red")}


def line(one: Finding, console: Console, stream: IO[str]) -> str:
    """Return a finding as one line, and a second one with its hint."""
    mark, style = MARKS[one.state]
    hint = f"{'':<17} try: {one_line(one.hint)}\n" if one.hint else ""
    return f"{console.paint(f'{mark:<7}', style, stream)} {one.name:<9} {one_line(one.message)}\n{hint}"
