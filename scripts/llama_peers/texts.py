"""Which answers of two programs can be compared pass by pass: those that are one text."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.bench.measurement import Measurement

Measurements = list[Measurement]


def of_one_text(ours: Iterable[Measurement], theirs: Iterable[Measurement]) -> tuple[Measurements, Measurements]:
    """Return the answers of each to which the other wrote the same, on the same prompt in the same round."""
    mine, others = list(ours), list(theirs)
    shared = {_which(one) for one in mine} & {_which(one) for one in others}
    return [one for one in mine if _which(one) in shared], [one for one in others if _which(one) in shared]


def _which(one: Measurement) -> tuple[int, int, str]:
    return one.cell.prompt, one.cell.repeat, one.text_hash
