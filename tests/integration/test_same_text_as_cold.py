"""An answer after a state was put back is that of an engine that knew nothing, for each kind of model, each way back.

Under --reproducible texts are compared. Bits of rows without it are compared in `test_prompt_states.py`. With
LOCALSPEC_REAL, a folder of real models, these are asked, too.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from localspec.engine.events import Committed, Event, Finished, Prefilled
from localspec.models.store import bundled_head
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.worker.engines import engines_in_memory, stop_engine
from localspec.worker.keep_policy import KeepAlive
from localspec.worker.shared import SharedWorker
from tests.integration import pair
from tests.integration.gguf_models import SLIDING, TINY, never, random_gguf
from tests.integration.stateful_models import stateful_gguf
from tests.integration.test_translation import shuffled
from tests.server.serving import serving

REAL = Path(os.environ.get("LOCALSPEC_REAL", "/nonexistent"))
CHUNK = 512  # tokens: a whole one is taken from a state
TEXT = "The old woman sat by the fire and told the three brothers of the king who lived in the forest. " * 30
OTHER = "Never did the king and his queen go into the dark wood, where nobody had seen the youngest again. " * 30
SAMPLING = Sampling(temperature=0.8, seed=11)
_FOLDER = TemporaryDirectory(prefix="localspec-foreign-")


@dataclass(frozen=True)
class Kind:
    """A target, a draft, and the method that drafts."""

    target: Callable[[], Path]
    draft: Callable[[], Path] | None
    method: str

    @property
    def settings(self) -> LoadSettings:
        draft = None if self.draft is None else str(self.draft())
        return LoadSettings(str(self.target()), draft, ctx=4096, threads=1, reproducible=True)

    def request(self, prompt: str) -> Request:
        return Request(prompt=prompt, max_tokens=40, sampling=SAMPLING, speculation=Speculation(method=self.method))


def head(kind: str) -> Path:
    found = bundled_head("storyteller", kind)
    assert found is not None
    return Path(found)


@cache
def foreign() -> Path:
    return shuffled(pair.DRAFT, Path(_FOLDER.name) / "foreign.gguf")


KINDS = {
    "draft model": Kind(lambda: pair.TARGET, lambda: pair.DRAFT, "draft-model"),
    "eagle3": Kind(lambda: pair.TARGET, lambda: head("eagle3"), "eagle3"),
    "medusa": Kind(lambda: pair.TARGET, lambda: head("medusa"), "medusa"),
    "foreign draft": Kind(lambda: pair.TARGET, foreign, "draft-model"),
    "window": Kind(lambda: random_gguf(SLIDING), lambda: random_gguf(TINY), "draft-model"),
    "qwen35, own block": Kind(lambda: stateful_gguf("qwen35"), lambda: stateful_gguf("qwen35"), "mtp"),
    "granitehybrid": Kind(lambda: stateful_gguf("granitehybrid"), lambda: pair.DRAFT, "draft-model"),
    "mamba2": Kind(lambda: stateful_gguf("mamba2"), lambda: pair.DRAFT, "draft-model"),
}
NAMES = {
    "Qwen": ("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    "Gemma": ("gemma-3-270m-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
}


@dataclass(frozen=True)
class Told:
    """An answer's text, and how many tokens of its prompt were not read again."""

    text: str
    cached: int


def told_by(events: Sequence[Event]) -> Told:
    text = "".join(event.text for event in events if isinstance(event, Committed))
    (tail,) = (event.tail for event in events if isinstance(event, Finished))
    (cached,) = (event.cache_n for event in events if isinstance(event, Prefilled))
    return Told(text + tail, cached)


@cache
def cold(kind: Kind, prompt: str) -> str:
    with closing(pair.load_pair(replace(kind.settings, cache_disk="0", cache_ram="0"))[0]) as loaded:
        return told_by(list(loaded.answer(replace(kind.request(prompt), cold=True)))).text


def from_disk(kind: Kind) -> Told:
    for _ in range(2):
        with closing(pair.load_pair(kind.settings)[0]) as loaded:
            told = told_by(list(loaded.answer(replace(kind.request(TEXT), keeps=True))))
            loaded.idle(never)
    return told


def after_eviction(kind: Kind) -> Told:
    """Ask, ask something else, and ask again."""
    with closing(pair.load_pair(replace(kind.settings, cache_disk="0"))[0]) as loaded:
        for prompt in (TEXT, OTHER, TEXT):
            told = told_by(list(loaded.answer(kind.request(prompt))))
            assert told.text == cold(kind, prompt)
    return told


def from_a_warm_engine(kind: Kind) -> Told:
    pids = set()
    for prompt in (TEXT, OTHER, TEXT):
        with SharedWorker(keep_alive=KeepAlive(60.0)) as worker:
            list(worker.load(kind.settings))
            told = told_by(list(worker.generate(kind.request(prompt))))
            pids.add(worker.pid)
    assert len(pids) == 1
    return told


def through_the_server(kind: Kind) -> Told:
    settings = kind.settings
    words = ("-d", str(settings.draft), "--ctx", "4096", "-t", "1", "--reproducible", "--method", kind.method)
    with serving(*words, pair=settings.target) as server:
        for prompt in (TEXT, OTHER, TEXT):
            body = {"prompt": prompt, "n_predict": 40, "temperature": SAMPLING.temperature, "seed": SAMPLING.seed}
            told = server.post("/completion", **body)
    return Told(told["content"], told["tokens_cached"])


WAYS = {"disk": from_disk, "eviction": after_eviction, "warm": from_a_warm_engine, "server": through_the_server}
SLOW = ("warm", "server")  # they start processes


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test a folder of its own, in which any saving is worth a file, and leave nothing of it running."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr("localspec.session.prompt_states.WORTH", 0.0)
    monkeypatch.setattr("localspec.session.prompt_states.QUICKER", 0.0)
    with ExitStack() as stack:
        stack.callback(lambda: [stop_engine(facts) for facts in engines_in_memory()])
        yield


@pytest.mark.thinned(2)
@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * (way in SLOW)) for way in WAYS])
@pytest.mark.parametrize("name", KINDS)
def test_the_text_is_that_of_a_cold_engine(name: str, way: str) -> None:
    kind = KINDS[name]
    told = WAYS[way](kind)
    assert told.cached >= CHUNK
    assert told.text == cold(kind, TEXT)


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="LOCALSPEC_REAL names no folder of real models")
@pytest.mark.parametrize("way", ["disk", "eviction"])
@pytest.mark.parametrize("name", NAMES)
def test_real_models(name: str, way: str) -> None:
    target, draft = (REAL / file for file in NAMES[name])
    kind = Kind(lambda: target, lambda: draft, "draft-model")
    told = WAYS[way](kind)
    assert told.cached >= CHUNK
    assert told.text == cold(kind, TEXT)
