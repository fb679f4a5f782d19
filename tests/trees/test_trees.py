"""Expansion policies by themselves: what they promise of shape and cost, on random distributions, and their own
optimality.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DraftState, Path, Plan, TreePolicy
from localspec.engine.randomness import SeededRandom
from localspec.errors import UsageError
from localspec.settings.request import Speculation
from localspec.speculation import registered
from localspec.speculation.resolve import build_tree, resolve_axes
from localspec.trees.budget import MAX_LEAVES
from localspec.trees.dyspec import DySpec
from localspec.trees.eagle2 import CandidateTree, Eagle2
from localspec.trees.sequoia import Sequoia, Tree, best_tree, n_leaves
from localspec.trees.specinfer import SpecInfer
from localspec.trees.spectr import SpecTr
from localspec.trees.static import Chain, Static

WOR, FIXED, COUPLED = Draw.WITHOUT_REPLACEMENT, Draw.FIXED, Draw.COUPLED


class RandomDistributions:
    """A drafter's distributions as a function of the path; counts the cells and sequences of its context."""

    def __init__(self, seed: int, n_vocab: int = 40, sharpness: float = 2.0, n_cells: int = 1000) -> None:
        self._n_cells = n_cells
        self.n_vocab = n_vocab
        self._seed = seed
        self._sharpness = sharpness
        self.known: set[Path] = {()}
        self.n_decodes = 0

    def dist(self, path: Path) -> Distribution:
        assert path in self.known, "a law is asked for after its path was evaluated"
        return self.at(path)

    def at(self, path: Path) -> Distribution:
        rng = np.random.default_rng([self._seed, *path])
        weights = np.exp(self._sharpness * rng.normal(size=self.n_vocab))
        weights[rng.random(self.n_vocab) < 0.3] = 0.0
        weights[rng.integers(self.n_vocab)] += 0.1
        return Distribution.of(np.arange(self.n_vocab, dtype=np.int32), weights)

    def expand(self, paths: Sequence[Path]) -> None:
        assert all(path[:-1] in self.known for path in paths), "one token longer than an evaluated path"
        self.n_decodes += bool(set(paths) - self.known)
        self.known.update(paths)

    @property
    def is_free(self) -> bool:
        return False

    @property
    def rows_left(self) -> int:
        return self._n_cells - len(self.known) + 1

    @property
    def n_leaves(self) -> int:
        inner = {path[:-1] for path in self.known if path}
        return len(self.known - inner)


POLICIES: dict[str, TreePolicy] = {
    "chain": Chain(),
    "static": Static((4, 2, 2)),
    "specinfer": SpecInfer((1, 1, 3, 1, 1)),
    "spectr": SpecTr(drafts=8),
    "sequoia": Sequoia(),
    "sequoia wide": Sequoia(depth=3, accept="0.2/0.2/0.2/0.2/0.2"),
    "dyspec": DySpec(),
    "dyspec of the paper": DySpec(calibrated=False),
    "eagle2": Eagle2(),
    "eagle2 wide": Eagle2(top=32),
}


