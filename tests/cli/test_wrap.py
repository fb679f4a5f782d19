"""Wrapping an answer at words while it comes."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.cli.live import WordWrap

LONG = "a paragraph with words of all kinds, some of them preposterously long, that goes on beyond the edge"


def fed(text: str, columns: int, size: int = 1) -> str:
    wrap = WordWrap()
    pieces = [wrap.feed(text[i : i + size], columns) for i in range(0, len(text), size)]
    return "".join([*pieces, wrap.finish(columns)])


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n")]


@given(st.lists(st.integers(1, 18), min_size=1, max_size=40), st.sampled_from([20, 30, 40, 80]), st.integers(1, 30))
def test_words_are_kept_whole(lengths: list[int], columns: int, size: int) -> None:
    text = " ".join("x" * n for n in lengths)
    assert lines(fed(text, columns, size)) == textwrap.wrap(text, columns - 1)


@given(st.text(st.sampled_from("ab漢 \n\t-é"), max_size=80), st.integers(2, 40), st.integers(1, 9))
def test_nothing_is_lost_but_blanks_at_breaks(text: str, columns: int, size: int) -> None:
    assert fed(text, columns, size).replace(" ", "").replace("\n", "") == text.replace(" ", "").replace("\n", "")


def test_a_word_that_cannot_reach_the_edge_is_not_held_back() -> None:
    wrap = WordWrap()
    assert wrap.feed("Onc", 40) == "Onc"
    assert wrap.feed("e upon a time there was a k", 40) == "e upon a time there was a "
    assert wrap.feed("ing ", 40) == "king "


def test_code_between_fences_stays_as_it_is() -> None:
    code = f"```python\nx = [{LONG!r}]\n```\n"
    assert fed(code, 30) == code
    assert lines(fed(f"{code}{LONG}", 30))[3:] == textwrap.wrap(LONG, 29)


def test_colours_take_no_room() -> None:
    green = "\x1b[32mgreen\x1b[0m"
    assert fed(f"{'x' * 13} {green} y", 20, 100) == f"{'x' * 13} {green}\ny"


@pytest.mark.parametrize(("columns", "n"), [(10, 4), (11, 5)])
def test_wide_characters_break_anywhere(columns: int, n: int) -> None:
    text = "漢字" * 4
    assert lines(fed(text, columns)) == [text[:n], text[n:]]
