"""A draft under construction, and the four ways a child can be drawn. Shared by every expansion policy."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.draft import Draft, Draw
from localspec.law import Law
from localspec.protocols import Chooser, Growth, Path, Plan


class Seedling:
    """Nodes so far with their `paths`; node 0 is the pending token. `position` is that of the root's children."""

    def __init__(self, pending: int, position: int, plan: Plan, chooser: Chooser) -> None:
        self._tokens = [pending]
        self._parents = [-1]
        self.paths: list[Path] = [()]
        self._laws: list[Law | None] = [None]
        self._chances = [1.0]
        self._position = position
        self._plan = plan
        self._chooser = chooser

    def sprout(self, parent: int, law: Law, width: int) -> list[int]:
        """Draw up to `width` children of `parent` from `law`; return their nodes.

        Whether to draw is decided before each draw, from what is known by then: that keeps residual verification
        exact (ALG 3.7).
        """
        path = self.paths[parent]
        depth = len(path)
        children = draw(law, self._plan.draw, width, self._position + depth, self._chooser)
        grown: list[int] = []
        while len(grown) < width and len(self._tokens) <= self._plan.max_nodes:
            if not self._plan.go_on(Growth(law, len(self._tokens) - 1, depth, self._chances[parent])):
                break
            child = next(children, None)
            if child is None:
                break
            token, drawn_from = child
            grown.append(len(self._tokens))
            self._tokens.append(token)
            self._parents.append(parent)
            self.paths.append((*path, token))
            self._laws.append(drawn_from)
            self._chances.append(law.prob(token))
        return grown

    def draft(self) -> Draft:
        """Return what has grown."""
        return Draft.of(self._tokens, self._parents, self._laws, self._plan.draw)


def draw(law: Law, how: Draw, n: int, position: int, chooser: Chooser) -> Iterator[tuple[int, Law | None]]:
    """Yield up to `n` tokens for one node, each with the law it was drawn from (None for point masses)."""
    match how:
        case Draw.IID:
            for _ in range(n):
                yield chooser.categorical(law), law
        case Draw.WITHOUT_REPLACEMENT:
            rest: Law | None = law
            while rest is not None:
                token = chooser.categorical(rest)
                yield token, rest
                rest = rest.without(token)
        case Draw.COUPLED:
            yield from ((token, None) for token in chooser.race(position, law, n))
        case Draw.FIXED:
            for at in (-law.probs).argsort(kind="stable")[:n]:
                yield int(law.ids[at]), None
