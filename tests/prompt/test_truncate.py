"""Which turns are left out of a request: a third of the room is left, and a cut holds while what follows fits."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.prompt.prompt import Tokenised
from localspec.prompt.truncate import fitting, reserve, shortened, too_long
from localspec.settings.request import Message, Request

N_CTX, TRAINED = 200, 1000
SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=30)  # tokens of the messages
FILES = st.sets(st.integers(0, 30))  # turns that have one


def said(sizes: Sequence[int], *, max_tokens: int | None = None, system: int = 0, files: Sequence[int] = ()) -> Request:
    """Return a conversation of messages with so many tokens, the last of them a question."""
    odd = sizes[: len(sizes) - (len(sizes) + 1) % 2]
    talk = [
        Message("assistant" if n % 2 else "user", f"{n} " * size, files=(f"{n}.txt",) if n // 2 in files else ())
        for n, size in enumerate(odd)
    ]
    head = [Message("system", "s " * system)] if system else []
    return Request(messages=(*head, *talk), max_tokens=max_tokens, shorten=True)


def words(request: Request) -> Tokenised:
    """Return a token a word: the number of its message, -1 for the system's."""
    tokens = [word for message in request.messages for word in message.content.split()]
    return Tokenised([-1 if token == "s" else int(token) for token in tokens])


def sent(request: Request, n_ctx: int = N_CTX) -> Tokenised:
    return shortened(request, words(request), n_ctx, TRAINED, words)


@given(SIZES, st.none() | st.integers(1, 100), st.integers(0, 20), FILES)
def test_the_answer_has_room_and_most_of_it_is_left_for_what_follows(
    sizes: list[int], max_tokens: int | None, system: int, files: set[int]
) -> None:
    request = said(sizes, max_tokens=max_tokens, system=system, files=sorted(files))
    whole, got = words(request).tokens, sent(request)
    question = whole[-1]
    n_turns = question // 2
    kept = [turn for turn in range(n_turns) if turn not in got.left_out]
    assert got.tokens == [token for token in whole if token < 0 or token == question or token // 2 in kept]
    assert bool(got.warnings) == bool(got.left_out)
    room = N_CTX - reserve(request, N_CTX)
    if len(whole) <= room:
        assert not got.left_out
        return
    chatter = [turn for turn in range(n_turns) if turn not in files]
    attached = [turn for turn in range(n_turns) if turn in files]
    for turns in (chatter, attached):
        gone = [turn for turn in turns if turn in got.left_out]
        assert gone == turns[: len(gone)], "the oldest of a kind go first"
    fixed = len(got.tokens) - sum(got.tokens.count(2 * turn) + got.tokens.count(2 * turn + 1) for turn in chatter)
    assert len(got.tokens) <= max(fixed, fixed + (room - fixed) // 3), "the talk has a third of the room beside files"
    if set(attached) - set(kept):
        first = max(set(attached) - set(kept))
        more = fixed + whole.count(2 * first) + whole.count(2 * first + 1)
        assert more > room, "a file goes only where it has no room alone"


def test_a_cut_holds_while_what_follows_fits() -> None:
    """So the caches hold what is sent again. The place is known from the answer before."""
    cuts: list[tuple[int, ...]] = [()]
    for n in range(1, 201, 2):
        got = sent(replace(said([10] * n), left_out=cuts[-1]))
        assert bool(got.warnings) == (got.left_out != cuts[-1]), "it is told once"
        assert len(got.tokens) <= N_CTX - N_CTX // 4
        cuts.append(got.left_out)
    assert cuts[-1][-1] > 90
    n_cuts = len(set(cuts)) - 1
    assert n_cuts <= 2000 / 90, "each leaves room for many turns"


def test_a_long_chat_reads_little_again() -> None:
    """Over 40 turns in a context of 2 048 tokens. Cuts in steps of a quarter read 21 256 tokens of the same talk."""
    sizes = [size for n in range(40) for size in (20 + 7 * n % 40, 120 + 61 * n % 260)]
    cut: tuple[int, ...] = ()
    cached: list[int] = []
    read = 0
    for turn in range(40):
        got = sent(replace(said(sizes[: 2 * turn + 1]), left_out=cut), 2048)
        same = next((i for i, pair in enumerate(zip(got.tokens, cached, strict=False)) if pair[0] != pair[1]), None)
        read += len(got.tokens) - (min(len(got.tokens), len(cached)) if same is None else same)
        cached = [*got.tokens, *[2 * turn + 1] * sizes[2 * turn + 1]]
        cut = got.left_out
    assert cut
    assert read <= 0.25 * 21_256


def test_more_room_brings_back_what_was_left_out() -> None:
    request = replace(said([10] * 41), left_out=tuple(range(15)))
    assert sent(request, 2000).left_out == ()
    assert sent(request).left_out == tuple(range(15))


def test_the_file_that_is_asked_about_stays() -> None:
    """A file of 3 100 tokens and its questions in a context of 4 096: the talk about it goes, and the file last."""
    sizes = [3150, 80]
    for n in range(1, 6):
        got = sent(said([*sizes, 20], files=[0]), 4096)
        assert got.tokens.count(0) == 3150
        assert 0 not in got.left_out
        assert got.left_out == () or n > 2
        assert len(got.tokens) <= 4096 - 512
        sizes += [20, 300]


def test_what_is_left_out_is_named_with_the_cure() -> None:
    (told,) = sent(said([10] * 41)).warnings
    assert told.startswith("the context of 200 tokens is full: the 18 oldest messages up to “34 34")
    assert told.endswith("and their answers are no longer sent; --ctx 800 sends more")
    (told,) = sent(said([100, 10, 100, 10, 10], files=[0])).warnings
    assert "full: “2 2 2" in told
    (told,) = sent(said([200, 10, 10], files=[0])).warnings
    assert "is full: 0.txt is no longer sent" in told
    request = said([10] * 41)
    (told,) = shortened(request, words(request), N_CTX, N_CTX, words).warnings
    assert told.endswith("no longer sent"), "the model knows no longer text"


@pytest.mark.parametrize("files", [(), (0, 1)])
def test_who_does_not_ask_for_it_is_sent_everything(files: tuple[int, ...]) -> None:
    request = Request(messages=said([60] * 11, files=files).messages)
    assert len(sent(request).tokens) == 660


def test_a_prompt_that_is_too_long_names_a_context_that_holds_it() -> None:
    """The next power of two with room for an answer, up to what the model was made for."""
    for n, hint in ((300, "--ctx 512"), (411, "--ctx 512"), (412, "--ctx 1024"), (923, "--ctx 1024")):
        assert too_long(n, 256, 1024).hint == hint
    assert too_long(924, 256, 1024).hint == "a shorter prompt: this model was made for 1024 tokens"
    assert too_long(924, 256, 1024).message == "the prompt has 924 tokens and the context holds 256"


def test_a_context_grows_until_prompt_and_answer_fit() -> None:
    request = Request(max_tokens=10)
    found = [fitting(request, n, 100, 300) for n in (90, 91, 190, 191, 290, 291, 1000)]
    assert found == [100, 200, 200, 300, 300, 300, 300]
    assert fitting(request, 500, 400, 300) == 400
