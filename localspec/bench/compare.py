"""Two benches side by side: how much faster the second is, and what else differs between them.

Figures of two models are not compared: the files are told apart by their sha256.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from localspec.bench.result import BenchResult, Wire, grouped, rates
from localspec.bench.statistics import Interval, ratio_interval
from localspec.errors import IncompatibleError, UsageError
from localspec.ui.columns import aligned


@dataclass(frozen=True, slots=True)
class Change:
    """One contender at one temperature in both: the speed of the second over the first, and each over its own plain.

    `n`: prompts that both asked, where they are compared one by one; None for medians of different prompts.
    """

    contender: str
    temperature: float
    ratio: Interval | None
    before: Interval | None  # × plain in the first
    after: Interval | None
    n: int | None = None


@dataclass(frozen=True, slots=True)
class ResultComparison:
    """`is_paired`: both asked the same prompts, so each prompt is compared with itself.

    `interrupted`: which of the two, "first" or "second", did not measure all they were asked.
    """

    changes: tuple[Change, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    differences: tuple[tuple[str, Any, Any], ...]
    is_paired: bool
    interrupted: tuple[str, ...] = ()

    def to_wire(self) -> Wire:
        return {
            "schema": "localspec.bench-compare/1",
            "is_paired": self.is_paired,
            "interrupted": list(self.interrupted),
            "changes": [dataclasses.asdict(change) for change in self.changes],
            "only_in_first": list(self.only_before),
            "only_in_second": list(self.only_after),
            "differences": [{"what": name, "first": a, "second": b} for name, a, b in self.differences],
        }

    def text(self) -> str:
        head = ("T", "method", "prompts", "second / first", "first × plain", "second × plain")
        cells = [
            (
                f"{change.temperature:g}",
                change.contender,
                "–" if change.n is None else str(change.n),
                *(_spelt(i) for i in (change.ratio, change.before, change.after)),
            )
            for change in self.changes
        ]
        lines = aligned([head, *cells])
        lines += [f"the {which} was interrupted: it holds what was measured until then" for which in self.interrupted]
        lines += [f"only in the first: {', '.join(self.only_before)}"] if self.only_before else []
        lines += [f"only in the second: {', '.join(self.only_after)}"] if self.only_after else []
        lines += [f"{name}: {a} → {b}" for name, a, b in self.differences]
        if not self.is_paired:
            lines.append("the prompts differ: ratios are of two medians, not of the same prompts")
        return "\n".join(lines) + "\n"


def compare(before: BenchResult, after: BenchResult) -> ResultComparison:
    """Return what changed from one to the other. Raises IncompatibleError for results of different models."""
    require_same_models(before, after)
    first, second = ({key: rates(group) for key, group in grouped(run.measurements).items()} for run in (before, after))
    keys = ("suite_sha256", "prompt_tokens", "raw")
    a, b = before.provenance["options"], after.provenance["options"]
    is_paired = all(a.get(key) == b.get(key) for key in keys)
    ratios = [{(row.temperature, row.contender): row.ratio for row in run.rows} for run in (before, after)]
    changes = []
    for key in (key for key in first if key in second):
        both = [p for p in first[key] if p in second[key]] if is_paired else []
        ours = [second[key][p] for p in both] if both else list(second[key].values())
        theirs = [first[key][p] for p in both] if both else list(first[key].values())
        interval = ratio_interval(ours, theirs, is_paired=bool(both))
        changes.append(Change(key[1], key[0], interval, ratios[0].get(key), ratios[1].get(key), len(both) or None))
    return ResultComparison(
        tuple(changes),
        tuple(f"{name} T={t:g}" for t, name in first if (t, name) not in second),
        tuple(f"{name} T={t:g}" for t, name in second if (t, name) not in first),
        tuple(_differences(before.provenance, after.provenance)),
        is_paired,
        tuple(which for which, run in (("first", before), ("second", after)) if not run.is_complete),
    )


def require_same_models(before: BenchResult, after: BenchResult) -> None:
    """Raise IncompatibleError unless target and draft are the same files, by their hashes.

    Raises UsageError for a result that does not say which file its target was.
    """
    if None in (before.hashes[0], after.hashes[0]):
        raise UsageError(
            "a result does not say of which target it is: it has no sha256",
            hint="measure it again: localspec bench PAIR",
        )
    for what, a, b in zip(("target", "draft"), before.hashes, after.hashes, strict=True):
        if a != b:
            raise IncompatibleError(
                f"the two results are of different {what} models: sha256 {_short(a)} and {_short(b)}",
                hint="localspec bench PAIR --json FILE, once for each, with the same pair",
                detail={"what": what, "first": a, "second": b},
            )


def _differences(before: Wire, after: Wire) -> Iterator[tuple[str, Any, Any]]:
    a, b = dict(_leaves(before, "")), dict(_leaves(after, ""))
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) != b.get(name):
            yield name, a.get(name), b.get(name)


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _short(sha256: str | None) -> str:
    return "none" if sha256 is None else f"{sha256[:12]}…"


def _spelt(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval.spelt()}×"
