"""A draft with other tokens: it reads the target's text in its own, and drafts with those that both have."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.translation import CHUNK, Intersection, Lexicon, SameTokens, unfinished
from tests.lexicons import BYTES, lexicon
from tests.recorded import recorded_expressions

WORDS = [b"the", b" the", b" cat", b" sat", b"\n", b"12", b" 1", b"\xe4\xbd\xa0", "好".encode(), "🙂".encode()]


def written(model: Lexicon, tokens: list[int]) -> bytes:
    return b"".join(map(model.piece, tokens))


def pair(target: Lexicon, draft: Lexicon) -> tuple[Intersection, Lexicon, Lexicon]:
    return Intersection(target, draft), target, draft


# Rows.


def test_a_row_has_the_shared_tokens_in_the_targets_places() -> None:
    target = lexicon([b"a", b"b", b"cd", b"e"])
    draft = lexicon([b"e", b"c", b"a", b"x", b"b"])
    row = Intersection(target, draft).row(np.array([10, 11, 12, 13, 14], np.float32))
    assert row.tolist() == [12.0, 14.0, -np.inf, 10.0]


def test_of_tokens_that_write_the_same_the_tokenizers_own_is_shared() -> None:
    """A vocabulary may have a byte token beside a normal one; `Vocab.spellings` prefers that, and both sides use it."""
    target, draft = lexicon([b"a", b"a"]), lexicon([b"x", b"a", b"a"])
    translation = Intersection(target, draft)
    assert translation.row(np.array([0, 1, 2], np.float32)).tolist() == [1.0, -np.inf]
    assert translation.token(0) == 1


def test_special_tokens_are_left_out_and_the_end_is_mapped_to_the_end() -> None:
    """Equal texts are no reason: to one model it is structure, to the other text. Ends have a role."""
    target = lexicon([b"a", b"<x>", b"<end>", b"<eos>"], specials={b"<end>": 2, b"<eos>": 3}, ends=(2, 3))
    draft = lexicon([b"</s>", b"a", b"<x>", b"<turn>"], specials={b"</s>": 0, b"<x>": 2, b"<turn>": 3}, ends=(3, 0))
    translation = Intersection(target, draft)
    row = translation.row(np.log(np.array([0.25, 0.5, 0.125, 0.125], np.float32)))
    assert np.exp(row).tolist() == pytest.approx([0.5, 0.0, 0.375, 0.0])  # all ends of the draft are one of the target
    assert translation.token(2) == 3


def test_no_end_is_drafted_where_one_of_them_has_none() -> None:
    target = lexicon([b"a", b"<end>"], specials={b"<end>": 1}, ends=(1,))
    row = Intersection(target, lexicon([b"a"])).row(np.zeros(1, np.float32))
    assert row.tolist() == [0.0, -np.inf]


def test_equal_vocabularies_are_not_translated() -> None:
    same = SameTokens(3, 5)
    assert same.text([0, 2]) == [0, 2]
    assert same.row(np.arange(5, dtype=np.float32)).tolist() == [0.0, 1.0, 2.0]
    assert SameTokens(5, 3).text([0, 3]) == ()
    assert SameTokens(5, 3).text([0, 2]) == [0, 2]


# Texts.


@pytest.mark.parametrize(
    "text",
    ["the cat sat\nthe cat", "112 12 1 1212", "你好, the 你", "🙂 the 🙂🙂", "naïve café – “so”", "\x00\x7f", ""],
    ids=["words", "digits", "cjk", "emoji", "accents", "control characters", "nothing"],
)
def test_the_draft_reads_the_same_bytes(text: str) -> None:
    """Digits, CJK, emoji and all else, whole or cut anywhere in a character."""
    translation, target, draft = pair(lexicon([*BYTES, *WORDS]), lexicon([*reversed(BYTES), b"the c", b" sat\n"]))
    tokens = [0, *target.tokenize(text.encode())]
    for n in range(1, len(tokens) + 1):
        assert written(draft, list(translation.text(tokens[:n]))) == written(target, tokens[:n])


def test_a_character_that_lacks_bytes_is_read_byte_by_byte() -> None:
    """A tokenizer would make a replacement character of it. Once it is whole the draft's own token is read."""
    smile = "🙂".encode()
    translation, target, draft = pair(lexicon(BYTES), lexicon([*BYTES, smile]))
    tokens = target.tokenize(b"a" + smile)
    assert translation.text(tokens[:-1]) == draft.tokenize(b"a" + smile[:-1])
    assert translation.text(tokens) == [ord("a"), 256]


