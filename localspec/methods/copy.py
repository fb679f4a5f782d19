"""Copy a passage that the text repeats, and go on with it after an edit (LZ77 with a pointer; arXiv 2304.04487).

The *source* is the place in the text whose continuation is copied: where the longest passage of tokens before the
pending end stood before. While the text follows the source nothing is searched. Where it departs, the passage is looked
for anew, and a place near the last source is preferred: an edit changes a name, and the rest goes on. Of a predicted
answer the first tokens are preferred in the same way.

How likely the next token is copied rightly is learned by kind of source and length of the passage (`CopyAcceptance`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from localspec.engine.acceptance import CopyAcceptance, CopyKind
from localspec.engine.constraint import Constraint, is_allowed
from localspec.engine.draft import Draft
from localspec.engine.protocols import History, Plan
from localspec.methods import DrafterContext, MethodInfo
from localspec.methods._lookup import Guess, LookupDrafter, chain

KEY = 3  # tokens by which passages are looked up; shorter ones where those are new
PLACES = 16  # the latest ones that are compared
LONGEST = 256  # tokens of a passage that are compared
EDITED = 8  # tokens of a passage from which on leaving it is taken for an edit
NEAR = range(-2, 9)  # tokens from where the last copy departed to a source that goes on with it


@dataclass(slots=True)
class CopySource:
    """A place to copy from: the position `at` of the next token, and the passage of `length` tokens that led there."""

    at: int
    length: int
    kind: CopyKind


class Copy(LookupDrafter):
    """Follows one source. `acceptance` is what is known of copies; a planner may replace it, and the `constraint`."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="copy",
        summary="copies the longest passage that the text repeats, and continues it after an edit",
        needs="nothing",
        paper="2304.04487",
        is_lossless=True,
        default_k=16,
        has_own_shape=True,
    )

    def __init__(self, parts: DrafterContext) -> None:
        super().__init__(parts)
        self.acceptance = CopyAcceptance()
        self.constraint = parts.sampler.constraint
        self._places: dict[tuple[int, ...], list[int]] = {}
        self._source: CopySource | None = None
        self._departed: int | None = None  # position in the last source at which the text departed from it

    def learn(self, text: Sequence[int], start: int) -> None:
        """Index the new tokens; those of the answer also teach how often copies are right."""
        if start == 0:
            self._departed = 0 if self.prediction else None  # the answer begins as the prediction, or near that
            self._index(text, 1, len(text))
            self._source = self._found(text, len(text))
            return
        for at in range(start, len(text)):
            source = self._source
            if source is not None:
                is_right = text[source.at] == text[at]
                self.acceptance.observe(source.kind, source.length, is_right)
                if is_right:
                    kind = CopyKind.ONLY if source.kind is CopyKind.DIVIDED else source.kind
                    self._source = CopySource(source.at + 1, source.length + 1, kind)
                else:
                    if source.kind is CopyKind.NEAR or source.length >= EDITED:
                        self._departed = source.at
                    self._source = None
            self._index(text, at, at + 1)
            if self._source is None:
                self._source = self._found(text, at + 1)

    def forget(self, length: int) -> int:
        """Start over: reading a text again takes a microsecond a token."""
        self._places.clear()
        self._source = self._departed = None
        return 0

    def chances(self, history: History, most: int) -> NDArray[np.float64]:
        """Return the chances [n] of at most `most` tokens, each if all before it are right; none without a source."""
        self._read(history.tokens)
        source = self._source
        if source is None:
            return np.empty(0)
        if self.constraint is not None:
            most = self._allowed(self.constraint, history.tokens, source, most)
        return self.acceptance.chances(source.kind, source.length, most) if most else np.empty(0)

    def _allowed(self, constraint: Constraint, text: Sequence[int], source: CopySource, most: int) -> int:
        """Return how many tokens of a copy the constraint allows after `text`, at most `most`."""
        copied: list[int] = []
        for n in range(most):
            at = source.at + n
            token = self._text[at] if at < len(self._text) else copied[at - len(self._text)]
            if not is_allowed(constraint.allowed([*text, *copied]), token):
                return n
            copied.append(token)
        return most

    def grow(self, text: Sequence[int], plan: Plan) -> Draft:
        """Copy from the source; a copy may run into itself, so that a loop goes on."""
        source = self._source

        def copied(tokens: Sequence[int]) -> Guess | None:
            if source is None:
                return None
            at = source.at + len(tokens)
            token = text[at] if at < len(text) else tokens[at - len(text)]
            return Guess(token, {token: 1})

        return chain(text[-1], plan, copied, self.is_eog)

    def _index(self, text: Sequence[int], start: int, end: int) -> None:
        """Note where each passage of up to KEY tokens is followed by the token at `start` to `end` - 1."""
        places = self._places
        for at in range(start, end):
            for key in ((text[at - 1],), tuple(text[max(0, at - KEY) : at])):
                if key in places:
                    places[key].append(at)
                else:
                    places[key] = [at]

    def _found(self, text: Sequence[int], end: int) -> CopySource | None:
        """Return the likeliest source after `text[:end]`."""
        places = self._places.get(tuple(text[max(0, end - KEY) : end])) or self._places.get((text[end - 1],))
        if not places:
            return None
        found = [(_passage(text, end, at), at) for at in places[-PLACES:]]
        longest = max(length for length, _ in found)
        best = [at for length, at in found if length == longest]
        is_divided = len({text[at] for at in best}) > 1
        candidates = [CopySource(best[-1], longest, CopyKind.DIVIDED if is_divided else CopyKind.ONLY)]
        if self._departed is not None:
            near = [
                (_passage(text, end, at), -abs(at - self._departed), at)
                for at in (self._departed + by for by in NEAR)
                if 0 < at < end and text[at - 1] == text[end - 1]
            ]
            if near:
                length, _, at = max(near)
                candidates.append(CopySource(at, length, CopyKind.NEAR))
        return max(candidates, key=lambda one: self.acceptance.chance(one.kind, one.length))


def _passage(text: Sequence[int], end: int, at: int) -> int:
    """Return how many tokens before `at` equal those before `end`, LONGEST at most."""
    n, most = 0, min(at, LONGEST)
    while n < most and text[at - 1 - n] == text[end - 1 - n]:
        n += 1
    return n
