"""What the text may be: a grammar, a schema or a list of choices, as a restriction of the next token.

The target's distribution under a constraint is its row without the tokens that are not allowed, then penalties,
filters and temperature. The drafter's is made in the same way (`sampling.Sampler`), so p and q are distributions of
allowed tokens, and every rule stays exact: none of them knows of constraints.

    allowed(text) = {x: some text of the language begins with text + x}

Where nothing can follow, since the text has ended or has left the language, no token is allowed and no distribution
is needed: whatever is drawn there is cut off. The distribution without the constraint stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from localspec.engine.distribution import Ids
from localspec.engine.draft import Draft, Draw
from localspec.engine.text import common_prefix

MASKS = 64  # that are kept: a mask may be as long as the vocabulary
NOTHING: Ids = np.empty(0, np.int32)
FREE: Ids = np.empty(0, np.int32)  # this very object: any token may follow
CHOSEN = (Draw.FIXED, Draw.COUPLED)  # draws whose rules take any draft, so that a token may be looked at and dropped


class Constraint(Protocol):
    """A pure function of the text. Whatever it remembers may only save time."""

    def allowed(self, text: Sequence[int]) -> Ids:
        """Return the tokens [m] int32, ascending, that may follow `text`, the prompt included; none after its end.

        `FREE` where any token may.
        """


class Matcher(Protocol):
    """Stands at a place in a text of the language, and knows the way back."""

    def mask(self) -> Ids:
        """Return the tokens [m] int32, ascending, that may follow; the end tokens where the text may end."""

    def consume(self, token: int) -> None:
        """Step over a token of the mask that does not end the text."""

    def rollback(self, n: int) -> None:
        """Step back over the last `n` tokens."""


class Matched:
    """A constraint on what follows the first `begin` tokens of a text, by a matcher that walks to where it is asked.

    A token is judged by the mask before it. An end token is never consumed: matchers count those in different ways.
    """

    def __init__(self, matcher: Matcher, is_end: Callable[[int], bool]) -> None:
        self.begin = 0
        self._matcher = matcher
        self._is_end = is_end
        self._held: list[int] = []  # the tokens up to where the matcher stands
        self._masks: dict[int, Ids] = {}  # by how many of them come before

    def is_end(self, token: int) -> bool:
        return self._is_end(token)

    def begin_at(self, n: int) -> None:
        self.begin = n

    def allowed(self, text: Sequence[int]) -> Ids:
        answer = text[self.begin :]
        same = common_prefix(self._held, answer)
        if same == len(answer) and same in self._masks:
            return self._masks[same]  # on the way to where the matcher stands
        if same < len(self._held):
            self._matcher.rollback(len(self._held) - same)
            del self._held[same:]
            self._masks = {n: mask for n, mask in self._masks.items() if n <= same}
        for token in answer[same:]:
            if self._is_end(token) or not is_allowed(self._mask(), token):
                return NOTHING
            self._matcher.consume(token)
            self._held.append(token)
            self._masks.pop(len(self._held) - MASKS, None)
        return self._mask()

    def _mask(self) -> Ids:
        n = len(self._held)
        if n not in self._masks:
            self._masks[n] = self._matcher.mask()
        return self._masks[n]


def cut(draft: Draft, constraint: Constraint, text: Sequence[int]) -> Draft:
    """Return the draft without what cannot be accepted after `text`: chosen tokens that are not allowed, and all that
    follows such a token or an end.

    A drawn token stays although it is not allowed: to drop it after the draw would change the distribution. Where there
    are scratch nodes, the drafter knows its nodes by number: what cannot be accepted becomes scratch there.
    """
    nodes: dict[int, Ids | None] = {0: constraint.allowed(text)}  # nodes, with what may follow them where that is known
    for node in range(1, len(draft.tokens)):
        parent = int(draft.parents[node])
        if parent not in nodes or draft.scratch[node]:
            continue
        ids = nodes[parent]
        if ids is None:
            ids = nodes[parent] = constraint.allowed([*text, *draft.path(parent)])
        if ids is FREE or (ids.size and (draft.draws[node] not in CHOSEN or is_allowed(ids, int(draft.tokens[node])))):
            nodes[node] = None
    if not draft.scratch.any():
        return draft if len(nodes) == len(draft.tokens) else draft.only(tuple(nodes))
    scratch = np.ones_like(draft.scratch)
    scratch[list(nodes)] = False
    return draft if (scratch == draft.scratch).all() else replace(draft, scratch=scratch)


def forced_run(constraint: Constraint, text: Sequence[int], most: int) -> tuple[int, ...]:
    """Return at most `most` tokens that must follow `text`, each the only one that is allowed.

    The target's distribution is certain of them at any temperature, so each rule accepts them and no drafter is needed.
    """
    run: list[int] = []
    while len(run) < most and (ids := constraint.allowed([*text, *run])).size == 1:
        run.append(int(ids[0]))
    return tuple(run)


@dataclass(frozen=True, slots=True)
class Ahead:
    """The text as it will be once the forced tokens stand: a history to draft after."""

    tokens: Sequence[int]

    @property
    def position(self) -> int:
        """Absolute position of the token after them."""
        return len(self.tokens)


def is_whole(constraint: Constraint, text: Sequence[int], ends: Ids) -> bool:
    """Whether `text` is one of the language: it has ended, or one of the tokens `ends` may follow."""
    allowed = constraint.allowed(text)
    return not allowed.size or bool(np.isin(ends, allowed).any())


def is_allowed(ids: Ids, token: int) -> bool:
    """Whether `token` is one of the ascending `ids`, or any token is."""
    if ids is FREE:
        return True
    at = int(ids.searchsorted(np.int32(token)))
    return at < ids.size and int(ids[at]) == token