def listening(model: Lexicon) -> tuple[Lexicon, list[bytes]]:
    heard: list[bytes] = []

    def tokenize(text: bytes) -> list[int]:
        heard.append(text)
        return model.tokenize(text)

    return replace(model, tokenize=tokenize), heard


def test_a_text_without_words_is_not_spelled_anew() -> None:
    draft, heard = listening(lexicon(BYTES))
    translation = Intersection(lexicon(BYTES), draft)
    translation.text([*b"x" * (9 * CHUNK)])
    heard.clear()
    translation.text([*b"x" * (9 * CHUNK + 1)])
    assert 0 < sum(map(len, heard)) <= 2 * CHUNK + 4


def test_a_tokenizer_that_adds_no_space_gets_the_text_alone() -> None:
    """A line before it might change its tokens."""
    draft, heard = listening(lexicon([*BYTES, b"<m>"], specials={b"<m>": 256}))
    translation = Intersection(lexicon([*BYTES, b"<m>"], specials={b"<m>": 256}), draft)
    heard.clear()
    translation.text([*b"ab", 256, *b"cd"])
    assert heard == [b"ab", b"cd"]


def test_a_chunk_ends_between_two_words() -> None:
    """A tokenizer would read the two parts of one differently."""
    translation, _, draft = pair(lexicon(BYTES), lexicon([*BYTES, b" hello"]))
    text = b" hello" * CHUNK
    assert list(translation.text([*text])) == draft.tokenize(text)


@pytest.mark.parametrize("character", ["é", "汉", "🙂"])
@pytest.mark.parametrize("before", range(4))
def test_a_chunk_ends_between_two_characters(character: str, before: int) -> None:
    """Its last bytes would be read one by one, and the rest of the character as no character at all."""
    translation, _, draft = pair(lexicon(BYTES), lexicon(BYTES))
    text = b"x" * before + character.encode() * (3 * CHUNK)
    assert written(draft, list(translation.text([*text]))) == text


def test_bytes_that_the_draft_cannot_write_are_replaced() -> None:
    replacement = "\ufffd".encode()
    translation, _, _ = pair(lexicon(BYTES), lexicon([*BYTES[:128], replacement]))
    assert translation.text([ord("a"), 0xF0, 0x9F]) == [ord("a"), 128, 128]  # a character under way
    assert translation.text([ord("a"), 0xFF, ord("b")]) == [ord("a"), 128, ord("b")]  # no character at all


def test_special_tokens_of_both_stay_special_and_others_are_read_as_text() -> None:
    """By equal text or by role: the start of a text, the end of a turn, the end of a text."""
    names = [b"<s>", b"<|im_start|>", b"<|im_end|>", b"<|eos|>", b"<tool>"]
    target = lexicon(
        [*BYTES, *names], specials={name: 256 + i for i, name in enumerate(names)}, ends=(258, 259), bos=256
    )
    own = [b"<bos>", b"<tool>", b"<end_of_turn>", b"<eos>"]
    draft = lexicon([*BYTES, *own], specials={name: 256 + i for i, name in enumerate(own)}, ends=(258, 259), bos=256)
    tokens = [256, 257, *b"Hi", 258, *b"\n", 260, *b"x", 259, 256]
    text = Intersection(target, draft).text(tokens)
    assert text == [256, *b"<|im_start|>Hi", 258, *b"\n", 257, *b"x", 259, 256]


