"""Calls held to a form: the law is the target's, restricted inside calls alone. Every rule is enumerated over it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from localspec.engine.constraint import Matched
from localspec.engine.distribution import Ids
from localspec.engine.text import Marks
from localspec.prompt import held_calls
from localspec.prompt.held_calls import HeldCalls
from tests.exact.harness import OPEN, PROMPT, Setup, answers, assert_exact, target_answers, total_variation
from tests.exact.test_constraint import END, FORMS, Form, Steps, V

PIECES = {
    "the mark is a token": [b"a", b"b", b"<m>", b"c", b""],
    "the mark is two tokens, the second with more behind it": [b"a", b"<", b"m>a", b"c", b""],
}
CALL = {(): (0, 3), (0,): (1, 3), (0, 1): (3,), (3,): (END,), (0, 3): (END,), (0, 1, 3): (END,)}  # what may follow


class Call(Steps):
    """A matcher of calls."""

    @staticmethod
    def language(answer: Sequence[int]) -> tuple[int, ...]:
        return CALL.get(tuple(answer), ())


class Reference:
    """The constraint as its definition says, with all tokens in place of any."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def allowed(self, text: Sequence[int]) -> Ids:
        said, call = b"", None
        for token in text[len(PROMPT) :]:
            if call is not None:
                if token not in CALL[call]:
                    return np.empty(0, np.int32)
                call = (*call, token)
                if CALL[call] == (END,):
                    call, said = None, b""
                continue
            said += self.pieces[token]
            if b"<m>" in said:
                rest = said.partition(b"<m>")[2]
                call = tuple(self.pieces.index(rest[i : i + 1]) for i in range(len(rest)))
        return np.arange(V, dtype=np.int32) if call is None else np.array(CALL[call], np.int32)


def held(pieces: list[bytes], marks: Marks | None = None) -> HeldCalls:
    return HeldCalls(
        len(PROMPT), "<m>", pieces.__getitem__, lambda text: [pieces.index(c.encode()) for c in text],
        lambda: Matched(Call(), lambda token: token == END), marks,
    )  # fmt: skip


def setup_of(form: Form, name: str, seed: int) -> Setup:
    sampling = replace(OPEN, top_k=2)
    setup = Setup(form.rule, form.policy, form.nodes, form.depth, form.draw, sampling=sampling, max_tokens=4, seed=seed)
    return replace(setup, n_vocab=V, eog=frozenset({END}), constraint=held(PIECES[name]))


def truth(setup: Setup, name: str) -> dict[tuple[int, ...], float]:
    return target_answers(replace(setup, constraint=Reference(PIECES[name])))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_whole_answers(form: Form, name: str) -> None:
    """From free text into a call, out of it, and into the next."""
    setup = setup_of(form, name, seed=3 if "two" in name else 2)
    assert_exact(answers(setup), truth(setup, name))


def test_a_mark_that_is_passed_over_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(PIECES))
    monkeypatch.setattr(held_calls.HeldCalls, "_follow", lambda self, place: held_calls.FREE)
    setup = setup_of(FORMS[0], name, seed=2)
    assert total_variation(answers(setup), truth(setup, name)) > 0.01


@pytest.mark.parametrize("text", [(), (0, 2), (2, 3, 2), (2, 0, 1, 3), (2, 1), (2, 0, 0, 3), (0, 1, 1, 2, 3)])
def test_the_way_to_a_text_does_not_matter(text: tuple[int, ...]) -> None:
    """Whatever was asked before: shorter, longer and other texts."""
    constraint, reference = held(PIECES["the mark is a token"]), Reference(PIECES["the mark is a token"])
    for other in ((), text[:1], (*text, 2, 0), (2, 0, 1), text, text):
        given = [*PROMPT, *other]
        allowed = constraint.allowed(given)
        expected = np.arange(V) if allowed is held_calls.FREE else allowed
        assert expected.tolist() == reference.allowed(given).tolist()


@pytest.mark.parametrize(
    ("marks", "text", "is_free"),
    [
        (Marks("a", "c"), (0, 2), True),
        (Marks("a", "c"), (0, 2, 3, 2), False),
        (Marks("a", "c"), (1, 0, 2), False),
        (Marks("a", "c", is_open=True), (2,), True),
        (Marks("a", "c", is_open=True), (2, 3, 2), False),
        (None, (0, 2), False),
    ],
)
def test_no_call_begins_in_a_thought(marks: Marks | None, text: tuple[int, ...], is_free: bool) -> None:
    allowed = held(PIECES["the mark is a token"], marks).allowed([*PROMPT, *text])
    assert (allowed is held_calls.FREE) is is_free
