"""The start of a message that is being written is read: what follows evaluates the rest, and writes the same text."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.engine.events import Committed, Prefilled
from localspec.engine.protocols import Cancelled
from localspec.session.loaded_pair import LoadedPair
from localspec.session.pair_jobs import read_ahead
from localspec.settings.folders import cache_folder
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation
from tests.integration import pair
from tests.integration.gguf_models import never
from tests.integration.stateful_models import stateful_gguf

LONG = "The old woman sat by the fire and told the three brothers of the king who lived in the forest. " * 26
REQUEST = Request(
    messages=(Message("user", "Who is there?"), Message("assistant", "The king."), Message("user", LONG)),
    max_tokens=16,
    template="chatml",
    keeps=True,
    sampling=Sampling(temperature=0.0),
    speculation=Speculation(method="plain"),
)
WHOLE = replace(REQUEST, messages=(*REQUEST.messages[:2], Message("user", f"{LONG}What did they say?")))
AHEAD = replace(REQUEST, reads_ahead=True)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))


def answered(loaded: LoadedPair, request: Request = WHOLE) -> tuple[str, Prefilled]:
    told = list(loaded.answer(request))
    text = "".join(event.text for event in told if isinstance(event, Committed))
    return text, next(event for event in told if isinstance(event, Prefilled))


@pytest.mark.parametrize(
    ("path", "is_exact", "again"),
    [
        pytest.param(pair.TARGET, False, 40, id="attention"),
        pytest.param(pair.TARGET, True, 512, id="reproducible"),
        pytest.param(stateful_gguf("qwen35"), False, 512, id="qwen35"),
        pytest.param(stateful_gguf("granitehybrid"), False, 512, id="granitehybrid"),
    ],
)
def test_what_follows_evaluates_the_rest(path: Path, is_exact: bool, again: int) -> None:
    settings = LoadSettings(str(path), ctx=2048, reproducible=is_exact)
    with closing(pair.load_pair(settings)[0]) as loaded:
        loaded.states._seconds = 1.0  # a token: so much is worth any file
        (first, _) = read_ahead(AHEAD, loaded)
        assert isinstance(first, Prefilled)
        assert first.prompt_n >= 500
        assert len(list(read_ahead(AHEAD, loaded))) == 1, "it is read once"
        loaded.idle(never)
        assert not cache_folder("states").exists(), "what was not sent is not kept"
        text, prefilled = answered(loaded)
        assert prefilled.prompt_n - prefilled.cache_n <= again
        loaded.forget()
        assert answered(loaded)[0] == text


def test_it_ends_when_something_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    with closing(pair.load_pair(LoadSettings(str(pair.TARGET)), lambda: len(asked) > 3)[0]) as loaded:
        monkeypatch.setattr(loaded.target.backend, "_n_batch", 64)

        def count() -> bool:
            asked.append(1)
            return len(asked) > 3

        with pytest.raises(Cancelled):
            list(read_ahead(AHEAD, replace(loaded, cancel=count)))
        n = loaded.target.backend.length
        asked.clear()
        assert answered(loaded)[1].cache_n >= n - 1


def test_a_text_that_is_changed_before_it_is_sent_leaves_no_trace() -> None:
    other = replace(WHOLE, messages=(*WHOLE.messages[:2], Message("user", "Something else.")))
    with closing(pair.load_pair(LoadSettings(str(pair.TARGET)))[0]) as loaded:
        list(read_ahead(AHEAD, loaded))
        text, _ = answered(loaded, other)
        loaded.idle(never)
        loaded.forget()
        assert answered(loaded, other)[0] == text
