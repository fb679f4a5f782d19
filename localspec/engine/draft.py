"""What a drafter proposes, what a verifier answers, and what a pass committed: frozen, numpy only.

A draft is always a tree, a chain being the tree whose parents are -1, 0, 1, ... Node 0 is the pending token: the
last committed one, which the target's cache does not hold yet. Parents precede their children, and the order of
siblings is the order in which they were drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.engine.distribution import Distribution, Ids

Nodes = tuple[int, ...]
Mask = NDArray[np.bool_]


class Draw(Enum):
    """How a drafted token came to be, which decides the rules that may verify it."""

    FIXED = "fixed"  # chosen without chance, or by chance that was not recorded: a point mass
    IID = "iid"  # drawn from its distribution, independently of its siblings
    WITHOUT_REPLACEMENT = "without-replacement"  # its distribution is what earlier siblings left, renormalised
    COUPLED = "coupled"  # drawn with the noise that the target will use at the same position


class Source(Enum):
    """Where a committed token comes from."""

    ACCEPTED = "accepted"  # drafted, and kept
    CORRECTED = "corrected"  # drawn by the target after a draft token was rejected
    BONUS = "bonus"  # drawn by the target after a whole draft path was accepted
    FORCED = "forced"  # the only token that the answer's form allowed there
    PLAIN = "plain"  # drawn by the target without a draft


@dataclass(frozen=True, slots=True)
class Verdict:
    """The accepted `path` of node ids below the root, then the `token` the target drew itself and where it is from."""

    path: Nodes
    token: int
    source: Source


# What the draft without nodes has beside its token; every plain pass has one, and making five arrays takes longer than
# drawing a token.
_ALONE = (np.array([-1], np.int32), (None,), (Draw.FIXED,), np.zeros(1, np.bool_), np.ones(1, np.bool_))
for _array in (_ALONE[0], *_ALONE[3:]):
    _array.setflags(write=False)


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A tree of `tokens` [1 + n] int32 with `parents` [1 + n] int32; `parents[0]` is -1.

    `dists[i]` is the distribution node i was *really* drawn from (None: a point mass) and `draws[i]` how. `scratch` [1
    + n] marks nodes that may not be accepted (a Lookahead window, mask tokens, padding); `outputs` [1 + n] the rows
    whose logits are wanted. `shares[i]` is the token's probability in what its elder siblings left of the drafter's
    distribution (empty: not known, and 1 is told). The first `forced` nodes are a chain of the only allowed tokens,
    which nothing can reject. Invariant: 0 <= parents[i] < i for i > 0.
    """

    tokens: Ids
    parents: Ids
    dists: tuple[Distribution | None, ...]
    draws: tuple[Draw, ...]
    scratch: Mask
    outputs: Mask
    shares: tuple[float, ...] = ()
    forced: int = 0
    children: tuple[Nodes, ...] = field(init=False)  # acceptable ones, in draw order

    def __post_init__(self) -> None:
        if len(self.tokens) == 1:
            object.__setattr__(self, "children", ((),))
            return
        below: list[list[int]] = [[] for _ in self.tokens]
        for node, parent in enumerate(self.parents.tolist()):
            assert parent < node, "a parent precedes its children"
            if parent >= 0 and not self.scratch[node]:
                below[parent].append(node)
        object.__setattr__(self, "children", tuple(map(tuple, below)))

    @staticmethod
    def of(
        tokens: Sequence[int],
        parents: Sequence[int],
        dists: Sequence[Distribution | None] = (),
        draw: Draw = Draw.FIXED,
        shares: Sequence[float] = (),
    ) -> Draft:
        """Build a draft without scratch nodes; `dists` defaults to point masses. `draw` is of every node but 0."""
        n = len(tokens)
        return Draft(
            np.asarray(tokens, np.int32),
            np.asarray(parents, np.int32),
            tuple(dists) or (None,) * n,
            (Draw.FIXED,) + (draw,) * (n - 1),
            np.zeros(n, np.bool_),
            np.ones(n, np.bool_),
            tuple(shares),
        )

    @staticmethod
    def root(pending: int) -> Draft:
        """Return the empty draft: plain decoding of the pending token."""
        return Draft(np.array([pending], np.int32), *_ALONE)

    def __len__(self) -> int:
        """Return the number of drafted nodes, the pending token not counted."""
        return len(self.tokens) - 1

    @property
    def is_chain(self) -> bool:
        """Whether no node has two acceptable children."""
        return all(len(below) <= 1 for below in self.children)

    @property
    def n_leaves(self) -> int:
        """Number of leaves: the sequence ids that the backend needs."""
        inner = set(self.parents.tolist())
        return sum(node not in inner for node in range(len(self.tokens)))

    @property
    def depth(self) -> int:
        """Length of the longest acceptable path below the pending token."""
        depths = [0] * len(self.tokens)
        for node, below in enumerate(self.children):
            for child in below:
                depths[child] = depths[node] + 1
        return max(depths)

    def verdict(self, node: int, token: int) -> Verdict:
        """Return the verdict that accepts the path down to `node` and then draws `token`."""
        if not self.children[0]:
            source = Source.PLAIN
        else:
            source = Source.CORRECTED if self.children[node] else Source.BONUS
        path: list[int] = []
        while node > 0:
            path.append(node)
            node = int(self.parents[node])
        return Verdict(tuple(path[::-1]), token, source)

    def padded(self, n_rows: int) -> Draft:
        """Return the draft with scratch nodes below its last node, until a pass of it has `n_rows` rows."""
        n, more = len(self.tokens), n_rows - len(self.tokens)
        if more <= 0:
            return self
        parents = np.arange(n - 1, n_rows - 1, dtype=np.int32)
        return self.with_scratch(np.full(more, self.tokens[-1]), parents, outputs=False)

    def with_scratch(self, tokens: Ids, parents: Ids, *, outputs: bool) -> Draft:
        """Return the draft with scratch nodes `tokens` [m] below `parents` [m]; `outputs`: their logits are wanted."""
        more = len(tokens)
        return Draft(
            np.append(self.tokens, tokens),
            np.append(self.parents, parents),
            self.dists + (None,) * more,
            self.draws + (Draw.FIXED,) * more,
            np.append(self.scratch, np.ones(more, np.bool_)),
            np.append(self.outputs, np.full(more, outputs)),
            self.shares and self.shares + (1.0,) * more,
            self.forced,
        )

    def after(self, pending: int, run: Sequence[int], *, outputs: bool) -> Draft:
        """Return the draft behind the `run` of forced tokens below `pending`; its own root was the last of these.

        `outputs`: the logits before forced tokens are wanted, which no rule needs.
        """
        n = len(run)
        return Draft(
            np.concatenate([np.array([pending, *run], np.int32), self.tokens[1:]]),
            np.concatenate([np.arange(-1, n, dtype=np.int32), self.parents[1:] + np.int32(n)]),
            (None,) * n + self.dists,
            (Draw.FIXED,) * n + self.draws,
            np.append(np.zeros(n, np.bool_), self.scratch),
            np.append(np.full(n, outputs), self.outputs),
            self.shares and (1.0,) * n + self.shares,
            n,
        )

    def only(self, nodes: Sequence[int]) -> Draft:
        """Return the draft of the ascending `nodes` alone; 0 is among them, and the parent of each."""
        number = {node: n for n, node in enumerate(nodes)}
        return Draft(
            self.tokens[list(nodes)],
            np.array([number.get(int(self.parents[node]), -1) for node in nodes], np.int32),
            tuple(self.dists[node] for node in nodes),
            tuple(self.draws[node] for node in nodes),
            self.scratch[list(nodes)],
            self.outputs[list(nodes)],
            tuple(self.shares[node] for node in nodes) if self.shares else (),
            self.forced,
        )

    def dist(self, node: int) -> Distribution:
        """Return the distribution that `node` was drawn from, a point mass when it was not drawn."""
        return self.dists[node] or Distribution.one_hot(int(self.tokens[node]))

    def share(self, node: int) -> float:
        """Return what the drafter took for the chance of `node`, its elder siblings being wrong."""
        return self.shares[node] if self.shares else 1.0

    def path(self, node: int) -> list[int]:
        """Return the tokens on the way from below the root to `node`, `node` included; [] for the root."""
        tokens: list[int] = []
        while node > 0:
            tokens.append(int(self.tokens[node]))
            node = int(self.parents[node])
        return tokens[::-1]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one pass by part; `other` is what the three named parts leave of the wall clock.

    `planning` is the share of `other` that the controller took to decide.
    """

    draft: float = 0.0
    verify: float = 0.0
    sample: float = 0.0
    other: float = 0.0
    planning: float = 0.0

    @property
    def total(self) -> float:
        return self.draft + self.verify + self.sample + self.other


FORCED = Source.FORCED.value


@dataclass(frozen=True, slots=True)
class Judged:
    """A committed `token` with its log-probability, and the likeliest at its place with theirs, the likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class StepPlan(Protocol):
    """The fields of its plan that a step tells; `protocols.Plan`, which imports this module, describes them."""

    @property
    def drafter(self) -> str: ...

    @property
    def max_nodes(self) -> int: ...

    @property
    def expects(self) -> tuple[float, float] | None: ...

    @property
    def is_probe(self) -> bool: ...

    @property
    def why(self) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One pass of the target: the draft, the verdict, and what was committed after the stop rules cut it.

    `tokens` and `sources` are the committed run; its last token is pending, and `kept` (node ids, 0 first) are the
    nodes whose cells stay in the cache. `text` is what the run made certain: whole characters, no partial stop string.
    `plan` is what the controller asked for. Before the draft the pass evaluated `replayed` committed tokens again.
    `judged` has the log-probabilities of `tokens` where somebody asked for them.
    """

    draft: Draft
    verdict: Verdict
    tokens: tuple[int, ...]
    sources: tuple[Source, ...]
    kept: Nodes
    position: int  # absolute position of tokens[0]
    times: Times
    plan: StepPlan
    text: str = ""
    replayed: int = 0
    judged: tuple[Judged, ...] = ()

    @property
    def rows(self) -> int:
        return self.replayed + 1 + len(self.draft)

    @property
    def drafter(self) -> str:
        """Who was asked for a draft, which may be empty; "forced" where only the form drafted, "" where nobody did."""
        return self.plan.drafter if self.plan.max_nodes > 0 else FORCED if self.draft.forced else ""

    @property
    def depth(self) -> int:
        """Levels of the draft, forced tokens left out."""
        return self.draft.depth - self.draft.forced

    @property
    def n_right(self) -> int:
        """Draft tokens that the rule accepted, whatever a stop rule cut; forced ones left out."""
        return len(self.verdict.path) - self.draft.forced

    @property
    def n_forced(self) -> int:
        return min(self.draft.forced, len(self.tokens))

    @property
    def n_drafted(self) -> int:
        """Draft tokens the target tested: scratch nodes and forced tokens do not count."""
        n = len(self.draft)
        return n and n - int(self.draft.scratch.sum()) - self.draft.forced

    @property
    def n_accepted(self) -> int:
        """Draft tokens that were committed, forced ones left out."""
        return self.sources.count(Source.ACCEPTED)
