"""Suffix decoding: go on as the text most often did after its longest suffix that occurred before (arXiv 2411.04975).

    P(path) = product of count(child) / count(node) along it            E[accepted tokens] = sum of P over the nodes

The -k most probable nodes with P >= min_prob are drafted, at most factor * match + offset levels of them: a long match
promises a long copy, and where nothing matches nothing is drafted. Unlike the paper, shorter suffixes are not tried:
the longest has the most levels, and a unique continuation the greatest probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import ClassVar, NamedTuple

from localspec.draft import Draft
from localspec.lookup import LookupDrafter, may_go_on
from localspec.methods import MethodInfo, Parts
from localspec.options import Option, Value
from localspec.protocols import Plan, Shape
from localspec.suffix_automaton import Match, SuffixAutomaton

LEAVES = 8  # each is a sequence of the target's cache, to be topped up before it can branch
REACH = 33  # contexts of up to 32 tokens, and what follows them


class Suffix(LookupDrafter):
    """Grows a tree from the counts of a suffix automaton over prompt and answer."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="suffix",
        summary="goes on as the text most often did after its longest repeated suffix, branching where it differed",
        needs="nothing",
        paper="2411.04975",
        is_lossless=True,
        default_k=16,
        options=(
            Option("min_match", 1, "tokens that must have occurred before", low=1, high=REACH - 1),
            Option("factor", 1.0, "levels of the draft for each token that matches", low=0.0, high=64.0),
            Option("offset", 0, "levels on top of these", low=0, high=64),
            Option("min_prob", 0.2, "least probability of a path, as counted in the text", low=0.0, high=1.0),
            Option("branch", True, "draft several continuations where they differ"),
        ),
        has_own_shape=True,
        unbranched="-o branch=off",
    )

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._min_match = int(self.options["min_match"])
        self._factor = float(self.options["factor"])
        self._offset = int(self.options["offset"])
        self._min_prob = float(self.options["min_prob"])
        self._leaves = LEAVES if self.options["branch"] else 1
        self._automaton = SuffixAutomaton(REACH)

    @classmethod
    def shape(cls, k: int, options: Mapping[str, Value]) -> Shape:
        """Return a budget of `k` nodes, which one long continuation takes whole."""
        return Shape(nodes=k, depth=k, leaves=min(k, LEAVES) if options["branch"] else 1)

    def learn(self, text: Sequence[int], start: int) -> None:
        """Extend the automaton."""
        self._automaton.extend(text[start:])

    def forget(self, length: int) -> int:
        """Start over: an automaton only grows, and reading a text again takes microseconds a token."""
        self._automaton = SuffixAutomaton(REACH)
        return 0

    def grow(self, text: Sequence[int], plan: Plan) -> Draft:
        """Grow best first. A parent is never less probable than its children, so it comes before them."""
        tree = _Tree(text[-1])
        match = self._automaton.match()
        levels = min(plan.max_depth, int(self._factor * match.length) + self._offset)
        if match.length >= self._min_match and levels > 0:
            self._bud(tree, 0, match, 1.0)
        while tree.buds and tree.n_nodes < plan.max_nodes:
            bud = heappop(tree.buds)
            depth, chance = tree.depths[bud.parent], tree.chances[bud.parent]
            if tree.leaves_with(bud) > self._leaves or not may_go_on(plan, bud.counts, tree.n_nodes, depth, chance):
                continue
            node = tree.add(bud)
            if depth + 1 < levels and not self.is_eog(bud.token):
                self._bud(tree, node, self._automaton.follow(bud.context, bud.token), -bud.minus_prob)
        return Draft.of(tree.tokens, tree.parents)

    def _bud(self, tree: _Tree, node: int, context: Match, prob: float) -> None:
        """Offer the continuations of `node`, whose path has probability `prob`."""
        counts = self._automaton.continuations(context)
        total = sum(counts.values())
        for token, count in counts.items():
            chance = count / total
            if prob * chance >= self._min_prob:
                tree.n_offered += 1
                heappush(tree.buds, _Bud(-prob * chance, tree.n_offered, node, token, chance, context, counts))


class _Bud(NamedTuple):
    """A node that may be added: the most probable first, then the first offered."""

    minus_prob: float
    order: int
    parent: int
    token: int
    chance: float  # after its parent
    context: Match  # of the parent
    counts: Mapping[int, int]  # how often each token followed it


class _Tree:
    """A draft under construction; node 0 is the pending token."""

    def __init__(self, pending: int) -> None:
        self.tokens = [pending]
        self.parents = [-1]
        self.depths = [0]
        self.chances = [1.0]
        self.buds: list[_Bud] = []  # a heap
        self.n_offered = 0
        self._n_leaves = 1
        self._inner: set[int] = set()

    @property
    def n_nodes(self) -> int:
        """Number of drafted nodes."""
        return len(self.tokens) - 1

    def leaves_with(self, bud: _Bud) -> int:
        """Return how many leaves there would be: only a node's first child takes its place as a leaf."""
        return self._n_leaves + (bud.parent in self._inner)

    def add(self, bud: _Bud) -> int:
        """Make a bud a node."""
        self._n_leaves = self.leaves_with(bud)
        self._inner.add(bud.parent)
        self.tokens.append(bud.token)
        self.parents.append(bud.parent)
        self.depths.append(self.depths[bud.parent] + 1)
        self.chances.append(bud.chance)
        return self.n_nodes
