"""An online suffix automaton: every substring of a growing text, with how often it occurs (Blumer et al. 1985).

A state stands for the substrings that end at the same places of the text; they are suffixes of one another, and
`link` leads to the next shorter ones. A token appends one state and splits at most one, so a text of n tokens has at
most 2n states and building it costs O(1) amortised a token.

Invariant: the count of every substring of at most `reach` tokens is exact. Counting longer ones too would walk a chain
of links as long as the text in a text like "aaaa"; so it ends after `reach` of them, whatever the text.
"""

from collections.abc import Iterable
from typing import NamedTuple

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
        return self._longest[self._last]

    @property
    def n_states(self) -> int:
        return len(self._next) - 1

    def extend(self, tokens: Iterable[int]) -> None:
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
        return {token: self._count[state] for token, state in self._next[match.state].items()}

    def follow(self, match: Match, token: int) -> Match:
        """Return `match` with `token`, one of its continuations, appended, clipped to what can be asked about. At the
        end of the text nothing follows; the text then goes on as it did after its longest earlier suffix."""
        state = self._next[match.state][token]
        return self.match() if state == self._last else self._clipped(state, match.length + 1)

    def _clipped(self, state: int, length: int) -> Match:
        length = min(length, self._reach - 1)
        link = self._link[state]
        return Match(link if length <= self._longest[link] else state, length)

    def _append(self, token: int) -> None:
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
        links, longest, count = self._link, self._longest, self._count
        state, length = self._tip
        state, length = self._next[state][token], min(length + 1, self._reach)
        if length <= longest[links[state]]:  # one token fell out of reach, or this token split the state
            state = links[state]
        self._tip = Match(state, length)
        while state != ROOT:
            count[state] += 1
            state = links[state]
