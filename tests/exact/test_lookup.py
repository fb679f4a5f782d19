"""Drafts read off the text keep the target's distribution: the real proposers through the shipped loop, by enumeration.

The models repeat themselves, so that drafts occur and are accepted in whole, in part and not at all, which is asserted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from localspec.engine.draft import Draw, Step
from localspec.engine.protocols import Drafter, DraftState, History, Plan, RandomSource, Rows, Verifier
from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext
from localspec.settings.declaration import Value
from localspec.settings.request import Sampling
from localspec.speculation import registered
from localspec.testing.contract import random_table
from localspec.trees.static import Chain
from localspec.verify.block import BlockVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact import harness, wrong
from tests.exact.harness import OPEN, Setup, Table, answers, assert_exact, target_answers, total_variation

RULES: dict[str, Verifier] = {
    "block": BlockVerifier(),
    "token": TokenVerifier(),
    "tree": TreeVerifier(),
    "match": MatchVerifier(),
    "traversal": TraversalVerifier(),
}
METHOD_OPTIONS: dict[str, tuple[str, dict[str, Value]]] = {
    "copy": ("copy", {}),
    "suffix": ("suffix", {"factor": 2.0, "min_prob": 0.05}),
    "suffix-chain": ("suffix", {"factor": 2.0, "min_prob": 0.05, "branch": False}),
    "prompt-lookup": ("prompt-lookup", {}),
}
CHAINS = [method for method in METHOD_OPTIONS if method != "suffix"]
PAIRS = [(method, rule) for method in METHOD_OPTIONS for rule in RULES if method in CHAINS or RULES[rule].trees]
SAMPLINGS: dict[str, Sampling] = {
    "penalties": replace(OPEN, repeat_penalty=1.25, presence_penalty=0.5, frequency_penalty=0.25, penalty_last_n=4),
    "all": Sampling(1.0, 3, 0.95, 0.02, 0.95, 1.25, 0.25, 0.25, -1, logit_bias=((1, 0.5),)),
}
PROMPTS: dict[int, tuple[int, ...]] = {3: (0, 1, 2, 0, 1, 0, 1), 4: (0, 1, 2, 0, 1, 3, 0, 1)}  # 0 1 went on in two ways


def repetitive(n_vocab: int, seed: int) -> Table:
    """Return a model that prefers what the prompt does after a 0 or 1, and is otherwise random."""
    noise = random_table(n_vocab, seed, scale=0.8)

    def table(tokens: tuple[int, ...]) -> np.ndarray:
        row = noise(tokens)
        row[(tokens[-1] + 1) % n_vocab] += 2.0
        return row

    return table


@dataclass
class Tally:
    """What the passes of all branches did: whether something, everything or nothing of a draft was accepted."""

    seen: set[str] = field(default_factory=set)
    branching: int = 0

    def watch(self, drafter: Drafter) -> Drafter:
        """Return `drafter` with its passes counted."""
        return Watched(drafter, self)

    def count(self, step: Step) -> None:
        """Count one pass."""
        drafted, accepted = step.draft.depth, step.n_accepted
        if drafted:
            self.seen.add("none" if accepted == 0 else "all" if accepted == drafted else "some")
        self.branching += not step.draft.is_chain


class Watched:
    """A drafter whose passes are counted."""

    def __init__(self, inner: Drafter, tally: Tally) -> None:
        self._inner = inner
        self._tally = tally

    def begin(self, history: History) -> None:
        self._inner.begin(history)

    def propose(self, history: History, plan: Plan, rng: RandomSource):
        return self._inner.propose(history, plan, rng)

    def observe(self, step: Step, rows: Rows) -> None:
        self._tally.count(step)
        self._inner.observe(step, rows)


def maker(method: str, n_vocab: int, tally: Tally) -> Callable[[Table], Drafter]:
    """Return how a fresh drafter is made for each branch, as a session makes it."""
    name, options = METHOD_OPTIONS[method]
    parts = DrafterContext(None, Sampler(OPEN), Chain(), lambda: False, n_vocab, options)
    return lambda target: tally.watch(registered("method")[name].build(parts))


def setup_of(method: str, rule: str, n_vocab: int, tally: Tally, **settings: Any) -> Setup:
    """Return a generation of four tokens after a prompt that repeats itself."""
    setup = Setup(
        RULES[rule], nodes=4, depth=3, draw=Draw.FIXED, n_vocab=n_vocab, target=repetitive(n_vocab, 3), max_tokens=4
    )
    return replace(setup, drafter=maker(method, n_vocab, tally), **settings)


@pytest.fixture(params=PROMPTS, ids=lambda n: f"V={n}")
def n_vocab(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the vocabulary's size; the harness then begins with the prompt made for it."""
    monkeypatch.setattr(harness, "PROMPT", PROMPTS[request.param])
    size: int = request.param
    return size


