"""The suffix automaton against naive search, and what a token costs, counted in executed lines."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.methods import suffix as suffix_automaton
from localspec.methods._suffix_automaton import ROOT, Match, SuffixAutomaton

texts = st.integers(1, 4).flatmap(lambda v: st.lists(st.integers(0, v - 1), max_size=40))
EMPTY = Match(ROOT, 0)


def followers(text: Sequence[int], seen: Sequence[int]) -> Counter[int]:
    """Return what followed `seen` in `text`, and how often."""
    n = len(seen)
    return Counter(text[at + n] for at in range(len(text) - n) if list(text[at : at + n]) == list(seen))


def longest_repeat(text: Sequence[int], reach: int) -> Sequence[int]:
    """Return the longest suffix of `text`, shorter than `reach`, that something followed."""
    lengths = range(min(reach - 1, len(text)), 0, -1)
    return next((text[-n:] for n in lengths if followers(text, text[-n:])), [])


def automaton(text: Sequence[int], reach: int) -> SuffixAutomaton:
    built = SuffixAutomaton(reach)
    built.extend(text)
    return built


@given(text=texts, reach=st.integers(2, 9))
def test_the_longest_repeated_suffix_and_what_followed_it(text: list[int], reach: int) -> None:
    """After every token: how long the match is, and the counts of its continuations. The end never matches itself."""
    built = SuffixAutomaton(reach)
    for n, token in enumerate(text, start=1):
        built.extend([token])
        match, expected = built.match(), longest_repeat(text[:n], reach)
        assert match.length == len(expected)
        assert built.continuations(match) == followers(text[:n], expected)
        assert len(built) == n
        assert built.n_states <= 2 * n


@given(text=texts, reach=st.integers(2, 9), picks=st.lists(st.integers(0, 9), max_size=12))
def test_every_walk_counts_what_followed(text: list[int], reach: int, picks: list[int]) -> None:
    """From nothing along any path: the counts of every substring within reach, and where the end of the text leads."""
    built = automaton(text, reach)
    at, seen = EMPTY, list[int]()
    for pick in picks:
        counts = built.continuations(at)
        assert counts == followers(text, seen)
        assert at.length == len(seen) < reach
        if not counts:
            assert not text
            return
        token = sorted(counts)[pick % len(counts)]
        at, seen = built.follow(at, token), [*seen, token]
        # Only what nothing has ever followed goes on as the end of the text does, and it is looked at whole.
        seen = seen[-(reach - 1) :] if followers(text, seen) else list(longest_repeat(text, reach))


def test_an_empty_text_matches_nothing() -> None:
    """Nor does a single token."""
    assert SuffixAutomaton(4).match() == EMPTY
    assert SuffixAutomaton(4).continuations(EMPTY) == {}
    assert automaton([3], 4).match() == EMPTY
    assert automaton([3], 4).continuations(EMPTY) == {3: 1}


def fibonacci(n: int) -> list[int]:
    """Return the word in which every split happens as often as it can."""
    a, b = [0], [0, 1]
    while len(b) < n:
        a, b = b, b + a
    return b[:n]


TEXTS: dict[str, Callable[[int], list[int]]] = {
    "one token": lambda n: [7] * n,
    "a loop": lambda n: [*range(50)] * (n // 50),
    "two letters": lambda n: np.random.default_rng(1).integers(0, 2, n).tolist(),
    "a large vocabulary": lambda n: np.random.default_rng(2).integers(0, 50_000, n).tolist(),
    "words": lambda n: np.random.default_rng(3).zipf(1.4, n).clip(max=4096).tolist(),
    "fibonacci": fibonacci,
    "a, then b": lambda n: [0] * (n // 2) + [1] * (n // 2),
}


def lines(work: Callable[[], object]) -> int:
    """Return how many lines of the automaton `work` executes: what it costs on any machine."""
    count = 0

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code.co_filename == suffix_automaton.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", TEXTS)
def test_a_token_costs_the_same_in_a_long_text(kind: str) -> None:
    """Lines a token do not grow with the text, and stay within what `reach` counts can cost."""
    short, long = (TEXTS[kind](n) for n in (2000, 8000))
    per_token = [lines(lambda text=text: automaton(text, 33)) / len(text) for text in (short, long)]
    print(f"{kind}: {per_token[0]:.1f} and {per_token[1]:.1f} lines a token")
    assert per_token[1] < 1.1 * per_token[0] + 1
    assert per_token[1] < 150


@pytest.mark.parametrize("kind", TEXTS)
def test_a_question_costs_the_same_in_a_long_text(kind: str) -> None:
    """A match and a walk of 16 tokens from it, if there is one."""

    def ask(built: SuffixAutomaton) -> None:
        at = built.match()
        for _ in range(16 if at.length else 0):
            at = built.follow(at, next(iter(built.continuations(at))))

    short, long = (automaton(TEXTS[kind](n), 33) for n in (2000, 8000))
    assert lines(lambda: ask(long)) <= 1.5 * lines(lambda: ask(short)) + 20
