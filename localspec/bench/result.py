"""The JSON object of a bench (localspec.bench/1): rows, the measurements they come from, and where those come from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from localspec.bench.measurement import Measurement, from_wire
from localspec.bench.suites import read_text
from localspec.bench.summary import SummaryRow, rows
from localspec.errors import UsageError

SCHEMA = "localspec.bench/1"
HINT = "a file that localspec bench --json FILE wrote"
Wire = dict[str, Any]


@dataclass(frozen=True)  # no slots: the rows are kept
class BenchResult:
    """A bench as it was written; `row_costs` are milliseconds of a target pass by rows, timed after the answers.

    `skipped` counts prompts that did not fit, and `refused` are the contenders that the pair cannot give, with why.
    """

    provenance: Wire
    measurements: tuple[Measurement, ...]
    is_complete: bool
    skipped: int = 0
    row_costs: tuple[tuple[int, float], ...] = ()
    created: str = ""
    refused: tuple[tuple[str, str], ...] = ()

    @cached_property
    def rows(self) -> list[SummaryRow]:
        """The table, resampled once."""
        return rows(self.measurements)

    @property
    def hashes(self) -> tuple[str | None, str | None]:
        """Return the sha256 of target and draft, None for no draft."""
        pair = self.provenance["pair"]
        return pair["target"]["sha256"], (pair["draft"] or {}).get("sha256")

    def to_wire(self) -> Wire:
        """Return the object."""
        return {
            "schema": SCHEMA,
            "created": self.created,
            "is_complete": self.is_complete,
            "provenance": self.provenance,
            "skipped_prompts": self.skipped,
            "refused": dict(self.refused),
            "results": [row.to_wire() for row in self.rows],
            "row_costs": [list(cost) for cost in self.row_costs],
            "measurements": [one.to_wire() for one in self.measurements],
        }


def read_result(path: Path) -> BenchResult:
    """Read a file that `to_wire` described. Raises NotFoundError, or UsageError for a file that is something else."""
    text = read_text(path, said=str(path), hint=HINT)
    try:
        wire = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is not JSON", hint=HINT) from None
    if not isinstance(wire, dict) or wire.get("schema") != SCHEMA:
        raise UsageError(f"{path} is no result of localspec bench", hint=HINT)
    try:
        result = BenchResult(
            provenance=wire["provenance"],
            measurements=tuple(from_wire(one) for one in wire["measurements"]),
            is_complete=bool(wire["is_complete"]),
            skipped=int(wire.get("skipped_prompts", 0)),
            row_costs=_costs(wire.get("row_costs") or []),
            created=str(wire.get("created", "")),
            refused=tuple((str(name), str(why)) for name, why in (wire.get("refused") or {}).items()),
        )
        _ = result.hashes, result.rows, result.provenance["options"].keys()
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise UsageError(f"{path} is a damaged result of localspec bench", hint=HINT) from None
    return result


def _costs(pairs: Sequence[Sequence[float]]) -> tuple[tuple[int, float], ...]:
    return tuple((int(n), float(ms)) for n, ms in pairs)
