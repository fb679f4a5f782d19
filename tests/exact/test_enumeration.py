"""The shipped loop gives the target's distribution: every rule, shape, way of drawing and filter, by enumeration.

Each test replays every branch of chance through Engine, DraftModel, tree policy and verifier and compares with the
product of the target's distributions, computed by the slow reference, to 1e-9. Whole generations include the first
token, the passes' hand-over and the clamp at the end; single passes, continued with the target's distribution, reach
wider shapes.
"""

from dataclasses import dataclass, replace

import pytest

from localspec.engine.draft import Draw
from localspec.engine.protocols import Verifier
from localspec.settings.request import Sampling
from localspec.trees.static import Chain, Static
from localspec.verify.block import BlockVerifier
from localspec.verify.match import MatchVerifier
from localspec.verify.token import TokenVerifier
from localspec.verify.traversal import TraversalVerifier
from localspec.verify.tree import TreeVerifier
from tests.exact.harness import OPEN, Setup, answers, assert_exact, first_tokens, passes, target_answers

IID, WOR, FIXED = Draw.IID, Draw.WITHOUT_REPLACEMENT, Draw.FIXED

CHAIN_RULES: dict[str, Verifier] = {
    "token": TokenVerifier(),
    "block": BlockVerifier(),
    "tree": TreeVerifier(),
    "traversal": TraversalVerifier(),
    "match": MatchVerifier(),
}
TREE_RULES: dict[str, Verifier] = {"tree": TreeVerifier(), "traversal": TraversalVerifier(), "match": MatchVerifier()}

FILTERS: dict[str, Sampling] = {
    "open": OPEN,
    "top-k": replace(OPEN, top_k=2),
    "top-p min-p": replace(OPEN, top_p=0.9, min_p=0.1),
    "typical-p": replace(OPEN, typical_p=0.7),
    "penalties": replace(OPEN, repeat_penalty=1.25, presence_penalty=0.5, frequency_penalty=0.25, penalty_last_n=3),
    "bias": replace(OPEN, logit_bias=((0, 1.5), (2, -1.0))),
    "all": Sampling(1.0, 3, 0.95, 0.02, 0.95, 1.25, 0.5, 0.25, -1, logit_bias=((1, 0.5),)),
}
TEMPERATURES = (0.3, 1.0, 2.0)


@dataclass(frozen=True)
class Form:
    """A chain (`widths` empty) or an expansion vector, drawn one way."""

    name: str
    widths: tuple[int, ...]
    draw: Draw
    depth: int

    def of(self, verifier: Verifier) -> Setup:
        nodes, level = 0, 1
        for width in self.widths:
            level *= width
            nodes += level
        policy = Static(self.widths) if self.widths else Chain()
        return Setup(verifier, policy, nodes or self.depth, self.depth, self.draw)


def chain(depth: int, draw: Draw) -> Form:
    return Form(f"chain{depth}-{draw.value}", (), draw, depth)


def tree(*widths: int, draw: Draw) -> Form:
    return Form(f"tree{'x'.join(map(str, widths))}-{draw.value}", widths, draw, len(widths))


def forms(*found: Form) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("form", found, ids=lambda form: form.name)


# Match judges a draft by its tokens alone, so its FIXED runs are the interesting ones; drawn drafts come below.
SMALL = [
    ("token", chain(2, IID)),
    ("token", chain(2, FIXED)),
    ("block", chain(2, IID)),
    ("block", chain(2, FIXED)),
    ("tree", tree(2, 1, draw=WOR)),
    ("traversal", tree(2, 1, draw=WOR)),
    ("match", tree(2, 1, draw=FIXED)),
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("rule", "form"), SMALL, ids=lambda value: value if isinstance(value, str) else value.name)
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("temperature", [0.0, *TEMPERATURES])
def test_whole_generations_have_the_target_dist(rule: str, form: Form, filters: str, temperature: float) -> None:
    """Four tokens from the prompt on, every filter and temperature; temperature 0 is exactly the argmax text."""
    setup = form.of((CHAIN_RULES | TREE_RULES)[rule])
    setup = replace(setup, sampling=replace(FILTERS[filters], temperature=temperature), max_tokens=3, seed=7)
    truth = target_answers(setup)
    assert len(truth) == 1 or temperature > 0.0
    assert_exact(answers(setup), truth)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", CHAIN_RULES)
