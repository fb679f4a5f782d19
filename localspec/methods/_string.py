"""A draft model of another vocabulary writes text, whose tokens in the target's vocabulary are the draft (SLEM).

The draft model writes its likeliest tokens, so the draft is of point masses, as copies are: every rule takes them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Step
from localspec.engine.protocols import Backend, DraftState, Plan, Rows, no_stop_rule
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Retokeniser
from localspec.settings.request import Sampling

WRITTEN = 2  # of the draft model's tokens for one of the target's, at most
GREEDY = Sampler(Sampling(temperature=0.0))  # the request's own settings name tokens of the target


@dataclass(slots=True)
class StringDraft:
    """The draft under way after the tokens `committed` of the target; the draft model has room for `left` tokens."""

    backend: Backend
    retokeniser: Retokeniser
    committed: Sequence[int]
    left: int
    plan: Plan
    tokens: list[int] = field(default_factory=list)  # of the target
    n_asked: int = 0  # of them, the plan was asked for
    ends: list[int] = field(default_factory=list)  # bytes of the text up to the end of each of the draft model's tokens
    chances: list[float] = field(default_factory=list)  # of the text up to there, by the draft model

    def grow(self, rows: Rows) -> Draft:
        """Write until the plan is full or refuses; row 0 of `rows` follows the committed text."""
        most = min(self.plan.max_nodes, self.plan.max_depth)
        text, chance, own = b"", 1.0, 0
        for n in range(min(WRITTEN * most, self.left)):
            if n:
                rows = self.backend.extend([own], [n - 2])
            dist = GREEDY.dist(rows.logits(max(0, n - 1)), with_belief=self.plan.go_on is not no_stop_rule)
            own = int(dist.ids[0])
            chance *= dist.belief.prob(own)
            spelling = self.retokeniser.spelling(own)
            text += spelling or b""
            self.ends.append(len(text))
            self.chances.append(chance)
            found = self.retokeniser.tokens(self.committed, text)
            end = self.retokeniser.end(own)
            if end is not None and sum(map(self.retokeniser.size, found)) == len(text):
                found.append(end)
                self.ends[-1] += self.retokeniser.size(end)
            if not self._take(found[:most], dist, most) or spelling is None or len(found) >= most:
                break
        shares = [1.0, *self._shares()]
        tokens = [self.committed[-1], *self.tokens]
        return Draft.of(tokens, range(-1, len(self.tokens)), shares=shares)

    def evaluated(self, step: Step) -> tuple[int, ...]:
        """Return the nodes of the draft model whose text was accepted; it did not read the last token it wrote."""
        n_kept = max(len(step.kept) - 1 - step.draft.forced, 0)
        n_accepted = bisect_right(self.ends, self._bounds()[n_kept])
        return tuple(range(min(n_accepted, len(self.ends) - 1)))

    def _take(self, found: list[int], dist: Distribution, most: int) -> bool:
        """Take the tokens that the plan wants of those written so far; return whether it wants more."""
        self.tokens = found
        shares, chance = self._shares(), 1.0
        for depth, share in enumerate(shares):
            if depth >= self.n_asked:
                self.n_asked += 1
                if not self.plan.go_on(DraftState(dist, depth, depth, chance, share)):
                    self.tokens = found[:depth]
                    return False
                if depth + 1 < most and not self.plan.look_on(depth + 1, share):
                    self.tokens = found[: depth + 1]
                    return False
            chance *= share
        return True

    def _shares(self) -> list[float]:
        """Return the chance of each token of the target after those before it, by the draft model."""
        chances = [self.chances[bisect_left(self.ends, end)] if end else 1.0 for end in self._bounds()]
        return [after / before for before, after in pairwise(chances)]

    def _bounds(self) -> list[int]:
        """Return the bytes of the text up to each token of the target, and to its end."""
        return [0, *accumulate(map(self.retokeniser.size, self.tokens))]
