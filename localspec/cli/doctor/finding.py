"""What a check found, as a JSON object, and as lines of text with the command to try."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from localspec.cli.console import Console, wrapped
from localspec.sanitize import one_line

INDENT = 18  # columns of mark and name
MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "broken": ("BROKEN", "red")}


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    state: str
    message: str
    hint: str = ""
    code: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        wire = asdict(self)
        del wire["code"]
        return wire

    def line(self, console: Console, stream: IO[str]) -> str:
        mark, style = MARKS[self.state]
        hint = f"{'':<{INDENT}}{wrapped(f'try: {one_line(self.hint)}', stream, INDENT)}\n" if self.hint else ""
        message = wrapped(one_line(self.message), stream, INDENT)
        return f"{console.paint(f'{mark:<7}', style, stream)} {self.name:<9} {message}\n{hint}"
