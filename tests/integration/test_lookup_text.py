"""Drafts read off the text, on the storyteller: they never change it, and leave nothing in the target's cache."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from localspec.backends.lib import api
from localspec.backends.llama_cpp import LlamaBackend
from localspec.engine.draft import Draft, Draw, Step
from localspec.engine.protocols import Drafter, History, Plan, RandomSource, Rows, Shape
from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext
from localspec.settings.declaration import Value
from localspec.settings.request import Sampling
from localspec.speculation import registered
from localspec.trees.static import Chain
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.tree import TreeVerifier
from tests.integration import pair
from tests.integration.pair import GREEDY, OPENINGS

LENGTH = 300
SEEDED = Sampling(temperature=0.8, seed=11)
WARM = Sampling(temperature=0.8)
REFRAIN = "The king said no. The queen said yes. The king said no. The queen said yes. The king said"


@dataclass(frozen=True)
class Form:
    """A method with options and a budget."""

    method: str
    k: int
    options: tuple[tuple[str, Value], ...] = ()

    @property
    def name(self) -> str:
        return "-".join((self.method, str(self.k), *(f"{name}={value}" for name, value in self.options)))

    def drafter(self, target: LlamaBackend) -> Drafter:
        model = target.model
        parts = DrafterContext(
            None, Sampler(GREEDY), Chain(), lambda: False, target.capabilities.n_vocab, dict(self.options), model.is_eog
        )
        drafter: Drafter = registered("method")[self.method].build(parts)
        return drafter

    def shape(self) -> Shape:
        cls = registered("method")[self.method]
        defaults: dict[str, Value] = {option.name: option.default for option in cls.info.options}
        shape: Shape = cls.shape(self.k, defaults | dict(self.options))
        return shape


BUSHY = Form("suffix", 32, (("min_prob", 0.02), ("offset", 2)))
FORMS = (
    Form("copy", 16),
    Form("suffix", 16),
    Form("suffix", 5, (("branch", False),)),
    BUSHY,
    Form("prompt-lookup", 8),
    Form("prompt-lookup", 3, (("min_n", 2), ("n", 4))),
)
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


def assert_same_as_plain(
    target: LlamaBackend, form: Form, sampling: Sampling, rule: CoupledVerifier | MatchVerifier, prompt: str
) -> pair.Run:
    """Generate plainly and with drafts; both texts are the same, and some drafts are accepted."""
    expected = pair.plain(target, rule, prompt=prompt, sampling=sampling, max_tokens=LENGTH, eog=frozenset())
    got = pair.generate(
        target, form.drafter(target), rule, prompt=prompt, shape=form.shape(), draw=Draw.COUPLED, sampling=sampling,
        max_tokens=LENGTH, eog=frozenset(),
    )  # fmt: skip
    pair.assert_same(target, prompt, expected, got, sampling)
    assert sum(step.n_accepted for step in got.steps) > 0
    return got


@pytest.mark.thinned(2)
@every_form
@pytest.mark.parametrize("prompt", [OPENINGS[0], REFRAIN], ids=["opening", "refrain"])
def test_greedy(target: LlamaBackend, form: Form, prompt: str) -> None:
    """At temperature 0 the text is that of plain decoding."""
    assert_same_as_plain(target, form, GREEDY, MatchVerifier(), prompt)


@pytest.mark.thinned(2)
@every_form
@pytest.mark.parametrize("prompt", [OPENINGS[2], REFRAIN], ids=["opening", "refrain"])
def test_coupled_at_temperature(target: LlamaBackend, form: Form, prompt: str) -> None:
    """With a seed it is that of plain decoding with that seed."""
    assert_same_as_plain(target, form, SEEDED, CoupledVerifier(), prompt)


def test_a_loop_is_fast(target: LlamaBackend) -> None:
    """A small model that is decoded greedily ends in loops; there suffix drafts reach four tokens a pass."""
    form, n_tokens, n_passes = Form("suffix", 16), 0, 0
    for prompt in OPENINGS:
        run = pair.generate(
            target, form.drafter(target), MatchVerifier(), prompt=prompt, shape=form.shape(), draw=Draw.FIXED,
            max_tokens=900, eog=frozenset(),
        )  # fmt: skip
        late = [step for step in run.steps if step.position >= 600]
        n_tokens += sum(len(step.tokens) for step in late)
        n_passes += len(late)
    print(f"{n_tokens / n_passes:.2f} tokens a pass")
    assert n_tokens / n_passes >= 4.0


class Watching:
    """A drafter that looks at the target's cache after every pass."""

    def __init__(self, target: LlamaBackend, inner: Drafter) -> None:
        self._target = target
        self._inner = inner
        self.passes = self.branching = 0

    def begin(self, history: History) -> None:
        self._inner.begin(history)

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        draft = self._inner.propose(history, plan, rng)
        self.branching += not draft.is_chain
        return draft

    def observe(self, step: Step, rows: Rows) -> None:
        """Sequence 0 holds every committed token but the last; no other sequence holds anything but a part of those."""
        self._inner.observe(step, rows)
        self.passes += 1
        assert self._target.length == step.position + len(step.tokens) - 1
        assert api.llama_memory_seq_pos_max(self._target._cache.memory, 0) == self._target.length - 1
        for sequence in range(1, self._target.capabilities.max_leaves):
            assert api.llama_memory_seq_pos_max(self._target._cache.memory, sequence) < self._target.length
        self._target.check()


