"""Lookahead keeps the target's distribution: window, pool and n-grams are guesses, whatever the rule that judges them.

Whole generations, every branch of chance replayed: the window's predictions and the pool depend on the passes before,
so a wrong row or a stale draft would show in the distribution of the later tokens.
"""

from dataclasses import replace
from typing import Any

import pytest

from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, History, Plan, RandomSource, Verifier
from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext
from localspec.methods.lookahead import Lookahead
from localspec.trees.static import Chain
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import (
    FILTERS,
    OPEN,
    Setup,
    answers,
    assert_exact,
    assert_texts_are_plain,
    one_hot_table,
    target_answers,
    total_variation,
    watched,
)

RULES: dict[str, Verifier] = {"match": MatchVerifier(), "tree": TreeVerifier(), "traversal": TraversalVerifier()}
SHAPES = ((2, 3, 2), (3, 2, 2), (1, 3, 1), (2, 4, 3))


def lookahead(w: int, n: int, g: int, kind: type[Lookahead] = Lookahead) -> Lookahead:
    options = {"W": w, "N": n, "G": g, "prompt": True}
    return kind(DrafterContext(None, Sampler(OPEN), Chain(), lambda: False, 3, options))


def setup_of(rule: str, shape: tuple[int, int, int], kind: type[Lookahead] = Lookahead, **settings: Any) -> Setup:
    bound = Lookahead.shape(1, dict(zip("WNG", shape, strict=True)))
    setup = Setup(
        RULES[rule],
        nodes=bound.nodes,
        depth=bound.depth,
        draw=Draw.FIXED,
        drafter=lambda table: lookahead(*shape, kind),
    )
    return replace(setup, **settings)


@pytest.mark.slow
@pytest.mark.thinned(6)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("filters", FILTERS)
def test_whole_generations(rule: str, shape: tuple[int, int, int], temperature: float, filters: str) -> None:
    """Five tokens: three passes at least, of which the later ones verify what the first ones guessed."""
    sampling = replace(FILTERS[filters], temperature=temperature)
    setup = setup_of(rule, shape, sampling=sampling, seed=3, max_tokens=5)
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_a_vocabulary_of_four(rule: str, seed: int) -> None:
    """Other targets, one of whose tokens ends the text and so never enters the window."""
    setup = setup_of(rule, (2, 3, 2), n_vocab=4, seed=seed, max_tokens=4, eog=frozenset({3}))
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_temperature_zero_is_the_argmax(rule: str, shape: tuple[int, int, int]) -> None:
    """One text, that of the target, at any length."""
    for seed in range(5):
        setup = setup_of(rule, shape, sampling=replace(OPEN, temperature=0.0), seed=seed, max_tokens=20)
        dist = answers(setup)
        assert len(dist) == 1
        assert_exact(dist, target_answers(setup))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("filters", FILTERS)
def test_coupled_noise_keeps_the_text(shape: tuple[int, int, int], filters: str) -> None:
    """With the noise of a seed the text is that of plain decoding with this seed."""
    setup = setup_of("match", shape, verifier=CoupledVerifier(), n_vocab=4, sampling=FILTERS[filters], max_tokens=30)
    assert_texts_are_plain(setup)


def test_the_ngrams_are_used() -> None:
    """The answers of this file meet drafts that are kept whole, in part and not at all, and passes without any."""
    kind = watched(Lookahead)
    answers(setup_of("match", (2, 3, 2), kind, seed=3, max_tokens=5))
    assert {kept for _, kept in kind.seen} == {0, 1, 2}
    assert {drafted for drafted, _ in kind.seen} >= {0, 1, 2, 4}


def test_a_target_that_repeats_is_guessed() -> None:
    """A loop of three tokens: after the first passes every n-gram is kept whole."""
    kind = watched(Lookahead)
    loop = one_hot_table(3, lambda text: (text[-1] + 1) % 3)
    setup = setup_of("match", (2, 3, 2), kind, target=loop, max_tokens=30)
    assert_exact(answers(setup), target_answers(setup))
    assert max(kept for _, kept in kind.seen) == 2


class Careless(Lookahead):
    """Lets the window's cells be accepted."""

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        draft = super().propose(history, plan, rng)
        self._draft = replace(draft, scratch=draft.scratch & False)
        return self._draft


def test_a_window_that_could_be_accepted_is_caught() -> None:
    """Scouts are not decoration: without them the verifier asks for rows that nobody wanted."""
    with pytest.raises(KeyError):
        answers(setup_of("match", (2, 3, 2), Careless, max_tokens=4))


class GreedyNgrams:
    """Keeps the n-grams that agree with the argmax, though the text is sampled: the greedy rule at a temperature."""

    accepts = frozenset(Draw)
    trees = True
    is_lossless = False

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        node = 0
        while True:
            dist = dists[node]
            best = int(dist.ids[dist.probs.argmax()])
            child = next((child for child in draft.children[node] if draft.tokens[child] == best), None)
            if child is None:
                return draft.verdict(node, rng.categorical(dist))
            node = child


def test_greedy_verification_of_sampled_text_is_caught() -> None:
    """The control: the very same drafts under a rule that is right at temperature 0 only."""
    right = setup_of("match", (2, 3, 2), seed=3, max_tokens=5)
    wrong = replace(right, verifier=GreedyNgrams())
    bias = total_variation(answers(wrong), target_answers(wrong))
    print(f"total variation {bias:.4f}")
    assert bias > 0.1
    assert_exact(answers(right), target_answers(right))
