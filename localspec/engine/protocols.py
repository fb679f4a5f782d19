"""The seams: what the engine asks of a model, a drafter, a verifier, a controller and a source of chance.

Everything here is an interface; nothing is imported but the data types, so any side can be replaced in a test.
Arrays: tokens int32, logits float32, lengths and positions absolute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.engine.acceptance import Acceptance
from localspec.engine.distribution import Distribution, Ids
from localspec.engine.draft import Draft, Draw, Mask, Nodes, Step, Verdict

Tokens = Sequence[int] | Ids
Path = tuple[int, ...]
Logits = NDArray[np.float32]
Clock = Callable[[], float]  # seconds, monotonic
Cancel = Callable[[], bool]  # True once the caller wants to stop


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a loaded model can do, probed once: the plan never asks for what the capabilities exclude.

    `can_rollback`: a tail of the cache can be removed. `max_leaves`: sequences that one tree may use. `max_rows`:
    rows of one decode. `n_ctx`: positions the cache holds. `n_vocab`: entries of a row. `devices`: names, for people.
    `settles`: passes of a new width before the time of one is that of all that follow. `n_guesses`: levels that a draft
    of it can have. `replays`: after a rejection the next pass evaluates the tokens that were kept once more. `is_head`:
    it reads the states of a target, which must have committed the tokens before. `is_lane`: it has one sequence, since
    other answers have others; its cache drops tokens all the same.
    """

    can_rollback: bool
    max_leaves: int
    max_rows: int
    n_ctx: int
    n_vocab: int
    devices: tuple[str, ...] = ("CPU",)
    settles: int = 1
    n_guesses: int = sys.maxsize
    replays: bool = False

    @property
    def has_marginals(self) -> bool:
        """Whether one pass guesses all levels of a draft, each by itself."""
        return self.n_guesses < sys.maxsize

    is_head: bool = False
    is_lane: bool = False


class Rows(Protocol):
    """The logits of one decode."""

    def logits(self, node: int) -> Logits:
        """Return the row [V] float32 of `node` as a view; asserts once a later decode made it stale."""


class Backend(Protocol):
    """One model and its cache, with exactly one owner. The cache holds committed tokens and at most one open tree."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def length(self) -> int:
        """Committed tokens in the cache; open nodes are not counted."""

    @property
    def evaluated(self) -> int:
        """Tokens evaluated since it was made: what was not taken from the cache."""

    @property
    def to_replay(self) -> int:
        """Committed tokens that the next pass evaluates again, before its own rows."""

    def cached(self, tokens: Tokens) -> int:
        """Return how many of `tokens`, from the first on, a prefill would take from the cache."""

    def prefill(self, tokens: Tokens, cancel: Cancel) -> Rows:
        """Make the cache hold exactly `tokens`, evaluating only what follows the longest cached prefix.

        The last token is always evaluated; its logits are row 0. Raises Cancelled with the cache holding a prefix.
        """

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> Rows:
        """Evaluate `tokens` [n] in one decode as new nodes of the open tree.

        `parents` [n] are node ids of the open tree, -1 for the last committed token. Ids go on from the nodes already
        open, so a drafter adds levels. `outputs` [n] marks wanted rows (default: all).
        """

    def keep(self, nodes: Nodes) -> None:
        """Commit the path `nodes` (each the parent of the next, the first a child of -1); drop all other open nodes."""

    def truncate(self, length: int) -> None:
        """Forget committed tokens from position `length` on, and every open node. Absolute, idempotent."""


class RandomSource(Protocol):
    """The only source of chance. Tests replay every branch of it."""

    def copy(self) -> RandomSource:
        """Return a source that draws what this one will draw, if it is asked for the same; this one does not change."""

    def bernoulli(self, a: float) -> bool:
        """Return True with probability min(1, a)."""

    def categorical(self, dist: Distribution) -> int:
        """Draw one token."""

    def gumbel_top_k(self, position: int, dist: Distribution, k: int = 1) -> list[int]:
        """Return the k first of an exponential race on `dist`, with noise fixed by (seed, position, token).

        The first has distribution `dist`; the k together are a draw without replacement, in order (Gumbel top-k). Fewer
        than k come back when the support is smaller.
        """

    def gumbel_top_k_margins(self, position: int, dist: Distribution, k: int = 1) -> list[tuple[int, float]]:
        """Return the race's k first, each with how clearly it leads those behind it: its share of their speeds.

        Speed is one over the time of arrival. Another distribution, raced with the same noise, overturns a narrow lead
        easily.
        """


class History(Protocol):
    """What a drafter may know of the text: tokens so far, the last of them pending."""

    @property
    def tokens(self) -> Sequence[int]: ...

    @property
    def position(self) -> int:
        """Absolute position of the token to be chosen next: len(tokens)."""


class Distributions(Protocol):
    """The target's distributions for the nodes of one draft, computed when asked for."""

    def __getitem__(self, node: int) -> Distribution: ...


