"""Every expansion policy gives the target's distribution under every rule that takes its drafts, by enumeration.

The policies decide as they draw, or choose among candidates; what each may look at is what these tests hold them to.
Wrong forms of the same policies stand beside them and are caught.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from localspec.control.schedule import Probing
from localspec.engine import acceptance
from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DistributionSource, RandomSource, TreePolicy, Verifier
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.settings.request import Sampling
from localspec.trees.dyspec import DySpec
from localspec.trees.eagle2 import Eagle2
from localspec.trees.sequoia import Sequoia
from localspec.trees.specinfer import SpecInfer
from localspec.trees.spectr import SpecTr as Drafts
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.spectr import SpecTrVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact import wrong
from tests.exact.harness import (
    EXACT,
    OPEN,
    PENALTIES,
    PROMPT,
    Setup,
    answers,
    assert_exact,
    build,
    first_tokens,
    passes,
    target_answers,
    total_variation,
    worst,
)
from tests.exact.reference import reference_dist

IID, WOR, FIXED, COUPLED = Draw.IID, Draw.WITHOUT_REPLACEMENT, Draw.FIXED, Draw.COUPLED

POLICIES: dict[str, TreePolicy] = {
    "specinfer": SpecInfer((2, 1)),
    "spectr": Drafts(drafts=2),
    "sequoia": Sequoia(accept="0.5/0.3/0.1"),
    "sequoia that learns": Sequoia(),
    "dyspec": DySpec(),
    "dyspec of the paper": DySpec(calibrated=False),
    "eagle2": Eagle2(top=2),
}
CHOSEN = {"eagle2"}  # never drawn, whatever the plan says
RULES: dict[str, Verifier] = {
    "tree": TreeVerifier(),
    "traversal": TraversalVerifier(),
    "match": MatchVerifier(),
    "spectr": SpecTrVerifier(),
}
SAMPLINGS = {
    "top-k, penalties": replace(PENALTIES, top_k=2),
    "all": Sampling(1.0, 3, 0.95, 0.02, 0.95, 1.25, 0.5, 0.25, -1, logit_bias=((1, 0.5),)),
    "penalties": PENALTIES,
}


@dataclass(frozen=True)
class Case:
    """A policy under a rule, with one of the draws that both take."""

    policy: str
    rule: str
    draw: Draw

    def __str__(self) -> str:
        return f"{self.policy} {self.rule} {self.draw.value}"

    def setup(self, nodes: int, depth: int = 3) -> Setup:
        return Setup(RULES[self.rule], POLICIES[self.policy], nodes, depth, self.draw)


def cases(*rules: str) -> list[Case]:
    """Return what may meet: every policy with every draw that is right for it and that the rule judges."""
    found = []
    for name, policy in POLICIES.items():
        for rule in rules or RULES:
            draws = {FIXED} if name in CHOSEN else {IID, WOR, FIXED} & policy.draws & RULES[rule].accepts
            found += [Case(name, rule, draw) for draw in Draw if draw in draws]
    return found


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", cases(), ids=str)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_one_pass_has_the_target_dist(case: Case, temperature: float) -> None:
    """Three nodes in up to three levels, penalties that see each node's own path, a vocabulary of three."""
    setup = replace(case.setup(3), sampling=replace(PENALTIES, temperature=temperature), max_tokens=4, seed=1)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", cases(), ids=str)
@pytest.mark.parametrize("filters", SAMPLINGS)
def test_filters(case: Case, filters: str) -> None:
    """Four nodes and a vocabulary of four, cut down by filters to supports that differ from node to node."""
    nodes = 4 if filters == "top-k, penalties" else 2
    setup = replace(case.setup(nodes), sampling=SAMPLINGS[filters], n_vocab=4, max_tokens=3, seed=3)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


