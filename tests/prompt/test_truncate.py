"""Which turns are left out of a request: as few as give the answer room, the oldest first, in steps."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from localspec.prompt.prompt import Tokenised
from localspec.prompt.truncate import STEPS, shortened
from localspec.settings.request import Message, Request

N_CTX = 200
SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=30)  # tokens of the messages


def said(sizes: Sequence[int], *, max_tokens: int | None = None, system: int = 0) -> Request:
    """Return a conversation of messages with so many tokens, the last of them a question."""
    odd = sizes[: len(sizes) - (len(sizes) + 1) % 2]
    talk = [Message("assistant" if n % 2 else "user", f"{n} " * size) for n, size in enumerate(odd)]
    head = [Message("system", "s " * system)] if system else []
    return Request(messages=(*head, *talk), max_tokens=max_tokens, shorten=True)


def words(request: Request) -> Tokenised:
    """Return a token a word: the number of its message, -1 for the system's."""
    tokens = [word for message in request.messages for word in message.content.split()]
    return Tokenised([-1 if token == "s" else int(token) for token in tokens])


@given(SIZES, st.none() | st.integers(1, 100), st.integers(0, 20))
def test_the_answer_has_room_and_no_more_is_left_out_than_that_takes(
    sizes: list[int], max_tokens: int | None, system: int
) -> None:
    request = said(sizes, max_tokens=max_tokens, system=system)
    whole, sent = words(request).tokens, shortened(request, N_CTX, words)
    step = N_CTX // STEPS
    room = min(max_tokens or step, step)
    n_head, question = whole.count(-1), whole[-1]
    rest = sent.tokens[n_head:]
    assert sent.tokens[:n_head] == [-1] * n_head
    assert rest == whole[len(whole) - len(rest) :], "the oldest are left out"
    assert rest[0] % 2 == 0, "with their answers"
    assert bool(sent.warnings) == (len(sent.tokens) < len(whole))
    if len(whole) + room <= N_CTX:
        assert sent.tokens == whole
    else:
        assert len(sent.tokens) + room <= N_CTX or rest[0] == question
        more = [token for token in whole if token >= rest[0] - 2 or token == -1]
        assert rest[0] == 0 or len(more) > N_CTX - room - step


def test_what_is_cut_stays_while_a_conversation_grows_by_a_step() -> None:
    """So the caches hold what is sent again."""
    begins = [shortened(said([10] * n), N_CTX, words).tokens[0] for n in range(1, 101, 2)]
    assert begins == sorted(begins)
    assert begins[-1] > 50
    assert len(set(begins)) <= 1 + 10 * 100 // (N_CTX // STEPS)


def test_who_does_not_ask_for_it_is_sent_everything() -> None:
    request = Request(messages=said([60] * 11).messages)
    assert len(shortened(request, N_CTX, words).tokens) == 660
