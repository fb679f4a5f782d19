"""Mask tokens guess what follows the text, in the pass that verifies (Samragh et al. arXiv 2507.11851).

Each node of the draft has a chain of k masks below it: scratch nodes, never committed. Whatever path is accepted, the
masks below its last node tell the distributions of the k tokens after the one that the target draws itself. These are
the next draft ("quadratic decoding"), so no pass is spent on drafting. A draft of n nodes takes n + k (1 + n) rows
beside the pending token's. A distribution knows its depth, and not the tokens drafted before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Step
from localspec.engine.protocols import (
    History,
    Logits,
    Path,
    Plan,
    RandomSource,
    Rows,
    Shape,
    TreePolicy,
    no_stop_rule,
)
from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext, MethodInfo
from localspec.methods._source import Marginals

MOST_NODES = 31  # of a tree: each has a chain of masks below it, and with the root's they take 32 sequences


class MaskTokens:
    """Drafts with the target's own rows at its mask tokens; the tree policy decides the shape."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="mask-tokens",
        summary="the target guesses on mask tokens, in the same pass that verifies, and drafts without a model",
        needs="a file of mask tokens",
        paper="2507.11851",
        is_lossless=True,
        default_k=3,
        draft_kind="mask-tokens",
        has_scratch=True,
        reads_rows=True,
    )

    def __init__(self, masks: Sequence[int], sampler: Sampler, policy: TreePolicy) -> None:
        self._masks = np.asarray(masks, np.int32)
        self._sampler = sampler
        self._policy = policy
        self._plan: Plan | None = None  # of the draft under way
        self._n_nodes = self._n_masks = 0  # in it: the tree's, with the root; and of a chain
        self._rows: list[Logits] = []  # of the masks below the last node that was kept
        self._at = 0  # the position that the first of them guesses

    @classmethod
    def build(cls, parts: DrafterContext) -> MaskTokens:
        return cls(parts.masks, parts.sampler, parts.policy)

    @classmethod
    def pass_shape(cls, shape: Shape) -> Shape:
        """Return the shape of a pass with a tree of `shape`: as many masks below each node as the tree has levels."""
        return Shape(shape.nodes + shape.depth * (1 + shape.nodes), shape.depth, shape.nodes + 1)

    def begin(self, history: History) -> None:
        self._plan, self._rows = None, []

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        rows, self._rows, self._plan = self._rows[max(history.position - self._at, 0) :], [], plan
        pending = history.tokens[-1]
        self._n_masks = max(0, min(len(self._masks), plan.max_depth, plan.max_nodes))
        n_nodes = min(MOST_NODES, (plan.max_nodes - self._n_masks) // (1 + self._n_masks))
        depth = min(plan.max_depth, len(rows))
        tree = Draft.root(pending)
        if self._n_masks and n_nodes > 0 and depth > 0:
            is_gated = plan.go_on is not no_stop_rule
            source = _MaskMarginals(rows[:depth], self._sampler, history.tokens, is_gated)
            grown = replace(plan, max_nodes=n_nodes, max_depth=depth)
            tree = self._policy.grow(pending, history.position, source, grown, rng)
        self._n_nodes = len(tree.tokens)
        return _masked(tree, self._masks[: self._n_masks]) if self._n_masks else tree

    def observe(self, step: Step, rows: Rows) -> None:
        """Keep what the masks below the last kept node guess. It holds for the next pass alone."""
        self._rows = []
        forced, last = step.draft.forced, step.kept[-1]
        if step.plan is self._plan and last >= forced:
            first = forced + self._n_nodes + self._n_masks * (last - forced)
            self._at = step.position + len(step.tokens)
            self._rows = [rows.logits(node).copy() for node in range(first, first + self._n_masks)]


@dataclass(frozen=True, slots=True)
class _MaskMarginals(Marginals):
    """A distribution for each mask of a chain, by depth."""

    rows: Sequence[Logits]
    sampler: Sampler
    committed: Sequence[int]
    is_gated: bool
    dists: dict[Path, Distribution] = field(default_factory=dict)

    def dist(self, path: Path) -> Distribution:
        needs_history = self.sampler.needs_history
        key = path if needs_history else (0,) * len(path)
        if key not in self.dists:
            history = [*self.committed, *path] if needs_history else ()
            self.dists[key] = self.sampler.dist(self.rows[len(path)], history, with_belief=self.is_gated)
        return self.dists[key]


def _masked(tree: Draft, masks: np.ndarray) -> Draft:
    n, k = len(tree.tokens), len(masks)
    parents = n - 1 + np.arange(n * k, dtype=np.int32).reshape(n, k)  # the parent of a mask is the one before it
    parents[:, 0] = np.arange(n)
    return tree.with_scratch(np.tile(masks, n), parents.ravel(), outputs=True)
