"""Questions on their way to the worker."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import WorkerDiedError
from localspec.lossless.questions import Subject, answer
from localspec.settings.jobs import DistributionQuestion, ForkQuestion
from localspec.settings.request import Message, Request, Sampling, Speculation
from localspec.worker.client import Worker
from tests.worker.wire import crossed

TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
REQUESTS = st.sampled_from(
    [
        Request(prompt="a", cold=True),
        Request(messages=(Message("user", "b"),), prompt_tokens=5),
        Request(prompt="c", sampling=Sampling(logit_bias=((1, 2.0),)), speculation=Speculation(options=(("a", "b"),))),
    ]
)


@given(REQUESTS, TOKENS, TOKENS, st.integers(0, 2**64 - 1))
def test_a_fork_question_survives_the_pipe(request: Request, a: tuple[int, ...], b: tuple[int, ...], seed: int) -> None:
    question = ForkQuestion(request, a, b, seed)
    assert crossed(question) == question


@given(REQUESTS, st.lists(TOKENS, max_size=3).map(tuple), st.integers(1, 10**6), st.floats(1e-12, 0.5))
def test_a_dist_question_survives_the_pipe(
    request: Request, texts: tuple[tuple[int, ...], ...], draws: int, alpha: float
) -> None:
    question = DistributionQuestion(request, texts, draws, alpha, 7)
    assert crossed(question) == question


def test_nothing_is_asked_of_nobody() -> None:
    with pytest.raises(WorkerDiedError, match="No model is loaded"):
        Worker().start(ForkQuestion(Request(prompt="a"), (1,), (2,), 0))


def test_texts_that_a_model_cannot_read_are_told_apart() -> None:
    """Those with tokens that the draft does not have are counted; the others lack room."""
    models: list[Any] = [SimpleNamespace(capabilities=SimpleNamespace(n_vocab=n, n_ctx=8)) for n in (9, 5)]
    nobody: Any = None
    subject = Subject(models[0], models[1], (1,), nobody, lambda: False)
    question = DistributionQuestion(Request(prompt="a"), ((2,) * 9, (7,), (2, 8)), 100, 1e-4, 7)
    assert answer(question, subject) == {"trials": [], "n_unknown": 2}