def grow(policy: TreePolicy, source: RandomDistributions, plan: Plan, seed: int = 1) -> Draft:
    return policy.grow(3, 50, source, plan, SeededRandom(seed))


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    k=st.integers(1, 128),
    cut=st.integers(0, 60),
    spare=st.sampled_from([0, 1, 1000]),
    draw=st.sampled_from(Draw),
    seed=st.integers(0, 10**6),
    n_vocab=st.sampled_from([1, 2, 5, 60]),
    sharpness=st.sampled_from([0.01, 1.0, 4.0]),
)
def test_no_tree_exceeds_its_shape(
    name: str, k: int, cut: int, spare: int, draw: Draw, seed: int, n_vocab: int, sharpness: float
) -> None:
    """Nodes, levels and leaves of the draft, cells and sequences of the draft's context, whatever the distributions
    say.
    """
    policy = POLICIES[name]
    shape = policy.shape(k)
    assert shape.leaves <= MAX_LEAVES
    plan = Plan("it", max(1, shape.nodes - cut), max(1, shape.depth - cut // 4), draw)
    source = RandomDistributions(seed, n_vocab, sharpness, n_cells=plan.max_nodes + spare)
    draft = grow(policy, source, plan, seed)
    assert len(draft) <= plan.max_nodes <= shape.nodes
    assert len(draft) > 0
    assert draft.depth <= plan.max_depth <= shape.depth
    assert draft.n_leaves <= shape.leaves
    assert source.rows_left >= 0
    assert source.n_leaves <= MAX_LEAVES
    for node in range(1, len(draft.tokens)):
        token, dist = int(draft.tokens[node]), source.at(tuple(draft.path(int(draft.parents[node]))))
        assert dist.prob(token) > 0.0
        assert draft.draws[node] is not Draw.IID or draft.dists[node] is not None
        assert draft.dist(node).prob(token) > 0.0
        if draft.draws[node] is not Draw.IID:
            siblings = draft.children[int(draft.parents[node])]
            assert len({int(draft.tokens[at]) for at in siblings}) == len(siblings)


@pytest.mark.parametrize("name", POLICIES)
def test_draws_are_the_plans_where_they_may_be(name: str) -> None:
    """A draw that is right for the policy is the draft's; the choosers answer residual plans with point masses."""
    policy = POLICIES[name]
    for draw in Draw:
        draft = grow(policy, RandomDistributions(1), Plan("it", 8, 3, draw))
        if draw in policy.draws:
            assert set(draft.draws[1:]) == {draw}
        elif name.startswith("eagle2"):
            assert set(draft.draws[1:]) == {FIXED}
            assert set(draft.dists) == {None}


@pytest.mark.parametrize("name", POLICIES)
def test_a_rule_that_refuses_at_once_leaves_the_root(name: str) -> None:
    """`go_on` is asked before anything is drawn."""
    for draw in Draw:
        assert len(grow(POLICIES[name], RandomDistributions(1), Plan("it", 8, 3, draw, go_on=lambda state: False))) == 0


@pytest.mark.parametrize("name", POLICIES)
def test_a_rule_sees_what_is_there(name: str) -> None:
    """The distribution of the node, its depth and chance, and a number of nodes below the plan's."""
    source = RandomDistributions(4)
    seen: list[DraftState] = []

    def go_on(state: DraftState) -> bool:
        seen.append(state)
        return True

    plan = Plan("it", 12, 4, WOR, go_on=go_on)
    grow(POLICIES[name], source, plan)
    dists = {tuple(source.at(path).probs.tolist()): path for path in source.known}
    for state in seen:
        path = dists[tuple(state.dist.probs.tolist())]
        assert state.depth == len(path) < 4
        assert state.chance == (source.at(path[:-1]).prob(path[-1]) if path else 1.0)
        assert 0 <= state.n_nodes <= 12


@pytest.mark.parametrize("draw", Draw)
def test_a_rule_sees_the_token_only_where_that_biases_nothing(draw: Draw) -> None:
    """Chosen and coupled tokens before they are taken, with the share that the draft then tells; drawn ones never."""
    seen: list[float | None] = []

    def go_on(state: DraftState) -> bool:
        seen.append(state.share)
        return state.share is None or state.share > 0.1

    draft = grow(Static((1,) * 6), RandomDistributions(1), Plan("it", 6, 6, draw, go_on=go_on))
    if draw in (FIXED, Draw.COUPLED):
        assert [share for share in seen if share is not None and share > 0.1] == list(draft.shares[1:])
    else:
        assert seen == [None] * 6


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"dyspec", "dyspec of the paper"}))
def test_a_level_is_one_decode(name: str) -> None:
    """The drafter evaluates a level at once; only the heap goes node by node."""
    for draw in Draw:
        source = RandomDistributions(2)
        draft = grow(POLICIES[name], source, Plan("it", 24, 6, draw))
        assert source.n_decodes <= max(draft.depth, 1) + name.startswith("eagle2")


# Sequoia


