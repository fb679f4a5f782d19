"""EAGLE-2's dynamic tree: expand the most confident nodes, then keep the best of all (Li et al. arXiv 2406.16858).

A node's value is the product of the draft's probabilities on its path. Each level lists the `top` children of the
`top` best nodes of the level above; the draft is the best `nodes` of everything listed.

Candidates are the most probable tokens (or, with coupled noise, the first of the draft's races), never draws: choosing
among draws by what they are would bias residual rejection, while point masses and coupled noise allow it.

Invariant: a child's value is at most its parent's, and the parent comes first among equals, so that the best n
candidates are closed under parents.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DistributionSource, DraftState, Path, Plan, RandomSource
from localspec.settings.declaration import Option
from localspec.trees.budget import MAX_LEAVES, BudgetTree
from localspec.trees.builder import draw


class Eagle2(BudgetTree):
    """The best nodes of a wider tree that follows the draft's confidence, "eagle2:32,top=4,depth=8"."""

    name: ClassVar[str] = "eagle2"
    options: ClassVar[tuple[Option, ...]] = (
        Option("top", 4, "nodes expanded a level, and children of each", 1, MAX_LEAVES),
        Option("depth", 8, "levels at most", 1, 64),
    )
    draws: ClassVar[frozenset[Draw]] = frozenset({Draw.FIXED, Draw.COUPLED})

    def __init__(self, nodes: int | None = None, top: int = 4, depth: int = 8) -> None:
        super().__init__(nodes, depth)
        self._top = top

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft:
        """Expand level by level, one decode of the drafter each, then rerank.

        A node that is not among the best by now never will be, nor will what is below it: it is not expanded.
        """
        pool = CandidateTree(pending, position, source, plan, rng)
        level = [0]
        for _ in range(min(self._depth, plan.max_depth)):
            best = {0, *pool.best(plan.max_nodes)}
            frontier = sorted(best.intersection(level), key=lambda c: (-pool.values[c], c))[: self._top]
            level = pool.grow(frontier, self._top)
            if not level:
                break
        return pool.draft(plan.max_nodes)


@dataclass
class CandidateTree:
    """Candidates below the pending token; 0 stands for the token itself.

    A candidate's value is the estimated chance that it is accepted: before anything was learned, and for a point mass,
    the draft's belief in its path; with coupled noise how clearly each of its tokens leads the draft's race.
    """

    pending: int
    position: int
    source: DistributionSource
    plan: Plan
    rng: RandomSource

    def __post_init__(self) -> None:
        self._how = Draw.COUPLED if self.plan.draw is Draw.COUPLED else Draw.FIXED
        self._acceptance = self.plan.acceptance
        self.paths: list[Path] = [()]
        self.parents = [-1]
        self.values, self._chances, self._shares = [1.0], [1.0], [1.0]
        self._leaves = 0  # sequences of the drafter's context that evaluated candidates take
        self._inner: set[int] = set()  # evaluated candidates with an evaluated child

    def best(self, n: int) -> list[int]:
        """Return the `n` candidates of the highest value, parents before children, with MAX_LEAVES leaves at most."""
        order = sorted(range(1, len(self.paths)), key=lambda c: (-self.values[c], len(self.paths[c]), c))
        chosen, inner, leaves = {0}, set[int](), 1
        for candidate in order:
            if len(chosen) > n:
                break
            parent = self.parents[candidate]
            if parent in chosen and leaves + (parent in inner) <= MAX_LEAVES:
                leaves += parent in inner
                inner.add(parent)
                chosen.add(candidate)
        return sorted(chosen - {0})

    def grow(self, candidates: Iterable[int], n_children: int) -> list[int]:
        """Evaluate `candidates` in one decode, as far as there is room, and return their children, `n_children` each.

        Of those without room, the last are left out.
        """
        left = self.source.rows_left
        opened: list[int] = []
        for candidate in candidates:
            if candidate == 0 or (len(opened) < left and self._open(candidate)):
                opened.append(candidate)
        self.source.expand([self.paths[candidate] for candidate in opened if candidate > 0])
        return [child for candidate in opened for child in self._list(candidate, n_children)]

    def _open(self, candidate: int) -> bool:
        """Take a sequence for `candidate`, or its parent's, if there is one."""
        parent = self.parents[candidate]
        more = parent == 0 or parent in self._inner
        if self._leaves + more > MAX_LEAVES:
            return False
        self._leaves += more
        self._inner.add(parent)
        return True

    def _list(self, parent: int, n_children: int) -> list[int]:
        """Add the children of an evaluated candidate, unless the plan's rule ends the draft there."""
        path = self.paths[parent]
        dist = self.source.dist(path)
        n_nodes = min(len(self.paths) - 1, self.plan.max_nodes)
        if not self.plan.go_on(DraftState(dist, n_nodes, len(path), self._chances[parent])):
            return []
        first, reached = len(self.paths), self.values[parent]
        for rank, child in enumerate(draw(dist, self._how, n_children, self.position + len(path), self.rng)):
            self.paths.append((*path, child.token))
            self.parents.append(parent)
            value = reached * self._acceptance.chance(child.share, rank)
            reached -= value
            self._chances.append(child.belief)
            self._shares.append(child.share)
            self.values.append(value)
        return list(range(first, len(self.paths)))

    def draft(self, n: int) -> Draft:
        chosen = [0, *self.best(n)]
        node = {candidate: at for at, candidate in enumerate(chosen)}
        tokens = [self.pending, *(self.paths[candidate][-1] for candidate in chosen[1:])]
        parents = [-1, *(node[self.parents[candidate]] for candidate in chosen[1:])]
        return Draft.of(tokens, parents, draw=self._how, shares=[self._shares[candidate] for candidate in chosen])
