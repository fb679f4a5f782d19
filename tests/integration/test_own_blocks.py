"""A target's own block for further tokens, on hybrids with experts: qwen35moe rolls back, qwen3next has snapshots."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.backends.head_backend import HeadBackend
from localspec.engine.events import Committed
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.integration import pair
from tests.integration.qwen_experts import write

FEW = tuple((token, 50.0) for token in range(300, 306))  # of so few tokens some guesses are right


@pytest.fixture(scope="module", params=["qwen35moe", "qwen3next"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedPair]:
    file = str(write(Path(tmp_path_factory.mktemp("own")) / f"{request.param}.gguf", request.param))
    loaded, _ = pair.load_pair(LoadSettings(file, file, ctx=512, threads=1, kv_type="f32"))
    with closing(loaded):
        yield loaded


def answer(session: LoadedPair, sampling: Sampling, method: str, k: int | None = None) -> tuple[str, list[Committed]]:
    speculation = Speculation(method=method, k=k)
    request = Request(prompt="Once upon a time", max_tokens=60, sampling=sampling, speculation=speculation)
    passes = [event for event in session.answer(request) if isinstance(event, Committed)]
    session.target.backend.check()
    return "".join(one.text for one in passes), passes


@pytest.mark.parametrize("sampling", [pair.GREEDY, Sampling(temperature=0.8, seed=5)], ids=["greedy", "seeded"])
def test_the_own_block_writes_the_text_of_plain_decoding(session: LoadedPair, sampling: Sampling) -> None:
    assert session.draft is not None
    assert isinstance(session.draft.backend, HeadBackend)
    assert session.target.backend.capabilities.replays is (session.target.info.architecture == "qwen3next")
    sampling = replace(sampling, logit_bias=FEW)
    plain, _ = answer(session, sampling, "plain")
    for k in (1, 2, 4):
        text, passes = answer(session, sampling, "mtp", k)
        assert text == plain, k
        drafted, accepted = sum(one.k for one in passes), sum(one.n_accepted for one in passes)
        assert drafted > accepted > 0, "some guesses are right, some are not"
