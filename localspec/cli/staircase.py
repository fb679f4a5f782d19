"""The times of a pair's passes as a table: the staircase of the target, and the draft beside it.

The cost is a staircase: a processor takes rows in groups, and another kernel takes over from some width on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from localspec.settings.jobs import SurveyRequest
from localspec.settings.sizes import counted, three_digits
from localspec.ui.columns import aligned

BAR = 24  # characters
FREE = 0.05  # of a pass of one row: what a row may cost that is called nearly free
CLIFF = 1.2  # times the width before: less is a slope
STEEP = 3.0  # times the mean cost of a row, over all widths: a straight line has no cliff


@dataclass(frozen=True, slots=True)
class Stair:
    """The widths `before` and `rows`, neighbours among those measured. `ratio` is the cost of one over the other's.

    `each` is what a row between them costs, in passes of one row.
    """

    before: int
    rows: int
    ratio: float
    each: float
    is_free: bool
    is_cliff: bool


def stairs(costs: Mapping[int, float]) -> list[Stair]:
    """Return the stairs of `costs` (any unit, by rows; those of one row must be among them), from the lowest on."""
    known = sorted(costs)
    one, widest = costs[1], known[-1]
    mean = (costs[widest] - one) / max(widest - 1, 1) / one
    found = []
    for before, rows in pairwise(known):
        ratio = costs[rows] / costs[before]
        each = (costs[rows] - costs[before]) / (rows - before) / one
        is_cliff = ratio >= CLIFF and each >= STEEP * max(mean, 0.0) and each > FREE
        found.append(Stair(before, rows, ratio, each, each <= FREE, is_cliff))
    return found


def by_rows(pairs: Any) -> dict[int, float]:
    """Return milliseconds by rows from what a survey told."""
    return {int(rows): float(ms) for rows, ms in pairs}


def staircase(content: Mapping[str, Any], asked: SurveyRequest) -> str:
    """Return the table of a survey, for people."""
    target, draft = content["target"], content["draft"]
    lines = [f"target, {_threads(content['threads'])}, an empty context:", ""]
    lines += [*aligned(list(_rows(target))), ""]
    lines += _left_out(by_rows(target["ms"]), asked)
    lines += _grown("target", target)
    lone = content["profile"]["lone"]
    if lone > 1:
        lines.append(f"early in a context, a token alone is given a pass of {lone} rows, which is quicker")
    if draft is not None:
        one, first = by_rows(draft["ms"]), by_rows(target["ms"])[1]
        costs = ", ".join(f"{rows} rows {three_digits(ms)} ms" for rows, ms in one.items() if rows > 1)
        token = f"a token {three_digits(one[1])} ms, {one[1] / first:.2g} of a target pass"
        lines.append(f"draft, {_threads(content['draft_threads'])}: {token}{f'; {costs}' if costs else ''}")
        lines += _grown("draft", draft)
    return "\n".join(lines) + "\n"


def _threads(n: int) -> str:
    return counted(n, "thread")


def _rows(target: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    costs, deep = by_rows(target["ms"]), by_rows(target["deep_ms"])
    said = {one.rows: _said(one.before, one.ratio, one.is_free, one.is_cliff) for one in stairs(costs)}
    top, wide = max(costs.values()), max((len(text) for text in said.values()), default=0)
    at = (f"ms at {target['position']}",) if deep else ()
    yield "rows", "ms", "ms a row", "of 1 row", *at, "", ""
    for rows, ms in costs.items():
        late = ("–" if rows not in deep else three_digits(deep[rows]),) if deep else ()
        bar = "█" * max(1, round(BAR * ms / top))
        marks = bar.ljust(BAR), said.get(rows, "").ljust(wide)  # the table puts columns to the right
        yield str(rows), three_digits(ms), three_digits(ms / rows), f"{ms / costs[1]:.2f}", *late, *marks


def _said(before: int, ratio: float, is_free: bool, is_cliff: bool) -> str:
    if is_cliff:
        return f"cliff: {ratio:.2f}x of {before}"
    return "nearly free" if is_free else ""


def _left_out(costs: Mapping[int, float], asked: SurveyRequest) -> list[str]:
    """Say which widths the budget, or the context, had no room for."""
    missing = [rows for rows in asked.sizes if rows not in costs]
    if not missing:
        return []
    widths = counted(missing[0], "row") if len(missing) == 1 else f"{missing[0]} to {missing[-1]} rows"
    return [f"not measured within {asked.seconds:g} s, or more than a pass takes: {widths} (--seconds gives more time)"]


def _grown(what: str, times: Mapping[str, Any]) -> list[str]:
    """Say what a longer context costs."""
    deep, empty = by_rows(times["deep_ms"]), by_rows(times["ms"])
    if not deep:
        return [f"{what} deep in a context: not measured, {times['why_not_deep']}"]
    grown = ", ".join(f"{counted(rows, 'row')} {deep[rows] / empty[rows]:.2f}x" for rows in (1, 8) if rows in deep)
    return [f"{what} with {times['position']} tokens in the context: {grown}"]
