"""A draft under construction, and the four ways a child can be drawn. Shared by every expansion policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import tee

from localspec.engine.distribution import TINY, Distribution
from localspec.engine.draft import Draft, Draw
from localspec.engine.protocols import DraftState, Path, Plan, RandomSource
from localspec.trees.budget import MAX_LEAVES

OPEN = (Draw.FIXED, Draw.COUPLED)  # ways of drawing whose tokens may be looked at before it is decided to draft them


class TreeBuilder:
    """Nodes so far with their `paths`; node 0 is the pending token. `position` is that of the root's children."""

    def __init__(self, pending: int, position: int, plan: Plan, rng: RandomSource) -> None:
        self._tokens = [pending]
        self._parents = [-1]
        self.paths: list[Path] = [()]
        self._dists: list[Distribution | None] = [None]
        self._chances = [1.0]
        self._shares = [1.0]
        self.n_leaves = 1  # sequences that the tree needs
        self._position = position
        self._plan = plan
        self._rng = rng

    @property
    def is_full(self) -> bool:
        return len(self._tokens) > self._plan.max_nodes

    def add_children(self, parent: int, dist: Distribution, width: int) -> list[int]:
        """Draw up to `width` children of `parent` from `dist`; return their nodes."""
        return list(self.iter_children(parent, dist, width)[0])

    def iter_children(self, parent: int, dist: Distribution, width: int) -> tuple[Iterator[int], Iterator[float]]:
        """Return up to `width` new children of `parent`, each drawn from `dist` at the moment it is asked for.

        Whether to draw is decided before each draw, from what is known by then: that keeps residual verification
        exact. The same holds for the limits: they count nodes and leaves, and do not look at tokens. Tokens
        that are chosen or coupled may be looked at first: their shares come along, those of others do not.
        """
        children = draw(dist, self._plan.draw, width, self._position + len(self.paths[parent]), self._rng)
        if self._plan.draw not in OPEN:
            return self._grown(parent, dist, width, children), iter(())
        children, ahead = tee(children)
        return self._grown(parent, dist, width, children), (child.share for child in ahead)

    def _grown(self, parent: int, dist: Distribution, width: int, children: Iterator[Drawn]) -> Iterator[int]:
        depth = len(self.paths[parent])
        for at in range(width):
            if self.is_full or (at > 0 and self.n_leaves == MAX_LEAVES):
                return
            child = self._next(children, DraftState(dist, len(self._tokens) - 1, depth, self._chances[parent]))
            if child is None:
                return
            self.n_leaves += at > 0
            yield self._add(parent, child)

    def _next(self, children: Iterator[Drawn], state: DraftState) -> Drawn | None:
        if self._plan.draw in OPEN:
            child = next(children, None)
            return child if child and self._plan.go_on(replace(state, share=child.share)) else None
        return next(children, None) if self._plan.go_on(state) else None

    def attach(self, parent: int, child: Drawn) -> None:
        """Add one more child to a node that has some."""
        self.n_leaves += 1
        self._add(parent, child)

    def _add(self, parent: int, child: Drawn) -> int:
        self._tokens.append(child.token)
        self._parents.append(parent)
        self.paths.append((*self.paths[parent], child.token))
        self._dists.append(child.dist)
        self._chances.append(child.belief)
        self._shares.append(child.share)
        return len(self._tokens) - 1

    def share(self, node: int) -> float:
        """Return what `node` had of the distribution that its elder siblings left."""
        return self._shares[node]

    def draft(self) -> Draft:
        return Draft.of(self._tokens, self._parents, self._dists, self._plan.draw, self._shares)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token with the `dist` it was drawn from (None: a point mass), the drafter's belief in it, and its share.

    The share is what the drafter takes for the chance of the token, its elder siblings being wrong: of its belief, what
    they left of that; of a race, how clearly the token leads those behind it.
    """

    token: int
    dist: Distribution | None
    belief: float
    share: float


def draw(dist: Distribution, how: Draw, n: int, position: int, rng: RandomSource) -> Iterator[Drawn]:
    """Yield up to `n` tokens for one node."""
    if how is Draw.COUPLED and dist.ids.size > 1:
        for token, share in rng.gumbel_top_k_margins(position, dist, n):
            yield Drawn(token, None, dist.belief.prob(token), share)
        return
    rest = 1.0  # of the belief, after the tokens so far
    for token, drawn_from in _tokens(dist, how, n, rng):
        belief = dist.belief.prob(token)
        yield Drawn(token, drawn_from, belief, min(1.0, belief / rest) if rest > TINY else 1.0)
        if how is not Draw.IID:  # with replacement, a draw takes nothing away
            rest -= belief


def _tokens(dist: Distribution, how: Draw, n: int, rng: RandomSource) -> Iterator[tuple[int, Distribution | None]]:
    match how:
        case Draw.IID:
            for _ in range(n):
                yield rng.categorical(dist), dist
        case Draw.WITHOUT_REPLACEMENT:
            rest: Distribution | None = dist
            for _ in range(n):
                if rest is None:
                    return
                token = rng.categorical(rest)
                yield token, rest
                rest = rest.without(token)
        case Draw.COUPLED | Draw.FIXED:  # coupled: a single token, which wins every race
            for at in (-dist.probs).argsort(kind="stable")[:n]:
                yield int(dist.ids[at]), None