def test_an_equal_text_goes_before_a_role() -> None:
    """The draft has the target's marks, and begins and ends its own texts with others."""
    names = [b"<s>", b"<|im_end|>", b"<bos>", b"<eos>"]
    specials = {name: 256 + i for i, name in enumerate(names)}
    target = lexicon([*BYTES, *names[:2]], specials={b"<s>": 256, b"<|im_end|>": 257}, ends=(257,), bos=256)
    draft = lexicon([*BYTES, *names], specials=specials, ends=(259,), bos=258)
    assert Intersection(target, draft).text([256, *b"Hi", 257, 256]) == [258, *b"Hi", 257, 256]


def test_the_draft_begins_texts_as_it_was_trained() -> None:
    """Its BOS comes in front whether the target has one or not; the target's is dropped where the draft has none."""
    plain, begun = lexicon(BYTES), lexicon([*BYTES, b"<s>"], specials={b"<s>": 256}, bos=256)
    assert Intersection(plain, begun).text([*b"ab"]) == [256, *b"ab"]
    assert Intersection(begun, plain).text([256, *b"ab"]) == [*b"ab"]
    assert Intersection(begun, plain).text([256]) == []
    long = [*b"x" * (5 * CHUNK)]
    assert Intersection(plain, begun).text(long) == [256, *long]
    unused = replace(begun, specials={}, add_bos=False)  # it has one and does not begin texts with it
    assert Intersection(begun, unused).text([256, *b"ab", 256]) == [*b"ab"]


def test_an_added_space_is_only_in_front_of_the_text() -> None:
    """SPM tokenizers put a space before what they are given: right for a text, wrong for what follows in it."""
    target = lexicon([*BYTES, b"<m>"], specials={b"<m>": 256})
    draft = lexicon([*BYTES, b" a", b"<m>"], specials={b"<m>": 257}, adds_space=True)
    text = Intersection(target, draft).text([*b"ab", 256, *b"ab", 256, *b" a", *b"\n"])
    assert text == [256, *b"b", 257, *b"ab", 257, 256, *b"\n"]


def long_texts() -> list[list[int]]:
    words = [[256, 257][i % 3 // 2] if i % 3 else ord("x") for i in range(5 * CHUNK)]
    cjk = [*"汉字".encode()] * (2 * CHUNK)
    return [words, cjk, [*b"x" * (6 * CHUNK)], [0xBD] * (6 * CHUNK)]


@pytest.mark.parametrize("tokens", long_texts(), ids=["words", "cjk", "one word", "no characters"])
def test_the_beginning_keeps_its_tokens_while_the_text_goes_on(tokens: list[int]) -> None:
    """So that the draft's cache stays. And the tokens of a text do not depend on what was read before it."""
    target = lexicon([*BYTES, b" the", b" x"])
    draft = lexicon([*BYTES, b"x th", b"e x", b"xx", "字汉".encode()])
    growing = Intersection(target, draft)
    last: list[int] = []
    for n in range(1, len(tokens) + 1):
        text = list(growing.text(tokens[:n]))
        if n % 5 == 0:
            assert text == list(Intersection(target, draft).text(tokens[:n]))
        kept = [one for one, _ in itertools.takewhile(lambda two: two[0] == two[1], zip(last, text, strict=False))]
        settled = Intersection(target, draft).text(tokens[: max(0, n - 2 * CHUNK - 4)])
        assert len(written(draft, kept)) >= len(written(draft, list(settled)))
        last = text
    for n in (3 * CHUNK, CHUNK - 1, 5 * CHUNK - 7):  # back, and on another way
        other = [*tokens[:n], ord("y"), ord("z")]
        assert list(growing.text(other)) == list(Intersection(target, draft).text(other))


test_what_is_recorded = recorded_expressions(__file__, unfinished)