@pytest.mark.slow
@pytest.mark.thinned(4)
@pytest.mark.parametrize(("method", "rule"), PAIRS)
@pytest.mark.parametrize("filters", SAMPLINGS)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_whole_generations_have_the_target_dist(
    method: str, rule: str, filters: str, temperature: float, n_vocab: int
) -> None:
    """Every method under every rule that can judge it, with filters and penalties that see the drafted tokens."""
    tally = Tally()
    sampling = replace(SAMPLINGS[filters], temperature=temperature)
    setup = setup_of(method, rule, n_vocab, tally, sampling=sampling)
    assert_exact(answers(setup), target_answers(setup))
    assert tally.seen == {"none", "some", "all"}
    assert (tally.branching > 0) == (method == "suffix")


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("method", "rule"), PAIRS)
@pytest.mark.parametrize("filters", SAMPLINGS)
def test_temperature_zero_is_the_argmax_text(method: str, rule: str, filters: str, n_vocab: int) -> None:
    """One text, with probability one, and drafts of it are accepted."""
    tally = Tally()
    sampling = replace(SAMPLINGS[filters], temperature=0.0)
    setup = setup_of(method, rule, n_vocab, tally, sampling=sampling, max_tokens=12)
    truth = target_answers(setup)
    assert len(truth) == 1
    assert_exact(answers(setup), truth)
    assert tally.seen & {"some", "all"}


@pytest.mark.slow
@pytest.mark.thinned(3)
@pytest.mark.parametrize("method", METHOD_OPTIONS)
@pytest.mark.parametrize("nodes", range(1, 7))
def test_any_size_of_draft(method: str, nodes: int, n_vocab: int) -> None:
    """Budgets from one node on, with the clamp at the end, on several models."""
    for seed in range(3):
        setup = setup_of(method, "tree", n_vocab, Tally(), nodes=nodes, depth=nodes, target=repetitive(n_vocab, seed))
        assert_exact(answers(setup), target_answers(setup))


@pytest.mark.parametrize("method", METHOD_OPTIONS)
@pytest.mark.parametrize("rule", ["tree", "match"])
def test_length_rules_may_look_at_counts(method: str, rule: str, n_vocab: int) -> None:
    """A rule that ends a draft by what followed the context so far: still the target's distribution."""
    asked: list[DraftState] = []

    def go_on(state: DraftState) -> bool:
        asked.append(state)
        return state.dist.top * state.chance > 0.6

    setup = setup_of(method, rule, n_vocab, Tally(), go_on=go_on)
    assert_exact(answers(setup), target_answers(setup))
    if method not in ("copy", "prompt-lookup"):  # they copy one place
        assert {state.dist.top > 0.6 for state in asked} == {True, False}


@pytest.mark.parametrize("method", CHAINS)
def test_drawing_again_after_a_mismatch_is_flagged(method: str, n_vocab: int) -> None:
    """The rule that published look-up decoders use draws twice where the draft fails: far from the target's
    distribution.
    """
    setup = replace(setup_of(method, "match", n_vocab, Tally(), max_tokens=3), verifier=wrong.Resampling())
    bias = total_variation(answers(setup), target_answers(setup))
    print(f"{method}: total variation {bias:.4f}")
    assert bias > 0.05
