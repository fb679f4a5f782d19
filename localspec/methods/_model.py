"""A model drafts for a larger one (Leviathan et al. arXiv 2211.17192, Chen et al. arXiv 2302.01318). Heads do likewise.

Invariant: between passes the drafter's cache holds a prefix of the committed text, or that text and what was read on
behind it (`_source`). No token is evaluated twice unless the text itself went back. What the drafter missed (the last
draft token after full acceptance, passes it did not draft) is evaluated when it is next asked.

A draft model of another vocabulary writes text, whose tokens in the target's vocabulary are the draft (SLEM).

The draft model writes its likeliest tokens, so the draft is of point masses, as copies are: every rule takes them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Self

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Step
from localspec.engine.protocols import (
    Backend,
    Cancel,
    Cancelled,
    DraftState,
    History,
    Plan,
    RandomSource,
    Rows,
    TreePolicy,
    no_stop_rule,
)
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Intersection, Retokeniser, SameTokens, Translation
from localspec.errors import BadLogitsError, InternalError, LocalspecError
from localspec.methods import DrafterContext
from localspec.methods._source import MarginalSource, ModelSource
from localspec.settings.request import Sampling

WRITTEN = 2  # of the draft model's tokens for one of the target's, at most
GREEDY = Sampler(Sampling(temperature=0.0))  # the request's own settings name tokens of the target


@dataclass(eq=False)
class ModelDrafter:
    """Drafts with a model or a head. The tree policy decides the shape, `sampler` the distribution: any is exact. With
    `writes_text`, a draft model of another vocabulary drafts the tokens of text that it writes (`StringDraft`)."""

    backend: Backend
    sampler: Sampler
    policy: TreePolicy
    cancel: Cancel
    translation: Translation | None = None  # between the target's tokens and the draft's, None where these are the same
    writes_text: bool = False
    _open: ModelSource | StringDraft | None = None
    _cached: int | None = None  # of a text that it has not read up on yet

    def __post_init__(self) -> None:
        n_own = self.backend.capabilities.n_vocab
        self._translation = self.translation or SameTokens(n_own, n_own)

    @classmethod
    def build(cls, parts: DrafterContext) -> Self:
        assert parts.draft is not None, "the axes refuse this method without a draft model"
        translation = parts.translation or SameTokens(parts.n_vocab, parts.draft.capabilities.n_vocab)
        return cls(parts.draft, parts.sampler, parts.policy, parts.cancel, translation, parts.writes_text)

    def begin(self, history: History) -> None:
        self._open = None  # of a pass that was stopped
        self._cached = None if self._translation.respells else self.backend.cached(history.tokens)

    def behind(self, history: History) -> int:
        """Return how many of its own tokens its cache has yet to read; before a pass the pending one is among them."""
        if self._translation.respells:
            text = self._translation.text(history.tokens)
            return len(text) - self.backend.cached(text) if len(text) else 0
        return len(history.tokens) - (self.backend.length if self._cached is None else self._cached)

    def tokens_left(self, history: History) -> int:
        """Return how many tokens it could draft at most: none where its context is full, or it cannot read the text."""
        text = self._translation.text(history.tokens)
        return max(0, self.backend.capabilities.n_ctx - len(text)) if len(text) else 0

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        """Grow a tree below the pending token; the empty draft when the plan or the draft's context has no room."""
        pending = history.tokens[-1]
        if plan.max_nodes <= 0:  # parked decoding must cost what plain decoding costs
            return Draft.root(pending)
        left = self.tokens_left(history)
        depth = min(plan.max_depth, left, self.backend.capabilities.n_guesses)
        plan = replace(plan, max_nodes=min(plan.max_nodes, left), max_depth=depth)
        if plan.max_nodes <= 0 or plan.max_depth <= 0:
            return Draft.root(pending)
        try:
            return self._grown(pending, history, plan, rng)
        except BadLogitsError as error:
            raise InternalError(f"the draft: {error.message}", hint="another draft, or none: -d none") from error

    def _grown(self, pending: int, history: History, plan: Plan, rng: RandomSource) -> Draft:
        is_gated = plan.go_on is not no_stop_rule  # only a stop rule asks how sure the draft is
        if self.ready(history) and isinstance(self._open, ModelSource) and self._open.is_gated == is_gated:
            self._open.plan = plan
            return self.policy.grow(pending, history.position, self._open, plan, rng)
        text = self._translation.text(history.tokens)
        rows = self.backend.prefill(text, self.cancel)
        self._cached = None
        if self.writes_text and isinstance(self._translation, Intersection):
            left = self.backend.capabilities.n_ctx - len(text)
            self._open = StringDraft(self.backend, self._translation.retokeniser, history.tokens, left, plan)
            return self._open.grow(rows)
        row = self._translation.row(rows.logits(0))
        dist = self.sampler.dist(row, history.tokens, with_belief=is_gated)
        source = MarginalSource if self.backend.capabilities.has_marginals else ModelSource
        self._open = source(
            self.backend, self.sampler, self._translation, history.tokens, len(text), is_gated, {(): dist}, plan
        )
        return self.policy.grow(pending, history.position, self._open, plan, rng)

    def draft_on(self, draft: Draft, rng: RandomSource, goes_on: Callable[[], bool]) -> int:
        """Read on while the target judges `draft`, as if all of it stood, and return the passes that it took. `goes_on`
        is asked before each pass. No chance is used up and no draft is made: the next one is drawn as ever, from
        distributions that are known by then."""
        source = self._open
        if not isinstance(source, ModelSource) or not source.can_read_on:
            return 0
        try:
            return source.read_on(draft, rng, goes_on)
        except (Cancelled, LocalspecError):  # no verdict is lost by it; a draft that needs this pass fails itself
            self._open = None
            self.backend.truncate(self.backend.length)
            return 0

    def ready(self, history: History) -> int:
        source = self._open
        is_next = isinstance(source, ModelSource) and source.n_ready > 0 and source.committed == history.tokens
        return self.n_ready if is_next else 0

    @property
    def n_ready(self) -> int:
        return self._open.n_ready if isinstance(self._open, ModelSource) else 0

    def observe(self, step: Step, rows: Rows) -> None:
        """Keep the cells of accepted draft tokens, drop the others; what was read beyond the text stays."""
        if self._open is not None:
            self._open = self._open.settle(step)


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
            tokens_so_far = self.retokeniser.tokens(self.committed, text)
            end = self.retokeniser.end(own)
            if end is not None and sum(map(self.retokeniser.size, tokens_so_far)) == len(text):
                tokens_so_far.append(end)
                self.ends[-1] += self.retokeniser.size(end)
            if not self._take(tokens_so_far[:most], dist, most) or spelling is None or len(tokens_so_far) >= most:
                break
        shares = [1.0, *self._shares()]
        tokens = [self.committed[-1], *self.tokens]
        return Draft.of(tokens, range(-1, len(self.tokens)), shares=shares)

    def settle(self, step: Step) -> None:
        """Keep the nodes of the draft model whose text was accepted; it did not read the last token it wrote."""
        n_kept = max(len(step.kept) - 1 - step.draft.forced, 0)
        n_accepted = bisect_right(self.ends, self._bounds()[n_kept])
        self.backend.keep(tuple(range(min(n_accepted, len(self.ends) - 1))))

    def _take(self, tokens: list[int], dist: Distribution, most: int) -> bool:
        self.tokens = tokens
        shares, chance = self._shares(), 1.0
        for depth, share in enumerate(shares):
            if depth >= self.n_asked:
                self.n_asked += 1
                if not self.plan.go_on(DraftState(dist, depth, depth, chance, share)):
                    self.tokens = tokens[:depth]
                    return False
                if depth + 1 < most and not self.plan.look_on(depth + 1, share):
                    self.tokens = tokens[: depth + 1]
                    return False
            chance *= share
        return True

    def _shares(self) -> list[float]:
        chances = [self.chances[bisect_left(self.ends, end)] if end else 1.0 for end in self._bounds()]
        return [after / before for before, after in pairwise(chances)]

    def _bounds(self) -> list[int]:
        return [0, *accumulate(map(self.retokeniser.size, self.tokens))]
