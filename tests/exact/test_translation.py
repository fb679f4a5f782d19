"""A draft with other tokens keeps the target's distribution: every rule, shape and filter, by enumeration."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from localspec.engine.context import Context, Vocabulary
from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.loop import Engine
from localspec.engine.protocols import Drafter, History, Plan, RandomSource, TreePolicy, Verifier
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Intersection
from localspec.methods.draft_model import DraftModel
from localspec.methods.plain import Plain
from localspec.settings.request import Sampling
from localspec.testing.contract import Scripted, TableBackend, random_table
from localspec.trees.eagle2 import Eagle2
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.spectr import SpecTrVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import OPEN, PROMPT, Setup, Table, answers, assert_exact, first_tokens, passes, target_answers
from tests.exact.test_enumeration import FILTERS
from tests.lexicons import lexicon

END = 3
TARGET = lexicon([b"a", b"b", b"ab", b""], specials={b"<end>": END}, ends=(END,))
DRAFT = lexicon([b"b", b"<eos>", b"ba", b"a", b"c"], specials={b"<eos>": 1, b"<s>": 5}, ends=(1,), bos=5)
IID, WOR, FIXED = Draw.IID, Draw.WITHOUT_REPLACEMENT, Draw.FIXED


def drafter(
    policy: TreePolicy,
    sampling: Sampling,
    seed: int,
    kind: type[DraftModel] = DraftModel,
    *,
    writes_text: bool = False,
) -> Drafter:
    """Return a draft model of the other vocabulary; it says nothing of the target's "ab", unless it writes text."""
    backend = TableBackend(random_table(6, seed + 500), 6)
    translation = Intersection(TARGET, DRAFT)
    return kind(backend, Sampler(sampling), policy, lambda: False, translation=translation, writes_text=writes_text)


def translated(setup: Setup, kind: type[DraftModel] = DraftModel, *, writes_text: bool = False) -> Setup:
    def made(_target: Table) -> Drafter:
        return drafter(setup.policy, setup.sampling, setup.seed, kind, writes_text=writes_text)

    return replace(setup, n_vocab=4, drafter=made, eog=frozenset([END]))


RULES: list[tuple[Verifier, TreePolicy, int, int, Draw]] = [
    (TokenVerifier(), Chain(), 2, 2, IID),
    (BlockVerifier(), Chain(), 2, 2, IID),
    (BlockVerifier(), Chain(), 3, 3, FIXED),
    (TreeVerifier(), Static((2, 1)), 4, 2, WOR),
    (TraversalVerifier(), Static((2, 1)), 4, 2, IID),
    (TraversalVerifier(), Eagle2(4), 4, 2, FIXED),
    (SpecTrVerifier(), Static((2,)), 2, 1, IID),
    (MatchVerifier(), Static((2, 1)), 4, 2, FIXED),
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule[0].name}-{rule[3]}-{rule[4].value}")
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_one_pass(rule: tuple[Verifier, TreePolicy, int, int, Draw], filters: str, temperature: float) -> None:
    verifier, policy, nodes, depth, draw = rule
    sampling = replace(FILTERS[filters], temperature=temperature)
    setup = translated(Setup(verifier, policy, nodes, depth, draw, sampling=sampling, max_tokens=3, seed=3))
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.parametrize("verifier", [TokenVerifier(), BlockVerifier(), MatchVerifier()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
@pytest.mark.parametrize("seed", range(4))
def test_text(verifier: Verifier, temperature: float, seed: int) -> None:
    """A draft of the tokens that its text has for the target."""
    sampling = replace(OPEN, temperature=temperature)
    setup = Setup(verifier, Chain(), 2, 2, FIXED, sampling=sampling, max_tokens=3, seed=seed)
    setup = translated(setup, writes_text=True)
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", RULES[:4], ids=lambda rule: rule[0].name)
@pytest.mark.parametrize("seed", range(3))
def test_whole_generations(rule: tuple[Verifier, TreePolicy, int, int, Draw], seed: int) -> None:
    """Passes follow one another: the draft reads the text that was committed, in its own tokens."""
    verifier, policy, nodes, depth, draw = rule
    sampling = replace(FILTERS["penalties"], top_k=2)
    setup = translated(Setup(verifier, policy, nodes, depth, draw, sampling=sampling, max_tokens=4, seed=seed))
    assert_exact(answers(setup), target_answers(setup))


class Restricted(DraftModel):
    """It tells the draft's own probabilities of the tokens that both have, and draws from them as if they were all."""

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        draft = super().propose(history, plan, rng)
        told = (dist and Distribution(dist.ids, 0.7 * dist.probs) for dist in draft.dists)
        return replace(draft, dists=tuple(told))


@pytest.mark.parametrize("verifier", [TokenVerifier(), BlockVerifier()])
def test_probabilities_that_are_not_renormalised_are_caught(verifier: Verifier) -> None:
    setup = translated(Setup(verifier, seed=1, max_tokens=3), Restricted)
    with pytest.raises(AssertionError):
        assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.5])
@pytest.mark.parametrize("policy", [Chain(), Static((2, 2))], ids=["chain", "tree"])
def test_the_text_of_a_seed_is_that_of_plain_decoding(policy: TreePolicy, temperature: float) -> None:
    """Coupled noise is told apart by the target's tokens."""
    sampling = replace(OPEN, temperature=temperature)

    def text(plan: Plan, seed: int) -> Sequence[int]:
        engine = Engine.local(
            TableBackend(random_table(4, seed), 4),
            {"d": drafter(policy, sampling, seed), "plain": Plain()},
            CoupledVerifier(),
            Scripted([plan]),
            Sampler(sampling),
            SeededRandom(seed),
            lambda: 0.0,
            lambda: False,
        )
        vocabulary = Vocabulary(lambda token: False, lambda token: b"x")
        context = Context(list(PROMPT), vocabulary, n_ctx=64, max_tokens=40)
        accepted.append(sum(step.n_accepted for step in engine.generate(context)))
        return context.tokens

    accepted: list[int] = []
    for seed in range(20):
        assert text(Plan("d", 6, 2, Draw.COUPLED), seed) == text(Plan("plain"), seed)
    assert sum(accepted) > 20
