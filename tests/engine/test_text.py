"""From token bytes to shown text: nothing half, nothing past a stop string, nothing taken back."""

import codecs
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.engine.text import TextStream, common_prefix


def stream(pieces: list[bytes], stops: tuple[str, ...] = ()) -> tuple[list[str], TextStream]:
    """Feed the pieces until a stop string; return what each gave, and the stream."""
    text = TextStream(stops)
    given_out = []
    for piece in pieces:
        given_out.append(text.feed(piece))
        if text.stopping_word:
            break
    return given_out, text


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut `data` at the given places."""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


def cut_at_first_stop(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


LETTERS = st.text("abé€🙂", max_size=12)


@given(LETTERS | st.text(max_size=8), st.lists(st.integers(0, 40)), st.lists(st.text("abé", min_size=1), max_size=3))
@example("aab", [1, 2], ["ab"])
@example("abc", [], ["abc", "b"])
@example("ababac", [1, 2, 3, 4, 5], ["abac"])
def test_the_pieces_give_the_whole_text_up_to_the_first_stop(text: str, cuts: list[int], stops: list[str]) -> None:
    """However the bytes fall into tokens, what comes out is the decoded whole cut at the first stop string."""
    pieces = split(text.encode(), cuts)
    out, state = stream(pieces, tuple(stops))
    expected, has_stopped = cut_at_first_stop(text, tuple(stops))
    assert "".join(out) + state.finish() == expected
    assert bool(state.stopping_word) is has_stopped


@given(st.binary(max_size=24), st.lists(st.integers(0, 24)))
@example(b"\xf0\x9f\x98", [1, 2])
@example(b"\xe2\x82a", [1, 2])
def test_invalid_bytes_become_replacement_characters(data: bytes, cuts: list[int]) -> None:
    """Any bytes, cut anywhere, give what decoding them whole gives, but for an unfinished character at the end."""
    out, state = stream(split(data, cuts))
    assert "".join(out) + state.finish() == codecs.getincrementaldecoder("utf-8")("replace").decode(data)


@given(st.text("ab€", max_size=16), st.lists(st.integers(0, 40)), st.lists(st.text("ab€", min_size=1), max_size=3))
def test_nothing_is_held_longer_than_needed(text: str, cuts: list[int], stops: list[str]) -> None:
    """After every piece the held part is a whole characters' proper prefix of some stop string, or nothing."""
    data = text.encode()
    shown, fed = "", b""
    state = TextStream(tuple(stops))
    for piece in split(data, cuts):
        shown += state.feed(piece)
        fed += piece
        if state.stopping_word:
            break
        whole = fed.decode("utf-8", errors="ignore")
        held = whole[len(shown) :]
        assert whole.startswith(shown)
        assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


def test_a_character_waits_for_its_last_byte() -> None:
    """A partial character is never shown, at the end neither: it would be stored and sent back in the next turn."""
    euro = "€".encode()
    assert stream([euro[:1], euro[1:2], euro[2:]])[0] == ["", "", "€"]
    out, state = stream([b"a", euro[:2]])
    assert out == ["a", ""]
    assert state.finish() == ""


def test_a_stop_string_over_three_tokens() -> None:
    """Its beginning is held while it may still come, and given back when it does not."""
    assert stream([b"one\n", b"\n", b"End", b"!"], ("\n\nEnd",))[0] == ["one", "", ""]
    assert stream([b"one\n", b"\n", b"Else"], ("\n\nEnd",))[0] == ["one", "", "\n\nElse"]


def test_what_was_held_comes_with_the_end() -> None:
    """The answer ends before the stop string does: its beginning was text after all."""
    _, state = stream([b"one\n"], ("\n\n",))
    assert state.finish() == "\n"


def test_nothing_follows_a_stop() -> None:
    """The stop string and what its token had behind it are dropped."""
    out, state = stream([b"yes STOP no"], ("STOP",))
    assert out == ["yes "]
    assert state.stopping_word
    assert state.finish() == ""


@pytest.mark.parametrize("pieces", [[b"abc"], [b"a", b"b", b"c"], [b"ab", b"c"]])
def test_the_first_complete_stop_wins(pieces: list[bytes]) -> None:
    """Two stop strings overlap: how tokens split the text decides nothing."""
    out, state = stream(pieces, ("abc", "b"))
    assert "".join(out) + state.finish() == "a"


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize(("other", "shared"), [([], 0), ([1], 1), ([1, 2, 3], 3), ([1, 2, 3, 4], 3), ([1, 9], 1)])
def test_texts_share_their_start_whatever_holds_them(kind: type, other: list[int], shared: int) -> None:
    assert common_prefix([1, 2, 3], kind(other)) == common_prefix(kind(other), [1, 2, 3]) == shared
