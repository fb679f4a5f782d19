"""What a draft writes becomes the tokens that its target has for the same text."""

import re
from dataclasses import replace

import pytest

from localspec.engine.translation import WORD, Lexicon, Retokeniser
from tests.lexicons import BYTES, lexicon

SMILE = "🙂".encode()


def of(target: Lexicon) -> Retokeniser:
    return Retokeniser(target, lexicon(BYTES))


def test_tokens_that_the_draft_lacks_are_found() -> None:
    target = lexicon([*BYTES, b" cat", "汉字".encode(), SMILE, b")\n"])
    text = b" cat" + "汉字".encode() + SMILE + b")\n"
    assert of(target).tokens([ord("a")], text) == [256, 257, 258, 259]


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_an_unfinished_character_is_left_out(missing: int) -> None:
    assert of(lexicon([*BYTES, SMILE])).tokens([ord("a")], b"b" + SMILE[:-missing]) == [ord("b")]


@pytest.mark.parametrize("n_committed", [1, 2, 3])
def test_a_character_under_way_is_finished(n_committed: int) -> None:
    """In the target's tokens: bytes here, and the last may still lack."""
    retokeniser = of(lexicon(BYTES))
    committed = [ord("a"), *SMILE[:n_committed]]
    assert retokeniser.tokens(committed, SMILE[n_committed:] + b"!") == [*SMILE[n_committed:], ord("!")]
    assert retokeniser.tokens(committed, SMILE[n_committed:-1]) == []


def test_what_is_not_text_is_no_draft() -> None:
    assert of(lexicon(BYTES)).tokens([ord("a")], b"\x80b") == []
    assert of(lexicon(BYTES)).tokens([ord("a")], b"b\xffc") == []


def test_a_text_that_the_target_cannot_write_is_no_draft() -> None:
    assert of(lexicon([b"a", b"b"])).tokens([0], b"ab") == [0, 1]
    assert of(lexicon([b"a", b"b"])).tokens([0], b"acb") == []


def bracketed(texts: list[bytes]) -> Lexicon:
    """Return a vocabulary whose tokenizer cuts a text into words first; one mark may begin a word, as in Qwen's."""
    model = lexicon([*BYTES, *texts])

    def tokenize(text: bytes) -> list[int]:
        words = re.findall(rb"[^a-z]?[a-z]+|[^a-z]+", text)
        return [token for word in words for token in model.tokenize(word)]

    return replace(model, tokenize=tokenize)


def test_a_word_goes_on_over_the_boundary() -> None:
    """After "(" the mark ")" begins no word, and by itself it does."""
    retokeniser = of(bracketed([b")foo", b"foo"]))
    assert retokeniser.tokens([*b"a("], b")foo") == [ord(")"), 257]
    assert retokeniser.tokens([*b"a"], b")foo") == [256]


def test_a_word_whose_tokens_would_change_is_not_read_again() -> None:
    retokeniser = of(bracketed([b"foo", b"oo"]))
    assert retokeniser.tokens([*b" f"], b"oo") == [257]


def test_special_tokens_end_what_is_read_again() -> None:
    """And the text of one is text."""
    target = lexicon([*BYTES, b"<m>", b")foo"], specials={b"<m>": 256})
    assert of(target).tokens([ord("("), 256], b")foo") == [257]
    assert of(target).tokens([ord("a")], b"<m>") == [*b"<m>"]


@pytest.mark.parametrize("text", [b"x" * 99, "汉字".encode() * 20, b"of words"])
def test_little_is_read_again(text: bytes) -> None:
    read: list[bytes] = []
    model = lexicon(BYTES)

    def tokenize(text: bytes) -> list[int]:
        read.append(text)
        return model.tokenize(text)

    retokeniser = of(replace(model, tokenize=tokenize))
    read.clear()
    assert retokeniser.tokens([*text], b"y") == [ord("y")]
    (whole,) = read
    assert len(whole) <= WORD + 3
    assert (b" " + text).endswith(whole[:-1])
    whole.decode()


def test_no_space_is_put_before_the_text() -> None:
    target = lexicon([*BYTES, b" a"], adds_space=True)
    assert Retokeniser(target, lexicon(BYTES)).tokens([ord("b")], b"ab") == [*b"ab"]
    assert Retokeniser(target, lexicon(BYTES)).tokens([], b"ab") == [*b"ab"]


def test_structure_ends_a_draft() -> None:
    """Ends of a turn or text are told apart from other special tokens, and from tokens without a text."""
    specials = {b"<m>": 2, b"<end>": 3, b"<eos>": 4}
    draft = lexicon([b"a", b"", *specials], specials=specials, ends=(3, 4))
    target = lexicon([b"a", b"<stop>"], specials={b"<stop>": 1}, ends=(1,))
    known = Retokeniser(target, draft)
    assert [known.spelling(own) for own in range(5)] == [b"a", None, None, None, None]
    assert [known.end(own) for own in range(5)] == [None, None, None, 1, 1]
    assert Retokeniser(lexicon([b"a"]), draft).end(3) is None