LEARNERS = ("sequoia that learns", "dyspec", "eagle2")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", [case for case in cases() if case.policy in LEARNERS], ids=str)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_what_passes_teach_keeps_the_dist(case: Case, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that follow the acceptance of earlier passes, which here turns their shape around at once."""
    monkeypatch.setattr(acceptance, "PRIOR", 0.01)
    monkeypatch.setattr(acceptance, "FIRST_LOOK", 1)
    setup = replace(
        case.setup(3, 2),
        sampling=replace(PENALTIES, top_k=2, temperature=temperature),
        controller=lambda inner: Probing(inner, acceptance.Acceptance(case.draw), is_known=True),
        max_tokens=4,
        seed=2,
    )
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.parametrize("case", cases(), ids=str)
def test_whole_generations_have_the_target_dist(case: Case) -> None:
    """From the prompt on: passes follow one another, and near the end the trees are cut."""
    setup = replace(case.setup(3, 2), sampling=SAMPLINGS["top-k, penalties"], max_tokens=3, seed=2)
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.parametrize("case", cases(), ids=str)
def test_at_temperature_0_the_text_is_the_argmax(case: Case) -> None:
    """The draft's temperature is 1, so that trees have siblings to be wrong with."""
    setup = replace(case.setup(3), sampling=replace(PENALTIES, temperature=0.0), draft_temperature=1.0, max_tokens=4)
    truth = target_answers(setup)
    assert len(truth) == 1
    assert_exact(first_tokens(setup, passes(setup)), truth)


@pytest.mark.parametrize("case", [case for case in cases("tree", "traversal") if case.draw is WOR], ids=str)
def test_a_rule_that_ends_drafts_by_their_dists(case: Case) -> None:
    """`go_on` may look at the distribution at hand, at the node's own chance, and at how many nodes there are."""
    setup = replace(
        case.setup(4), go_on=lambda state: state.dist.top < 0.9 and state.chance * (4 - state.n_nodes) > 0.3
    )
    setup = replace(setup, sampling=replace(OPEN, top_k=2), max_tokens=4, seed=5)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.thinned(2)
