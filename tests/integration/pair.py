"""The storyteller pair on real llama.cpp, as the integration tests use it, and plain decoding to compare with.

The configuration: F32 cache, flash attention off, one thread, so that a batch's rows differ from
one-by-one rows as little as they can.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.options import LoadOptions
from localspec.control.lengths import Fixed
from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import Draw, Step
from localspec.engine.events import Event, Returning
from localspec.engine.loop import Engine
from localspec.engine.protocols import (
    Cancel,
    Controller,
    DraftBudget,
    Drafter,
    History,
    Plan,
    RandomSource,
    Shape,
    Verifier,
)
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.methods.plain import Plain
from localspec.session.loaded_pair import LoadedPair
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Sampling
from localspec.verify.match import MatchVerifier
from tests.integration.near_ties import assert_same_text

STORYTELLER = Path(str(files("localspec.models"))) / "storyteller"
TARGET = STORYTELLER / "target-q8_0.gguf"
DRAFT = STORYTELLER / "draft-q8_0.gguf"
EXACT = LoadOptions(n_ctx=1024, threads=1, kv_type="f32", flash_attn="off", max_leaves=32)
GREEDY = Sampling(temperature=0.0)
NOTHING = Shape(0, 0, 1)
OPENINGS = (
    "Once upon a time there was a king",
    '"Come in," said the old woman, "and sit by the fire."',
    "The ship had been three days at sea when",
    "Chapter One\n\n",
)


def load_pair(settings: LoadSettings, cancel: Cancel = lambda: False) -> tuple[LoadedPair, list[Event]]:
    """Load to the end; return the pair and the events of loading."""
    run = Returning(load(settings, cancel))
    told = list(run)
    return run.result, told


@contextmanager
def backend(path: Path, options: LoadOptions = EXACT) -> Iterator[LlamaBackend]:
    with Model(path, options) as model:
        opened = LlamaBackend(model, options)
        try:
            yield opened
        finally:
            opened.close()


@dataclass(frozen=True)
class Run:
    """One answer: the tokens after the prompt, the text, and every pass."""

    tokens: list[int]
    text: str
    steps: list[Step]
    finish: str


class Padded:
    """Another controller's plans, whose passes get more rows."""

    def __init__(self, inner: Controller, widths: tuple[int, ...]) -> None:
        self._inner = inner
        self._widths = widths

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        return replace(self._inner.plan(history, budget), widths=self._widths)

    def observe(self, step: Step, seconds: float) -> None:
        self._inner.observe(step, seconds)


def generate(
    target: LlamaBackend,
    drafter: Drafter,
    verifier: Verifier,
    *,
    prompt: str | list[int] = OPENINGS[0],
    shape: Shape = NOTHING,
    draw: Draw = Draw.IID,
    sampling: Sampling = GREEDY,
    rng: RandomSource | None = None,
    max_tokens: int = 120,
    stops: tuple[str, ...] = (),
    eog: frozenset[int] | None = None,
    n_ctx: int | None = None,
    widths: tuple[int, ...] = (),
) -> Run:
    """Run the shipped engine on `target`; `eog` replaces the model's own end tokens, `widths` pads the passes."""
    model = target.model
    tokens = model.tokenize(prompt, add_bos=True) if isinstance(prompt, str) else prompt
    vocabulary = Vocabulary(model.is_eog if eog is None else eog.__contains__, model.piece)
    context = Context(tokens, vocabulary, n_ctx=n_ctx or target.capabilities.n_ctx, max_tokens=max_tokens, stops=stops)
    engine = Engine.local(
        target,
        {"drafter": drafter},
        verifier,
        Padded(Fixed("drafter", shape, draw), widths),
        Sampler(sampling),
        rng or SeededRandom(sampling.seed or 0),
        time.perf_counter,
        lambda: False,
    )
    steps = []
    for step in engine.generate(context):
        steps.append(step)
        assert target.length == len(context.tokens) - 1
    assert context.finish is not None
    text = "".join(step.text for step in steps) + context.tail()
    return Run(context.tokens[len(tokens) :], text, steps, context.finish.value)


PLAIN: dict[str, Run] = {}  # by target and settings


def plain(target: LlamaBackend, verifier: Verifier | None = None, **settings: Any) -> Run:
    """Decode plainly with the same engine, once for the same file, options and settings."""
    rule = verifier or MatchVerifier()
    key = f"{target.model.path} {target.options} {type(rule)} {settings}"
    if key not in PLAIN:
        PLAIN[key] = generate(target, Plain(), rule, **settings)
    return PLAIN[key]


def assert_same(target: LlamaBackend, prompt: str, expected: Run, got: Run, sampling: Sampling) -> None:
    """Assert that two runs came to the same text, near ties apart."""
    rows = max(len(step.draft.tokens) for step in got.steps)
    tokens = target.model.tokenize(prompt, add_bos=True)
    assert_same_text(target, tokens, expected.tokens, got.tokens, sampling, max(rows, 2))