@dataclass(frozen=True, slots=True)
class DraftState:
    """What may decide whether another token is drafted: the distribution at hand and the nodes so far.

    `dist` is what the token would be drawn from, `dist.belief` how sure the drafter is itself, whatever the
    temperature. `chance` is its belief in the node whose child would be drawn; 1 for the pending token. `share` is the
    token's own, as `Draft.shares` has it, where the token is chosen or coupled: the rules for those take any draft. It
    is None for a token that is yet to be drawn.
    """

    dist: Distribution
    n_nodes: int
    depth: int
    chance: float = 1.0
    share: float | None = None


def no_stop_rule(state: DraftState) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Plan:
    """What the next pass should draft: zero nodes is plain decoding.

    `go_on` is asked *before* each draw, which keeps residual verification exact, and before a chosen or
    coupled token is taken. `look_on` is asked before the drafter evaluates a drafted token, with its depth and its
    share: to know what may follow costs a pass of the drafter. Policies whose levels are fixed ask it. `widen` is asked
    before a sibling is added beside a chain, with the nodes so far and the chance that it is the accepted one: only of
    coupled tokens, whose rule takes any draft. `learned` is what past passes told of acceptance; policies ask
    `acceptance`, which falls back on the prior.
    """

    drafter: str = "plain"
    max_nodes: int = 0
    max_depth: int = 0
    draw: Draw = Draw.IID
    go_on: Callable[[DraftState], bool] = field(default=no_stop_rule)
    look_on: Callable[[int, float], bool] = field(default=lambda depth, share: True)
    widen: Callable[[int, float], bool] = field(default=lambda n_nodes, expected_gain: False)
    learned: Acceptance | None = None
    expects: tuple[float, float] | None = None  # tokens and seconds of the pass, as predicted
    is_probe: bool = False  # left plain although it could draft, and its time is what plain decoding costs
    why: str = ""
    forced: tuple[int, ...] = ()  # tokens that go before all others: a draft follows the text with them
    widths: tuple[int, ...] = ()  # rows of the pass by drafted nodes, where more rows cost less: drafts are padded

    def width(self, nodes: int) -> int:
        """Return the rows of a pass that verifies so many nodes."""
        return self.widths[nodes] if nodes < len(self.widths) else 1 + nodes

    @property
    def acceptance(self) -> Acceptance:
        return self.learned or Acceptance(self.draw)


@dataclass(frozen=True, slots=True)
class DraftBudget:
    """What is left before the end: levels a draft may have, and nodes the cache can take.

    `forced` are the tokens that come next whatever the models say, each the only one that the answer's form allows.
    """

    depth: int
    nodes: int
    forced: tuple[int, ...] = ()

    def after(self, run: Sequence[int]) -> DraftBudget:
        """Return the room that is left behind a `run` of tokens."""
        return DraftBudget(self.depth - len(run), self.nodes - len(run))


class Controller(Protocol):
    """Decides what to draft. Sees the past only."""

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        """Plan the next pass within `budget`."""

    def observe(self, step: Step, seconds: float) -> None:
        """Learn from a pass that took `seconds`, the telling of it included."""


class Drafter(Protocol):
    """Proposes continuations. Owns its own backend, if it needs one."""

    def begin(self, history: History) -> None:
        """Get ready for a text; called once after the target's prefill and first token."""

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        """Return at most `plan.max_nodes` nodes below the pending token."""

    def observe(self, step: Step, rows: Rows) -> None:
        """Learn what was committed: called after every pass, also those it did not draft.

        `rows` are the target's, by node of `step.draft`; they are stale after this call.
        """


class DistributionSource(Protocol):
    """The conditional distributions of a drafter along paths: what a tree policy expands.

    A path is the tokens below the pending one; () is the pending token itself, whose distribution is there from the
    start.
    """

    def dist(self, path: Path) -> Distribution:
        """Return the drafter's distribution after an expanded `path`, with its belief where the plan has a `go_on`."""

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing to expand a path."""

    @property
    def rows_left(self) -> int:
        """Paths that can still be evaluated: at least the plan's nodes when the draft begins."""

    def expand(self, paths: Sequence[Path]) -> None:
        """Evaluate `paths` in one decode, each one token longer than an expanded one; known ones cost nothing."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The largest tree a policy grows: nodes below the root, levels, and leaves (sequences of the backend)."""

    nodes: int
    depth: int
    leaves: int


class TreePolicy(Protocol):
    """Grows a draft from a drafter's distributions. `draws` says which ways of drawing are right for it."""

    @property
    def draws(self) -> frozenset[Draw]: ...

    def shape(self, k: int) -> Shape:
        """Return the largest tree for a draft length of `k`."""

    def grow(self, pending: int, position: int, source: DistributionSource, plan: Plan, rng: RandomSource) -> Draft: ...


class Verifier(Protocol):
    """An acceptance rule. Parameters, if it has any, are keywords of its class, declared as `options`.

    `accepts` says which draws it is right for, `trees` whether siblings are allowed, `is_lossless` whether the output
    keeps the target's distribution.
    """

    @property
    def is_lossless(self) -> bool: ...

    @property
    def accepts(self) -> frozenset[Draw]: ...

    @property
    def trees(self) -> bool: ...

    def verify(self, draft: Draft, dists: Distributions, rng: RandomSource, position: int) -> Verdict:
        """Accept a path of `draft` and draw the token after it; `position` is that of the root's children."""


class Cancelled(Exception):
    """Raised out of a prefill when the cancel flag was set; the cache is consistent."""