@every_form
@pytest.mark.parametrize("rule", [BlockVerifier(), TreeVerifier()], ids=["block", "tree"])
def test_the_cache_after_every_pass(target: LlamaBackend, form: Form, rule: BlockVerifier | TreeVerifier) -> None:
    """Rejection at temperature 0.8, chains and trees."""
    shape = form.shape()
    if shape.leaves > 1 and not rule.trees:
        rule = TreeVerifier()
    drafter = Watching(target, form.drafter(target))
    run = pair.generate(
        target, drafter, rule, prompt=REFRAIN, shape=shape, sampling=WARM, max_tokens=LENGTH, eog=frozenset()
    )
    assert drafter.passes == len(run.steps) - 1
    assert shape.leaves > 1 or drafter.branching == 0
    assert form is not BUSHY or drafter.branching > 0


def test_the_cache_holds_what_plain_decoding_would(target: LlamaBackend, f32_pair: dict[str, Path]) -> None:
    """After a long run with trees, every further row equals that of a fresh cache to 1e-3."""
    run = pair.generate(
        target, BUSHY.drafter(target), TreeVerifier(), prompt=REFRAIN, shape=BUSHY.shape(), sampling=WARM,
        max_tokens=LENGTH, eog=frozenset(),
    )  # fmt: skip
    text = target.model.tokenize(REFRAIN, add_bos=True) + run.tokens
    with pair.backend(f32_pair["target"]) as fresh:
        fresh.prefill(text[: target.length], lambda: False)
        for token in [*text[target.length :], *range(5, 21)]:
            left, right = (cache.extend([token], [-1]).logits(0).copy() for cache in (target, fresh))
            assert abs(left - right).max() <= 1e-3
            target.keep((0,))
            fresh.keep((0,))


def test_a_regenerated_answer(target: LlamaBackend) -> None:
    """One drafter for several texts, as they go back and on: each text is that of plain decoding."""
    for form in FORMS:
        drafter = form.drafter(target)
        for prompt, seed in ((OPENINGS[0], 1), (OPENINGS[0], 2), (OPENINGS[1], 1), (REFRAIN, 1)):
            sampling = Sampling(temperature=0.6, seed=seed)
            expected = pair.plain(target, CoupledVerifier(), prompt=prompt, sampling=sampling, max_tokens=60)
            got = pair.generate(
                target, drafter, CoupledVerifier(), prompt=prompt, shape=form.shape(), draw=Draw.COUPLED,
                sampling=sampling, max_tokens=60,
            )  # fmt: skip
            pair.assert_same(target, prompt, expected, got, sampling)
