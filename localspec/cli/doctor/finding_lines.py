"""A finding as lines of text: state, name, message, and below them the command to try."""

from __future__ import annotations

from typing import IO

from localspec.cli.console import Console, wrapped
from localspec.cli.doctor.checks import Finding
from localspec.sanitize import one_line

INDENT = 18  # columns of mark and name
MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "bad": ("BAD", "red"), "broken": ("BROKEN", "red")}


def line(one: Finding, console: Console, stream: IO[str]) -> str:
    """Return a finding as one line, which a terminal gets wrapped at words, and a second one with its hint."""
    mark, style = MARKS[one.state]
    hint = f"{'':<{INDENT}}try: {one_line(one.hint)}\n" if one.hint else ""
    message = wrapped(one_line(one.message), stream, INDENT)
    return f"{console.paint(f'{mark:<7}', style, stream)} {one.name:<9} {message}\n{hint}"