@forms(chain(1, IID), chain(2, IID), chain(3, IID), chain(2, WOR), chain(3, FIXED))
@pytest.mark.parametrize("seed", range(3))
def test_whole_generations_on_chains(rule: str, form: Form, seed: int) -> None:
    """Longer answers than a pass, so that passes follow one another, with the clamp at the end."""
    setup = replace(form.of(CHAIN_RULES[rule]), seed=seed, max_tokens=4, sampling=FILTERS["top-k"])
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.thinned(3)
@pytest.mark.slow
@pytest.mark.parametrize("rule", TREE_RULES)
@forms(tree(2, draw=IID), tree(3, draw=WOR), tree(2, 1, draw=IID), tree(1, 2, draw=WOR), tree(2, 2, draw=FIXED))
@pytest.mark.parametrize("seed", range(3))
def test_whole_generations_on_trees(rule: str, form: Form, seed: int) -> None:
    """The same for trees, with penalties that see the drafted tokens of each path."""
    sampling = replace(FILTERS["penalties"], top_k=2)
    setup = replace(form.of(TREE_RULES[rule]), seed=seed, max_tokens=4, sampling=sampling)
    assert_exact(answers(setup), target_answers(setup))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", CHAIN_RULES)
@forms(*(chain(k, draw) for k in range(4) for draw in (IID, FIXED)), chain(4, FIXED), chain(2, WOR))
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_one_pass_on_a_chain(rule: str, form: Form, temperature: float) -> None:
    """K = 0..4, drawn or chosen, with penalties that see the drafted tokens."""
    sampling = replace(FILTERS["penalties"], temperature=temperature)
    setup = replace(form.of(CHAIN_RULES[rule]), sampling=sampling, max_tokens=5, seed=1)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize("seed", range(2))
def test_one_pass_on_a_long_chain(rule: str, seed: int) -> None:
    """Four drawn tokens: the deepest chain whose branches are few enough."""
    setup = replace(chain(4, IID).of(CHAIN_RULES[rule]), max_tokens=5, seed=seed)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", TREE_RULES)
@forms(
    *(tree(width, draw=draw) for width in (2, 3) for draw in (IID, WOR, FIXED)),
    tree(4, draw=WOR),
    tree(2, 1, draw=IID),
    tree(2, 1, draw=WOR),
    tree(1, 3, draw=WOR),
    tree(2, 2, draw=FIXED),
    tree(3, 2, 1, draw=FIXED),
)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_one_pass_on_a_tree(rule: str, form: Form, temperature: float) -> None:
    """One to four children: duplicates among siblings under IID, exhausted supports without replacement."""
    setup = replace(form.of(TREE_RULES[rule]), sampling=replace(OPEN, temperature=temperature), max_tokens=3, seed=2)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.parametrize("rule", TREE_RULES)
@forms(tree(4, draw=IID), tree(2, 2, draw=WOR), tree(2, 2, draw=IID), tree(3, 1, draw=WOR), tree(1, 1, 2, draw=WOR))
def test_one_pass_on_a_wide_tree(rule: str, form: Form) -> None:
    """Trees with thousands of branches, under a filter that leaves the target and the draft different supports."""
    sampling = replace(OPEN, min_p=0.15)
    setup = replace(form.of(TREE_RULES[rule]), sampling=sampling, max_tokens=4, seed=4)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("seed", range(3))
def test_four_tokens_of_vocabulary(rule: str, filters: str, seed: int) -> None:
    """A vocabulary of four, every filter, several random pairs."""
    form = chain(2, IID) if rule in ("token", "block") else tree(3, draw=WOR)
    setup = replace(form.of(CHAIN_RULES[rule]), n_vocab=4, sampling=FILTERS[filters], max_tokens=3, seed=seed)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.thinned(5)
@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize("seed", range(20))
def test_twenty_random_pairs(rule: str, seed: int) -> None:
    """Twenty pairs of models, as different as they come: a rule can look exact on one of them by luck."""
    form = chain(2, IID) if rule in ("token", "block") else tree(2, draw=WOR)
    setup = replace(form.of(CHAIN_RULES[rule]), seed=seed, distance=2.5, max_tokens=3)
    assert_exact(first_tokens(setup, passes(setup)), target_answers(setup))


@pytest.mark.thinned(7)
@pytest.mark.slow
@pytest.mark.parametrize(("rule", "form"), SMALL, ids=lambda value: value if isinstance(value, str) else value.name)
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("seed", range(2))
def test_whole_generations_of_four_tokens(rule: str, form: Form, filters: str, temperature: float, seed: int) -> None:
    """The first test over more pairs of models, one token longer: two passes follow the first token."""
    setup = form.of((CHAIN_RULES | TREE_RULES)[rule])
    setup = replace(setup, sampling=replace(FILTERS[filters], temperature=temperature), max_tokens=4, seed=seed)
    assert_exact(answers(setup), target_answers(setup))
