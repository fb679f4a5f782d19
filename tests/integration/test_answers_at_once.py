"""Several answers of one loaded pair at once, on real llama.cpp: what they share, and what each keeps to itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from localspec.backends.lanes import SharedLane
from localspec.backends.passes import Passes
from localspec.engine.events import Committed, EventsThen, Finished, Loaded, Returning, Warned
from localspec.errors import ResourceError
from localspec.session import beside
from localspec.session.loaded_pair import LoadedPair
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.trees.budget import MAX_LEAVES
from tests.integration import pair

SETTINGS = LoadSettings(
    target=str(pair.TARGET), name="storyteller", ctx=1024, threads=1, kv_type="f32", flash_attn="off", cache_disk="0"
)
STORY = "Once upon a time there was a king who had three sons. " * 8
N = 4


def opened(settings: LoadSettings) -> tuple[LoadedPair, Loaded, list[str]]:
    loading: Returning[LoadedPair] = Returning(_load(settings))
    told = list(loading)
    (loaded,) = [event for event in told if isinstance(event, Loaded)]
    return loading.result, loaded, [event.message for event in told if isinstance(event, Warned)]


def _load(settings: LoadSettings) -> EventsThen[LoadedPair]:
    return (yield from load(settings, lambda: False, others=[(lambda: False, lambda event: None)] * (N - 1)))


@pytest.fixture(scope="module")
def first() -> Iterator[LoadedPair]:
    made, loaded, _ = opened(SETTINGS)
    assert (loaded.parallel, loaded.max_leaves) == (N, MAX_LEAVES)
    yield made
    made.close()


@pytest.fixture(scope="module")
def lanes(first: LoadedPair) -> list[LoadedPair]:
    return [first, *(make() for make in first.beside)]


def asked(text: str, n: int = 6, method: str = "plain") -> Request:
    greedy = Request(prompt=text, max_tokens=n, sampling=Sampling(temperature=0.0), keeps=False)
    return replace(greedy, speculation=Speculation(method=method))


def answers(pairs: Sequence[LoadedPair], requests: Sequence[Request]) -> list[str]:
    return made_for([lambda pair=pair: pair for pair in pairs], requests, pairs[0].passes)  # type: ignore[misc]


def made_for(
    makers: Sequence[Callable[[], LoadedPair]], requests: Sequence[Request], passes: Passes | None
) -> list[str]:
    texts = [""] * len(requests)
    assert passes is not None

    def answer(i: int) -> None:
        for event in makers[i]().answer(requests[i]):
            texts[i] += (
                event.text if isinstance(event, Committed) else event.tail if isinstance(event, Finished) else ""
            )

    for i in range(len(requests)):
        passes.start(lambda i=i: answer(i))  # type: ignore[misc]
    while passes.n_running:
        passes.round()
    return texts


def test_answers_of_one_prompt_read_it_once(lanes: list[LoadedPair]) -> None:
    n_prompt = len(lanes[0].tokenised(asked(STORY)).tokens)
    before = [lane.target.backend.evaluated for lane in lanes]
    texts = answers(lanes, [asked(STORY)] * N)
    spent = [lane.target.backend.evaluated - n for lane, n in zip(lanes, before, strict=True)]
    assert len(set(texts)) == 1
    assert sorted(spent) == [6, 6, 6, n_prompt + 5], "one reads the prompt, the others its last token"


def test_a_tree_beside_others_has_a_context_of_its_own(lanes: list[LoadedPair]) -> None:
    branches = asked(STORY, 12, "lookahead")
    others = [asked(opening, 12) for opening in pair.OPENINGS[:2]]
    alone = [answers(lanes, [asked(STORY, 12)])[0], *(answers(lanes, [each])[0] for each in others)]
    assert answers(lanes, [branches, *others]) == alone
    assert isinstance(lanes[0].target.backend, SharedLane)
    assert [len(lane.branching) for lane in lanes] == [1, 0, 0, 0]
    assert answers(lanes, [branches]) == alone[:1]
    assert len(lanes[0].branching) == 1, "the second one takes the same context"


def test_further_drafts_are_loaded_when_a_further_answer_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "available_memory", lambda: 1 << 40)
    made, loaded, warned = opened(replace(SETTINGS, draft=str(pair.DRAFT)))
    try:
        assert (loaded.parallel, warned) == (N, [])
        assert made.draft is not None
        lanes = made.draft.backend.lanes
        assert len(lanes) == 1
        drafted = asked(STORY, method="draft-model")
        texts = made_for([lambda: made, *made.beside], [drafted] * 3, made.passes)
        assert len(lanes) == 3
        assert texts == answers([made], [asked(STORY)]) * 3
    finally:
        made.close()


@pytest.mark.parametrize(("room", "n"), [(0, 1), (1, 2), (2, 3), (3, 4), (9, 4)])
def test_as_many_answers_as_memory_holds_drafts_for(monkeypatch: pytest.MonkeyPatch, room: int, n: int) -> None:
    whole, _, _ = opened(replace(SETTINGS, draft=str(pair.DRAFT)))
    assert whole.draft is not None
    size = whole.draft.backend.kv_bytes
    whole.close()
    monkeypatch.setattr(beside, "available_memory", lambda: room * size + size // 2)
    made, loaded, warned = opened(replace(SETTINGS, draft=str(pair.DRAFT)))
    made.close()
    told = f"memory holds {n} of {N} answers at once: others wait for their turn"
    assert (loaded.parallel, warned) == (n, [] if n == N else [told])


def test_a_context_has_as_many_lanes_as_it_was_opened_for(first: LoadedPair) -> None:
    lane, passes = first.target.backend, first.passes
    assert isinstance(lane, SharedLane)
    assert passes is not None
    with pytest.raises(ResourceError, match="the context has 4 lanes"):
        SharedLane(passes, lane.shared, first.target.model)
