"""A draft under construction, and the four ways a child can be drawn. Shared by every expansion policy."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.draft import Draft, Draw
from localspec.law import TINY, Law
from localspec.protocols import Chooser, Growth, Path, Plan
from localspec.trees.argument import MAX_LEAVES


class Seedling:
    """Nodes so far with their `paths`; node 0 is the pending token. `position` is that of the root's children."""

    def __init__(self, pending: int, position: int, plan: Plan, chooser: Chooser) -> None:
        self._tokens = [pending]
        self._parents = [-1]
        self.paths: list[Path] = [()]
        self._laws: list[Law | None] = [None]
        self._chances = [1.0]
        self._shares = [1.0]
        self.n_leaves = 1  # sequences that the tree needs
        self._position = position
        self._plan = plan
        self._chooser = chooser

    @property
    def is_full(self) -> bool:
        """Whether the plan allows no further node."""
        return len(self._tokens) > self._plan.max_nodes

    def sprout(self, parent: int, law: Law, width: int) -> list[int]:
        """Draw up to `width` children of `parent` from `law`; return their nodes."""
        return list(self.offspring(parent, law, width))

    def offspring(self, parent: int, law: Law, width: int) -> Iterator[int]:
        """Yield up to `width` new children of `parent`, each drawn from `law` at the moment it is asked for.

        Whether to draw is decided before each draw, from what is known by then: that keeps residual verification
        exact (ALG 3.7). The same holds for the limits: they count nodes and leaves, and do not look at tokens.
        """
        path = self.paths[parent]
        depth = len(path)
        children = draw(law, self._plan.draw, width, self._position + depth, self._chooser)
        rest = 1.0  # of the belief, after the children so far
        for at in range(width):
            if self.is_full or (at > 0 and self.n_leaves == MAX_LEAVES):
                return
            if not self._plan.go_on(Growth(law, len(self._tokens) - 1, depth, self._chances[parent])):
                return
            child = next(children, None)
            if child is None:
                return
            self.n_leaves += at > 0
            token, drawn_from = child
            belief = law.belief.prob(token)
            share = min(1.0, belief / rest) if rest > TINY else 1.0
            if self._plan.draw is not Draw.IID:  # with replacement, a draw takes nothing away
                rest -= belief
            yield self._add(parent, token, drawn_from, belief, share)

    def _add(self, parent: int, token: int, drawn_from: Law | None, belief: float, share: float) -> int:
        self._tokens.append(token)
        self._parents.append(parent)
        self.paths.append((*self.paths[parent], token))
        self._laws.append(drawn_from)
        self._chances.append(belief)
        self._shares.append(share)
        return len(self._tokens) - 1

    def chance(self, node: int) -> float:
        """Return the drafter's belief in the token of `node`."""
        return self._chances[node]

    def share(self, node: int) -> float:
        """Return what `node` had of the law that its elder siblings left."""
        return self._shares[node]

    def draft(self) -> Draft:
        """Return what has grown."""
        return Draft.of(self._tokens, self._parents, self._laws, self._plan.draw, self._shares)


def draw(law: Law, how: Draw, n: int, position: int, chooser: Chooser) -> Iterator[tuple[int, Law | None]]:
    """Yield up to `n` tokens for one node, each with the law it was drawn from (None for point masses)."""
    match how:
        case Draw.IID:
            for _ in range(n):
                yield chooser.categorical(law), law
        case Draw.WITHOUT_REPLACEMENT:
            rest: Law | None = law
            for _ in range(n):
                if rest is None:
                    return
                token = chooser.categorical(rest)
                yield token, rest
                rest = rest.without(token)
        case Draw.COUPLED:
            yield from ((token, None) for token in chooser.race(position, law, n))
        case Draw.FIXED:
            for at in (-law.probs).argsort(kind="stable")[:n]:
                yield int(law.ids[at]), None
