"""Suffix decoding: go on as the text most often did after its longest suffix that occurred before (arXiv 2411.04975).

    P(path) = product of trust * count(child) / count(node) along it    E[accepted tokens] = sum of P over the nodes

The -k most probable nodes with P >= min_prob are drafted, at most factor * match + offset levels of them: a long match
promises a long copy, and where nothing matches nothing is drafted. Unlike the paper, shorter suffixes are not tried:
the longest has the most levels, and a unique continuation the greatest probability. Nor does the paper know `trust`:
how often the likeliest continuation of a match of this length was right so far, over how often the counts promised it.
Every token of the text tells, drafted or not. In prose a match of one word means little, and soon is not drafted from.

Also here: an online suffix automaton, with every substring of a growing text, with how often it occurs (Blumer et al.
1985).

A state stands for the substrings that end at the same places of the text; they are suffixes of one another, and
`link` leads to the next shorter ones. A token appends one state and splits at most one, so a text of n tokens has at
most 2n states and building it costs O(1) amortised a token.

Invariant: the count of every substring of at most `reach` tokens is exact. Counting longer ones too would walk a chain
of links as long as the text in a text like "aaaa"; so it ends after `reach` of them, whatever the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import ClassVar, NamedTuple

from localspec.engine.draft import Draft
from localspec.engine.protocols import Plan, Shape
from localspec.methods import DrafterContext, MethodInfo
from localspec.methods._lookup import LookupDrafter, may_go_on
from localspec.settings.declaration import Option, Value

NOWHERE = 0  # above the root, so that walks along the links need no special case
ROOT = 1


class Match(NamedTuple):
    """A substring of `length` tokens: the state that holds it."""

    state: int
    length: int


class SuffixAutomaton:
    """The substrings of a text that only grows. `reach` - 1 is the longest context that it can be asked about."""

    def __init__(self, reach: int) -> None:
        assert reach >= 2, "a context of one token and its continuation"
        self._reach = reach
        self._next: list[dict[int, int]] = [{}, {}]  # by state: token -> state
        self._link = [NOWHERE, NOWHERE]
        self._longest = [-1, 0]
        self._count = [0, 0]
        self._last = ROOT  # the whole text
        self._tip = Match(ROOT, 0)  # its last `reach` tokens

    def __len__(self) -> int:
        """Return the length of the text."""
        return self._longest[self._last]

    @property
    def n_states(self) -> int:
        """Number of states, at most twice the length."""
        return len(self._next) - 1

    def extend(self, tokens: Iterable[int]) -> None:
        """Append `tokens` to the text."""
        for token in tokens:
            self._append(token)
            self._count_suffixes(token)

    def match(self) -> Match:
        """Return the longest suffix of the text, shorter than `reach`, that occurs earlier too; () at worst."""
        state, length = self._tip
        if state == self._last:  # occurs here only
            state = self._link[state]
            length = max(self._longest[state], 0)
        return self._clipped(max(state, ROOT), length)

    def continuations(self, match: Match) -> dict[int, int]:
        """Return how often each token follows `match` in the text."""
        return {token: self._count[state] for token, state in self._next[match.state].items()}

    def follow(self, match: Match, token: int) -> Match:
        """Return `match` with `token`, one of its continuations, appended, clipped to what can be asked about.

        At the end of the text nothing follows; the text then goes on as it did after its longest earlier suffix.
        """
        state = self._next[match.state][token]
        return self.match() if state == self._last else self._clipped(state, match.length + 1)

    def _clipped(self, state: int, length: int) -> Match:
        """Return the suffix of at most `reach` - 1 tokens of a substring that is at most one longer."""
        length = min(length, self._reach - 1)
        link = self._link[state]
        return Match(link if length <= self._longest[link] else state, length)

    def _append(self, token: int) -> None:
        """Make the text one longer; counts are left to `_count_suffixes`."""
        nexts, links = self._next, self._link
        new = self._add({}, NOWHERE, len(self) + 1, 0)
        state = self._last
        while state != NOWHERE and token not in nexts[state]:
            nexts[state][token] = new
            state = links[state]
        links[new] = ROOT if state == NOWHERE else self._target(state, token)
        self._last = new

    def _target(self, state: int, token: int) -> int:
        """Return the state of exactly the longest of `state` and `token`: split off where longer ones share it."""
        nexts, links = self._next, self._link
        shared = nexts[state][token]
        longest = self._longest[state] + 1
        if longest == self._longest[shared]:
            return shared
        split = self._add(nexts[shared].copy(), links[shared], longest, self._count[shared])
        links[shared] = split
        while nexts[state].get(token) == shared:
            nexts[state][token] = split
            state = links[state]
        return split

    def _add(self, nexts: dict[int, int], link: int, longest: int, count: int) -> int:
        self._next.append(nexts)
        self._link.append(link)
        self._longest.append(longest)
        self._count.append(count)
        return len(self._next) - 1

    def _count_suffixes(self, token: int) -> None:
        """Count every suffix of at most `reach` tokens once more."""
        links, longest, count = self._link, self._longest, self._count
        state, length = self._tip
        state, length = self._next[state][token], min(length + 1, self._reach)
        if length <= longest[links[state]]:  # one token fell out of reach, or this token split the state
            state = links[state]
        self._tip = Match(state, length)
        while state != ROOT:
            count[state] += 1
            state = links[state]


LEAVES = 8  # each is a sequence of the target's cache, to be topped up before it can branch
REACH = 33  # contexts of up to 32 tokens, and what follows them
LONG = 16  # tokens of a match: longer ones are trusted alike
PRIOR_TRUST = (
    0.2,
    0.45,
    0.75,
    0.9,
    0.95,
)  # trust before anything is known, in matches of 1, 2 to 3, 4 to 7, ... tokens
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
        """Grow best first. A parent is never less probable than its children, so it comes before them."""
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
        """Offer the continuations of `node`, whose path has probability `prob`."""
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
        """Return the factor for what follows a match of `length` tokens."""
        level = _level(length)
        return min(1.0, self._right[level] / self._promised[level])

    def observe(self, automaton: SuffixAutomaton, token: int) -> None:
        """Compare what the automaton says of the next token with `token`."""
        match = automaton.match()
        if match.length == 0:
            return
        counts = automaton.continuations(match)
        most, level = max(counts.values()), _level(match.length)
        self._promised[level] = FADE * self._promised[level] + most / sum(counts.values())
        self._right[level] = FADE * self._right[level] + (counts.get(token) == most)


def _level(length: int) -> int:
    """Return the row of a match: 1, 2 and 3, 4 to 7, 8 to 15 tokens, and so on."""
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
    """A draft under construction; node 0 is the pending token."""

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
        """Number of drafted nodes."""
        return len(self.tokens) - 1

    def leaves_with(self, bud: _Candidate) -> int:
        """Return how many leaves there would be: only a node's first child takes its place as a leaf."""
        return self._n_leaves + (bud.parent in self._inner)

    def add(self, bud: _Candidate) -> int:
        """Make a bud a node."""
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
