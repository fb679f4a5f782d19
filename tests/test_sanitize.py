"""Nothing that a terminal obeys, and nothing invisible, passes; wherever the text is cut."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from localspec.sanitize import MARKS, QUOTED, Sanitizer, quoted, sanitize
from tests.recorded import recorded_expressions

CONTROLS = {chr(code) for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))} - {"\n", "\t"}
NASTY = st.text(
    st.one_of(
        st.sampled_from("\x1b\r\n\t\x9b\x9d\x07\x7f\u200b\u200d\u0301\u0489\u202e\ufe0f\U000e0041a1👩💻م"),
        st.characters(),
        st.characters(categories=["Cs", "Cf", "Cc"]),
    )
)


@given(NASTY)
def test_nothing_dangerous_comes_out(text: str) -> None:
    shown = sanitize(text)
    assert not CONTROLS & set(shown)
    assert not any(unicodedata.category(char) == "Cs" for char in shown)
    assert not any(char in "\u2028\u2029\u200b\ufeff" or "\u202a" <= char <= "\u202e" for char in shown)
    assert not any("\U000e0000" <= char <= "\U000e0fff" for char in shown)


@given(NASTY)
def test_every_cut_gives_the_same(text: str) -> None:
    whole = sanitize(text)
    for cut in range(len(text) + 1):
        sanitizer = Sanitizer()
        assert sanitizer.feed(text[:cut]) + sanitizer.feed(text[cut:]) + sanitizer.finish() == whole
    sanitizer = Sanitizer()
    assert "".join(map(sanitizer.feed, text)) + sanitizer.finish() == whole


MARKED = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Mn", "Me")]


def test_no_mark_of_unicode_piles_up() -> None:
    for mark in MARKED:
        assert sanitize("a" + 1000 * mark).count(mark) <= MARKS, hex(ord(mark))


@given(st.text(st.sampled_from("ka1☺م\u0301\u08d3\u0730\u07eb\u064b\u0941\u094d\u20dd\u200d\u200c\ufe0f"), max_size=60))
def test_nothing_piles_up_in_turns(text: str) -> None:
    pile = 0
    for char in sanitize(text):
        pile = pile + 1 if unicodedata.category(char) in ("Mn", "Me", "Cf") else 0
        assert pile <= MARKS


def test_only_a_carriage_return_is_held_back() -> None:
    sanitizer = Sanitizer()
    assert sanitizer.feed("a\r") == "a"
    assert sanitizer.feed("") == ""
    assert sanitizer.feed("\nb\r") == "\nb"
    assert sanitizer.finish() == "␍"
    assert sanitizer.feed("\n") == "\n"  # a new text


def test_a_token_stands_between_quotes_and_is_cut_at_its_end() -> None:
    assert quoted(b"a\n\xff") == "'a\\n\\xff'"
    assert quoted(b"a" * QUOTED) == f"'{'a' * QUOTED}'"
    assert quoted(b"a" * (QUOTED + 1)) == f"'{'a' * QUOTED}...'"


test_what_is_recorded = recorded_expressions(__file__, sanitize, shown=ascii)
