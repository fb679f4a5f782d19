"""Sample and match: the target draws as if there were no draft, which only decides how far its rows reach.

    t ~ p at the node; if a child holds t, move there and draw again; else stop, and t is the token

Every emitted token is an ordinary draw of the target, so the rule is exact for any draft whatever. A child
is met with probability p(y): point masses lose nothing, drawn tokens do.
"""

from collections.abc import Callable
from typing import ClassVar

from localspec.engine.draft import Draft, Draw, Verdict
from localspec.engine.protocols import Distributions, RandomSource


class MatchVerifier:
    """The target's own draws, from the random source's stream."""

    name: ClassVar[str] = "match"
    accepts: ClassVar[frozenset[Draw]] = frozenset(Draw)
    trees: ClassVar[bool] = True
    is_lossless: ClassVar[bool] = True

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        """Follow the target's draws through the tree."""
        return follow(draft, lambda node, depth: rng.categorical(dists[node]))


def follow(draft: Draft, draw: Callable[[int, int], int]) -> Verdict:
    """Walk down the tree along the tokens that `draw(node, depth)` returns; the first without a child ends the run."""
    node, depth = 0, 0
    while True:
        token = draw(node, depth)
        for child in draft.children[node]:
            if draft.tokens[child] == token:
                node, depth = child, depth + 1
                break
        else:
            return draft.verdict(node, token)
