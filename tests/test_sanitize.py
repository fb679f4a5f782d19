"""Nothing that a terminal obeys, and nothing invisible, passes; wherever the text is cut."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.sanitize import MARKS, QUOTED, Sanitizer, quoted, sanitize

CONTROLS = {chr(code) for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))} - {"\n", "\t"}
NASTY = st.text(
    st.one_of(
        st.sampled_from("\x1b\r\n\t\x9b\x9d\x07\x7f\u200b\u200d\u0301\u0489\u202e\ufe0f\U000e0041a1👩💻م"),
        st.characters(),
        st.characters(categories=["Cs", "Cf", "Cc"]),
    )
)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain text\n\tstays", "plain text\n\tstays"),
        ("\x1b]52;c;aGk=\x07", "␛]52;c;aGk=␇"),
        ("\x1b[2J\x1bc\x1b[6n", "␛[2J␛c␛[6n"),
        ("\x9b31m\x9d0;t\x9c", "\\u{9b}31m\\u{9d}0;t\\u{9c}"),
        ("\x00\x7f\x08\x0b\x0c", "␀␡␈␋␌"),
        ("a\r\nb\rc\r\r\n", "a\nb␍c␍\n"),
        ("\u202eevil\u2066x\u2069", "\\u{202e}evil\\u{2066}x\\u{2069}"),
        ("in\u200bvisi\ufeffble", "in\\u{200b}visi\\u{feff}ble"),
        ("\U000e0068\U000e0069", "\\u{e0068}\\u{e0069}"),
        ("line\u2028para\u2029", "line\\u{2028}para\\u{2029}"),
        ("half \ud83d pair", "half \\u{d83d} pair"),
        ("a\u200db\ufe0fc", "a\\u{200d}b\\u{fe0f}c"),
        ("a" + 10 * "\u0301" + "b\u0301", "a" + 8 * "\u0301" + 2 * "\\u{301}" + "b\u0301"),
        ("م" + 8 * "\u064b" + "\u200d\u064b", "م" + 8 * "\u064b" + "\\u{200d}\u064b"),
        ("☺" + 8 * "\u20dd" + "\ufe0f", "☺" + 8 * "\u20dd" + "\\u{fe0f}"),
        ("م" + 9 * "\u064b" + "\u200d", "م" + 8 * "\u064b" + "\\u{64b}\\u{200d}"),
        ("\x1b\u200d", "␛\\u{200d}"),
        ("e\u0301\u034f\u0301", "e\u0301\\u{34f}\u0301"),
    ],
)
def test_what_a_terminal_obeys_becomes_visible(raw: str, shown: str) -> None:
    assert sanitize(raw) == shown


@pytest.mark.parametrize(
    "text",
    [
        "👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 ❤️‍🔥 👍🏽 🇩🇪 1️⃣ ☺️ ©️",  # joiners, selectors, skin tones, flags, keycaps
        "می‌خواهم",  # Persian with a zero-width non-joiner
        "क्‍ष",  # Devanagari with a zero-width joiner
        "Việt Nam, b̵͇a̐d t́y̆pe",  # marks of their own
        "Ünïcödé 漢字 한글 עברית العربية",
        "བོད་སྐད་ ཧྐྵྨླྺྼྻྃ နိုင်ငံ့ ကြွေးကြော်သံ เปลี่ยน ਗੁਰਮੁਖੀ שָׁלוֹם וּבְרָכָה بِسْمِ ٱللَّهِ",  # scripts that pile up
        "[/INST] [@click=app.quit]x[/] \\u{9b}",  # markup is text
    ],
)
def test_what_people_write_stays(text: str) -> None:
    assert sanitize(text) == text


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