@pytest.mark.slow
@pytest.mark.parametrize("case", cases("tree", "traversal", "spectr"), ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_five_nodes(case: Case, seed: int) -> None:
    """Trees large enough for a heap to go back to an elder sibling after a younger one's children."""
    setup = replace(case.setup(5), sampling=replace(OPEN, top_k=2), n_vocab=4, max_tokens=4, seed=seed)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("nodes", [3, 8])
def test_coupled_text_is_that_of_plain_decoding(name: str, nodes: int) -> None:
    """Over a hundred noise tables: the policy may look at the very noise that the target uses."""
    sampling = replace(PENALTIES, temperature=1.5)
    setup = Setup(CoupledVerifier(), POLICIES[name], nodes, 4, COUPLED, sampling, n_vocab=4, max_tokens=6, seed=21)
    target, draft = setup.tables()
    for seed in range(100):
        engine, context = build(setup, target, draft, SeededRandom(seed))
        for _ in engine.generate(context):
            pass
        text, rng = PROMPT, SeededRandom(seed)
        while len(text) < len(PROMPT) + setup.max_tokens:
            text += (rng.gumbel_top_k(len(text), Sampler(sampling).dist(target(text), text))[0],)
        assert tuple(context.tokens) == text


@pytest.mark.parametrize("draw", [WOR, FIXED])
@pytest.mark.parametrize("seed", range(3))
def test_accepted_tokens_are_the_sum_of_the_values(draw: Draw, seed: int) -> None:
    """DySpec's estimate is exact where draft and target agree and the target draws for itself (arXiv 2410.11744)."""
    policy = DySpec(calibrated=False)
    setup = Setup(
        MatchVerifier(), policy, 4, 3, draw, replace(PENALTIES, top_k=3), distance=0.0, seed=seed, max_tokens=9
    )
    target, _ = setup.tables()
    weights: dict[tuple[int, ...], float] = {}
    accepted: dict[tuple[int, ...], float] = {}
    drafts: dict[tuple[int, ...], Draft] = {}
    for weight, step in passes(setup):
        key = (*step.draft.tokens.tolist(), *step.draft.parents.tolist())
        drafts[key] = step.draft
        weights[key] = weights.get(key, 0.0) + weight
        accepted[key] = accepted.get(key, 0.0) + weight * len(step.verdict.path)
    for key, draft in drafts.items():
        values = [1.0]  # by the recursion of the paper: v r for a child, v (1 - r) for the slot after it
        slots = dict.fromkeys(range(len(draft.tokens)), 1.0)
        for node in range(1, len(draft.tokens)):
            parent = int(draft.parents[node])
            text = (*PROMPT, *draft.path(parent))
            q = reference_dist(target(text), text, setup.sampling)
            elder = sum(q[int(draft.tokens[at])] for at in draft.children[parent] if at < node)
            share = q[int(draft.tokens[node])] / (1.0 - elder)
            values.append(values[parent] * slots[parent] * share)
            slots[parent] *= 1.0 - share
        assert accepted[key] / weights[key] == pytest.approx(sum(values[1:]), abs=EXACT)


def trimmed(draft: Draft, source: DistributionSource, rng: RandomSource) -> Draft:
    """Draw a generous tree, then keep the two nodes of the highest realised value: looks like DySpec, and is not."""
    values = [1.0]
    for node in range(1, len(draft) + 1):
        values.append(values[int(draft.parents[node])] * draft.dist(node).prob(int(draft.tokens[node])))
    kept = sorted(sorted(range(1, len(draft) + 1), key=lambda node: (-values[node], node))[:2])
    nodes = [0, *kept]
    parents = [-1, *(nodes.index(int(draft.parents[node])) for node in kept)]
    dists: list[Distribution | None] = [draft.dists[node] for node in nodes]
    return Draft.of([int(draft.tokens[node]) for node in nodes], parents, dists, WOR)


@pytest.mark.parametrize("rule", [TreeVerifier(), TraversalVerifier()], ids=["tree", "traversal"])
def test_trimming_afterwards_is_caught(rule: Verifier) -> None:
    """The same tree, pruned by what was drawn instead of grown by it, has another distribution."""
    biases = []
    for seed in range(4):
        right = Setup(rule, DySpec(calibrated=False), 4, 2, WOR, seed=seed, max_tokens=3)
        assert_exact(first_tokens(right, passes(right)), target_answers(right))
        setup = replace(right, policy=wrong.Policy(right.policy, trimmed))
        biases.append(total_variation(first_tokens(setup, passes(setup)), target_answers(setup)))
    print(f"trimmed afterwards: total variation {max(biases):.4f}")
    assert max(biases) > 0.05


def test_selection_among_an_adaptive_number_of_drafts_is_caught() -> None:
    """K-SEQ needs the number of candidates before they are drawn; DySpec decides by them, and says so in `draws`."""
    policy = DySpec(calibrated=False)
    assert IID not in policy.draws
    biases = []
    for seed in range(4):
        setup = Setup(SpecTrVerifier(), policy, 3, 2, IID, seed=seed, max_tokens=3)
        biases.append(worst(first_tokens(setup, passes(setup)), target_answers(setup)))
        right = replace(setup, verifier=TreeVerifier())
        assert_exact(first_tokens(right, passes(right)), target_answers(right))
    assert max(biases) > 1e-4


def shapes_of(case: Case) -> Iterator[tuple[int, ...]]:
    setup = replace(case.setup(4), seed=1, max_tokens=9)
    for _, step in passes(setup):
        yield tuple(step.draft.parents.tolist())


@pytest.mark.parametrize("name", ["dyspec", "dyspec of the paper"])
def test_adaptive_trees_do_adapt(name: str) -> None:
    """The enumeration covers trees of different shapes: were they all alike, it would prove nothing of adaptivity."""
    assert len(set(shapes_of(Case(name, "tree", WOR)))) > 1
