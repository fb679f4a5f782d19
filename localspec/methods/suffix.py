"""Suffix decoding: go on as the text most often did after its longest suffix that occurred before (arXiv 2411.04975).

    P(path) = product of trust * count(child) / count(node) along it    E[accepted tokens] = sum of P over the nodes

The -k most probable nodes with P >= min_prob are drafted, at most factor * match + offset levels of them: a long match
promises a long copy, and where nothing matches nothing is drafted. Unlike the paper, shorter suffixes are not tried:
the longest has the most levels, and a unique continuation the greatest probability. Nor does the paper know `trust`:
how often the likeliest continuation of a match of this length was right so far, over how often the counts promised it.
Every token of the text tells, drafted or not. In prose a match of one word means little, and soon is not drafted from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import ClassVar, NamedTuple

from localspec.engine.draft import Draft
from localspec.engine.protocols import Plan, Shape
from localspec.methods import DrafterContext, MethodInfo
from localspec.methods._lookup import LookupDrafter, may_go_on
from localspec.methods._suffix_automaton import Match, SuffixAutomaton
from localspec.settings.declaration import Option, Value

LEAVES = 8  # each is a sequence of the target's cache, to be topped up before it can branch
REACH = 33  # contexts of up to 32 tokens, and what follows them
LONG = 16  # tokens of a match: longer ones are trusted alike
PRIOR_TRUST = (0.2, 0.45, 0.75, 0.9, 0.95)  # before anything is known, in matches of 1, 2 to 3, 4 to 7, ... tokens
WEIGHT = 4.0  # matches that the first guess of the trust is worth
FADE = 0.99  # weight of earlier evidence when one more match is seen


class Suffix(LookupDrafter):
    """Grows a tree from the counts of a suffix automaton over prompt and answer."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="suffix",
        summary="continues the longest repeated suffix as the text most often did, with branches where it differed",
        needs="nothing",
        paper="2411.04975",
        is_lossless=True,
        default_k=16,
        options=(
            Option("min_match", 1, "tokens that must have occurred before", low=1, high=REACH - 1),
            Option("factor", 1.0, "levels of the draft for each token that matches", low=0.0, high=64.0),
            Option("offset", 0, "levels on top of these", low=0, high=64),
            Option("min_prob", 0.3, "least probability of a path", low=0.0, high=1.0),
            Option("trust", True, "weigh counts by how often they were right; off: take them as they are"),
            Option("branch", True, "draft several continuations where they differ"),
        ),
        has_own_shape=True,
        unbranched="-o branch=off",
    )

    def __init__(self, parts: DrafterContext) -> None:
        super().__init__(parts)
        self._min_match = int(self.options["min_match"])
        self._factor = float(self.options["factor"])
        self._offset = int(self.options["offset"])
        self._min_prob = float(self.options["min_prob"])
        self._leaves = LEAVES if self.options["branch"] else 1
        self.forget()

    @classmethod
    def shape(cls, k: int, options: Mapping[str, Value]) -> Shape:
        """Return a budget of `k` nodes, which one long continuation takes whole."""
        return Shape(nodes=k, depth=k, leaves=min(k, LEAVES) if options["branch"] else 1)

    def learn(self, text: Sequence[int], start: int) -> None:
        """Extend the automaton, and see how well it would have foretold every token."""
        for token in text[start:]:
            if self._trust is not None:
                self._trust.observe(self._automaton, token)
            self._automaton.extend((token,))

    def forget(self) -> None:
        """Start over: an automaton only grows, and reading a text again takes microseconds a token."""
        self._automaton = SuffixAutomaton(REACH)
        self._trust = Trust() if self.options["trust"] else None

    def grow(self, text: Sequence[int], plan: Plan) -> Draft:
        tree = _SuffixTree(text[-1])
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
        return Draft.of(tree.tokens, tree.parents, shares=tree.shares)

    def _bud(self, tree: _SuffixTree, node: int, context: Match, prob: float) -> None:
        counts = self._automaton.continuations(context)
        total = sum(counts.values())
        trust = 1.0 if self._trust is None else self._trust.of(context.length)
        for token, count in counts.items():
            chance = count / total
            if prob * trust * chance >= self._min_prob:
                tree.n_offered += 1
                value = -prob * trust * chance
                heappush(tree.buds, _Candidate(value, tree.n_offered, node, token, chance, trust, context, counts))


class Trust:
    """How often the likeliest continuation was right, over how often the counts said it would be, by match length."""

    def __init__(self) -> None:
        self._right = [WEIGHT * trust for trust in PRIOR_TRUST]
        self._promised = [WEIGHT] * len(PRIOR_TRUST)

    def of(self, length: int) -> float:
        level = _level(length)
        return min(1.0, self._right[level] / self._promised[level])

    def observe(self, automaton: SuffixAutomaton, token: int) -> None:
        match = automaton.match()
        if match.length == 0:
            return
        counts = automaton.continuations(match)
        most, level = max(counts.values()), _level(match.length)
        self._promised[level] = FADE * self._promised[level] + most / sum(counts.values())
        self._right[level] = FADE * self._right[level] + (counts.get(token) == most)


def _level(length: int) -> int:
    return min(length, LONG).bit_length() - 1


class _Candidate(NamedTuple):
    """A node that may be added: the most probable first, then the first offered."""

    minus_prob: float
    order: int
    parent: int
    token: int
    chance: float  # after its parent, as counted
    trust: float
    context: Match  # of the parent
    counts: Mapping[int, int]  # how often each token followed it


class _SuffixTree:
    def __init__(self, pending: int) -> None:
        self.tokens = [pending]
        self.parents = [-1]
        self.depths = [0]
        self.chances = [1.0]
        self.shares = [1.0]
        self._rest = [1.0]  # what the children so far left of the continuations
        self.buds: list[_Candidate] = []  # a heap
        self.n_offered = 0
        self._n_leaves = 1
        self._inner: set[int] = set()

    @property
    def n_nodes(self) -> int:
        return len(self.tokens) - 1

    def leaves_with(self, bud: _Candidate) -> int:
        """Return how many leaves there would be: only a node's first child takes its place as a leaf."""
        return self._n_leaves + (bud.parent in self._inner)

    def add(self, bud: _Candidate) -> int:
        self._n_leaves = self.leaves_with(bud)
        self._inner.add(bud.parent)
        self.tokens.append(bud.token)
        self.parents.append(bud.parent)
        self.depths.append(self.depths[bud.parent] + 1)
        self.chances.append(bud.chance)
        rest = self._rest[bud.parent]
        self.shares.append(bud.trust * min(1.0, bud.chance / rest) if rest > 0.0 else 1.0)
        self._rest[bud.parent] = rest - bud.chance
        self._rest.append(1.0)
        return self.n_nodes
