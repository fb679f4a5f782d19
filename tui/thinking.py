"""The reasoning in an answer: what stands between <think> and </think>, which is folded away."""

from __future__ import annotations

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Thought:
    """An answer in its two parts. `is_open` while the reasoning has not ended."""

    reasoning: str
    answer: str
    is_open: bool = False


def split(text: str) -> Thought:
    """Separate reasoning and answer. Some templates open the thought themselves, so </think> may come alone."""
    start = text.lstrip()
    if start.startswith(OPEN):
        inside, closed, after = start[len(OPEN) :].partition(CLOSE)
        return Thought(inside.strip("\n"), after.lstrip("\n"), is_open=not closed)
    before, closed, after = text.partition(CLOSE)
    if closed and OPEN not in before:
        return Thought(before.strip("\n"), after.lstrip("\n"))
    if start and OPEN.startswith(start):  # the tag itself is still coming
        return Thought("", "", is_open=True)
    return Thought("", text)