def all_trees(nodes: int, depth: int, width: int) -> Iterator[Tree]:
    """Yield every tree of `nodes` below the top, as nested tuples of subtrees."""
    if nodes == 0:
        yield ()
        return
    if depth == 0:
        return
    for first in range(nodes):
        for eldest in all_trees(first, depth - 1, width):
            for rest in all_trees(nodes - 1 - first, depth, width):
                if len(rest) < width:
                    yield (eldest, *rest)


def worth(nested: Tree, accept: Sequence[float]) -> float:
    """Return the sum over nodes of the product of chances on the way, the top one left out."""
    return sum(chance * (1.0 + worth(below, accept)) for chance, below in zip(accept, nested, strict=False))


def nested(tree: Tree, node: int = 0) -> Tree:
    return tuple(nested(tree, child) for child in tree[node])


@pytest.mark.parametrize(
    "accept", [(0.7, 0.1, 0.05), (0.4, 0.3, 0.2), (0.2, 0.5, 0.3), (0.9,), (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)]
)
@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_the_best_tree_is_that_of_brute_force(accept: tuple[float, ...], depth: int) -> None:
    """Up to seven nodes, also where a younger sibling is likelier than an elder one."""
    for nodes in range(8):
        best = max(
            worth(tree, accept) for n in range(nodes + 1) for tree in all_trees(n, depth, len(accept))
        )  # fmt: skip
        found = best_tree(accept, nodes, depth)
        assert len(found) - 1 <= nodes
        assert worth(nested(found), accept) == pytest.approx(best, abs=1e-12)


def test_many_nodes_with_few_leaves() -> None:
    """Where the best tree has more leaves than sequences, it has fewer nodes."""
    flat = best_tree((0.1,) * 10, 128, 64)
    assert MAX_LEAVES - 8 < n_leaves(flat) <= MAX_LEAVES


# EAGLE-2


def best_subset(values: dict[Path, float], n: int) -> float:
    """Return the greatest sum of values of `n` paths closed under prefixes."""
    best = 0.0
    for chosen in combinations(values, min(n, len(values))):
        kept = set(chosen)
        if all(len(path) == 1 or path[:-1] in kept for path in chosen):
            best = max(best, sum(values[path] for path in chosen))
    return best


def value_of(source: RandomDistributions, path: Path) -> float:
    return math.prod(source.at(path[:at]).prob(path[at]) for at in range(len(path)))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 2.5])
def test_eagle2_is_the_best_subset_of_its_candidates(seed: int, sharpness: float) -> None:
    """Closed under parents, and no other set of as many candidates is worth more."""
    source, top, depth, n = RandomDistributions(seed, 6, sharpness), 2, 3, 5
    values: dict[Path, float] = {}
    frontier: list[Path] = [()]
    for _ in range(depth):
        below = []
        for path in frontier:
            dist = source.at(path)
            tokens = dist.ids[np.argsort(-dist.probs, kind="stable")[:top]]
            below += [(*path, int(token)) for token in tokens]
        values |= {path: value_of(source, path) for path in below}
        frontier = sorted(below, key=lambda path: -values[path])[:top]
    draft = grow(Eagle2(top=top, depth=depth), source, Plan("it", n, depth, FIXED))
    found = sum(values[tuple(draft.path(node))] for node in range(1, len(draft.tokens)))
    assert found == pytest.approx(best_subset(values, n), abs=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 128), st.sampled_from([FIXED, COUPLED]))
@settings(max_examples=30, deadline=None)
def test_values_fall_along_a_path(seed: int, n: int, draw: Draw) -> None:
    """Which is why the best n are closed under parents."""
    pool = CandidateTree(3, 50, RandomDistributions(seed), Plan("it", 128, 4, draw), SeededRandom(seed))
    level = [0]
    for _ in range(3):
        level = pool.grow(level[:6], 6)
    assert all(pool.values[c] <= pool.values[pool.parents[c]] + 1e-12 for c in range(1, len(pool.values)))
    chosen = {0, *pool.best(n)}
    assert all(pool.parents[c] in chosen for c in chosen - {0})


