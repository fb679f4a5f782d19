"""Cold answers on the real pair: nothing of an earlier one helps, and a prompt is cut to what was asked."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.events import Inspected
from localspec.errors import UsageError
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.jobs import DistributionQuestion, ForkQuestion
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.ui.stats import Stats
from tests.integration import pair

REQUEST = Request(prompt="Once upon a time there was a king who had", max_tokens=24, sampling=Sampling(temperature=0.0))
# With a seed the places of plain passes go by counts, so two answers have the same.
SEEDED = replace(REQUEST, sampling=Sampling(temperature=0.0, seed=1))


@pytest.fixture(scope="module")
def session() -> Iterator[LoadedPair]:
    made, _ = pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT), ctx=512, threads=1))
    yield made
    made.close()


def answer(session: LoadedPair, request: Request) -> Stats:
    stats = Stats()
    for event in session.answer(request):
        stats.observe(event)
    return stats


def test_a_cold_answer_reads_its_whole_prompt(session: LoadedPair) -> None:
    answer(session, REQUEST)
    warm, cold = answer(session, REQUEST), answer(session, replace(REQUEST, cold=True))
    assert warm.prefilled is not None
    assert cold.prefilled is not None
    assert warm.prefilled.cache_n == warm.prefilled.prompt_n - 1
    assert cold.prefilled.cache_n == 0
    assert warm.text == cold.text


@pytest.mark.parametrize("n", [1, 5, 1000])
def test_a_prompt_is_cut_to_its_first_tokens(session: LoadedPair, n: int) -> None:
    whole = answer(session, REQUEST).prefilled
    made = answer(session, replace(REQUEST, prompt_tokens=n)).prefilled
    assert whole is not None
    assert made is not None
    assert made.prompt_n == min(n, whole.prompt_n)


def test_a_prompt_is_not_cut_to_nothing() -> None:
    with pytest.raises(UsageError, match="--prompt-tokens"):
        replace(REQUEST, prompt_tokens=0).check()


@pytest.mark.parametrize(
    "speculation",
    [Speculation(k=3), Speculation(tree="dyspec:8"), Speculation(method="early-exit"), Speculation(method="lookahead")],
    ids=lambda one: f"{one.method}-{one.tree}",
)
def test_questions_leave_the_session_as_they_found_it(session: LoadedPair, speculation: Speculation) -> None:
    """An answer after a question is the answer before it, and the question itself can be asked again."""
    request = replace(REQUEST, speculation=speculation, sampling=Sampling(seed=3), cold=True)
    before = answer(session, request)
    dist = DistributionQuestion(replace(request, sampling=Sampling()), ((), (5, 6, 7)), 40, 1e-6, 1)
    first, second = (_inspected(session, dist) for _ in range(2))
    assert first == second
    assert [trial["n"] for trial in first["trials"]] == [40, 40]
    assert first["trials"][1]["position"] == first["trials"][0]["position"] + 3
    fork = _inspected(session, ForkQuestion(request, (5, 6, 7), (5, 6, 8), seed=3))
    assert fork["fork"]["index"] == 2
    assert answer(session, request).text == before.text


def _inspected(session: LoadedPair, question: ForkQuestion | DistributionQuestion) -> dict[str, Any]:
    last = list(session.inspect(question))[-1]
    assert isinstance(last, Inspected)
    return last.content
