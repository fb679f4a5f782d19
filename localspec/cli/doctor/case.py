"""A pair that is examined: everything that is known of it, and the finding for something unknown.

Also here: what a check found, as a JSON object, and as lines of text with the command to try.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from localspec.bench.diagnosis import Evidence
from localspec.cli.console import Console, wrapped
from localspec.cli.staircase import by_rows
from localspec.control.chain import Worth
from localspec.control.prices import Prices, best_decode_rows
from localspec.engine.events import Loaded
from localspec.models.gguf.layer_sizes import Anatomy
from localspec.sanitize import one_line

INDENT = 18  # columns of mark and name
MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "bad": ("BAD", "red"), "broken": ("BROKEN", "red")}
SHORT = 5  # rows: the pending token and four drafted


@dataclass(frozen=True, slots=True)
class Case:
    """A pair with everything that is known of it. `parts` are the target's, `draft_parts` None without a draft.

    `worth` is what the draft is worth by all that was measured here, None without one.
    """

    loaded: Loaded
    parts: Anatomy
    draft_parts: Anatomy | None
    evidence: Evidence
    worth: Worth | None = None

    @property
    def survey(self) -> Mapping[str, Any]:
        """The result of the first survey."""
        assert self.evidence.first is not None
        return self.evidence.first.content

    @property
    def target(self) -> dict[int, float]:
        """Milliseconds of a target pass by rows."""
        return by_rows(self.survey["target"]["ms"])

    @property
    def decode_rows(self) -> int:
        """How many of the timed rows a pass of one token has, early in a text: more than one where those take less."""
        times, profile = self.target, self.survey["profile"]
        rows = profile["lone"] if profile["ms"] else best_decode_rows({n: ms / 1e3 for n, ms in times.items()})
        return rows if rows in times else 1

    @property
    def costs(self) -> Prices:
        """The same as decoding pays it."""
        times = self.target
        return Prices({**times, 1: times[self.decode_rows]})

    @property
    def has_rows(self) -> bool:
        """Whether the rows of a short chain were timed: without them nothing is known of what verifying costs."""
        return max(self.target) >= SHORT

    @property
    def draft(self) -> float | None:
        """Milliseconds of a draft token, None without a draft model."""
        draft = self.survey["draft"]
        return None if draft is None else by_rows(draft["ms"])[1]


def read_bytes(parts: Anatomy, rows: int) -> float:
    """Return the bytes of weights that a pass of `rows` reads, were the routing to experts even.

    Not the embedding, of which a token takes one row.
    """
    dense = parts.output + sum(layer.dense for layer in parts.layers)
    routed = sum(layer.experts for layer in parts.layers)
    return dense + routed * (1.0 - (1.0 - parts.used_share) ** rows)


def unmeasured(name: str, why: str, hint: str = "") -> Finding:
    """Return a finding that says why there is none."""
    return Finding(name, "note", f"not measured: {why}", hint, is_measured=False)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `state` is ok, note (could be better), bad (costs speed) or broken, and `code` then the exit code."""

    name: str
    state: str
    message: str
    hint: str = ""
    code: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    is_measured: bool = True

    def to_wire(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "message": self.message,
            "hint": self.hint,
            "facts": dict(self.facts),
        }

    def line(self, console: Console, stream: IO[str]) -> str:
        """Return it as one line, which a terminal gets wrapped at words, and a second one with its hint."""
        mark, style = MARKS[self.state]
        hint = f"{'':<{INDENT}}try: {one_line(self.hint)}\n" if self.hint else ""
        message = wrapped(one_line(self.message), stream, INDENT)
        return f"{console.paint(f'{mark:<7}', style, stream)} {self.name:<9} {message}\n{hint}"