# Spellings


@cache
def shape(spelling: str, k: int = 4) -> tuple[int, int, int]:
    found = build_tree(spelling).shape(k)
    return found.nodes, found.depth, found.leaves


@pytest.mark.parametrize("name", sorted(set(registered("tree")) - {"chain", "static", "specinfer"}))
def test_a_budget_is_its_own_or_k(name: str) -> None:
    """Without a number the budget is the draft length; zero is possible there, and more than the most is cut."""
    assert shape(name, 8)[0] == 8
    assert shape(f"{name}:16", 8)[0] == 16
    assert shape(name, 0)[0] == 0
    assert 64 < shape(name, 10**6)[0] <= 128
    assert shape(f"{name}:1")[1:] == (1, 1)


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("specinfer:1,1,3", (5, 3, 3)),
        ("spectr:32,drafts=4", (32, 8, 4)),
        ("spectr:10,drafts=4", (8, 2, 4)),
        ("spectr:2,drafts=4", (2, 1, 2)),
        ("sequoia:3,depth=2,accept=0.5/0.4", (3, 2, 3)),
        ("sequoia:4,accept=0.9", (4, 4, 4)),
        ("dyspec:32,depth=8", (32, 8, 32)),
        ("dyspec:64,calibrated=off", (64, 12, 32)),
        ("eagle2:24,top=6,depth=5", (24, 5, 24)),
        ("eagle2:top=6", (4, 4, 4)),
    ],
)
def test_spellings(spelling: str, expected: tuple[int, int, int]) -> None:
    assert shape(spelling) == expected


@pytest.mark.parametrize(
    "spelling",
    [
        *("dyspec:0", "dyspec:-3", "dyspec:129", "dyspec:x", "dyspec:1.5", "dyspec:,depth=3", "dyspec:8,9"),
        "dyspec:" + "9" * 5000,
        *("dyspec:depth", "dyspec:8,deep=3", "dyspec:8,depth=0", "dyspec:8,depth=x", "dyspec:8,depth=1e9"),
        *("dyspec:8,calibrated=maybe", "dyspec:8,depth=3,", "dyspec:٣", "specinfer:", "specinfer:2,0"),
        *("spectr:8,drafts=33", "spectr:4,4", "eagle2:8,top=0", "eagle2:8,k=3"),
        *("sequoia:8,accept=", "sequoia:8,accept=x", "sequoia:8,accept=0.9/0.2", "sequoia:8,accept=0/0.5"),
        *("sequoia:8,accept=nan", "sequoia:8,accept=-0.1/0.5", "sequoia:8,widths=3"),
    ],
)
def test_bad_spellings_are_answered_with_a_good_one(spelling: str) -> None:
    """One line that names the tree, and a hint that works as it stands."""
    with pytest.raises(UsageError) as caught:
        shape(spelling)
    name = spelling.partition(":")[0]
    assert f"--tree {name}" in caught.value.message
    option, hint = caught.value.hint.split()
    assert option == "--tree"
    assert hint.partition(":")[0] == name
    assert shape(hint)[0] > 0


@pytest.mark.parametrize("name", sorted(set(registered("tree")) - {"chain"}))
@pytest.mark.parametrize("verify", ["tree", "traversal", "spectr", "match", "coupled"])
def test_every_tree_rule_gets_draws_that_are_right_for_both(name: str, verify: str) -> None:
    """What is drawn is drawn in a way that policy and rule agree on; what is chosen is a point mass."""
    tree = f"{name}:2,1" if name in ("static", "specinfer") else f"{name}:8"
    axes = resolve_axes(Speculation(tree=tree, verify=verify), has_draft=True, is_seeded=False)
    assert axes.draw in axes.policy.draws & registered("verify")[verify].accepts
    assert (axes.draw is COUPLED) == (verify == "coupled")
    if name == "eagle2" or verify == "match":
        assert axes.draw in (FIXED, COUPLED)
    elif verify in ("tree", "traversal"):
        assert axes.draw is (Draw.IID if name == "specinfer" else WOR)
