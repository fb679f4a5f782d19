"""Copy a passage that the text repeats, and go on with it after an edit (LZ77 with a pointer; arXiv 2304.04487).

The *source* is the place in the text whose continuation is copied: where the longest passage of tokens before the
pending end stood before. While the text follows the source nothing is searched. Where it departs, the passage is looked
for anew, and a place near the last source is preferred: an edit changes a name, and the rest goes on. Of a predicted
answer the first tokens are preferred in the same way.

How likely the next token is copied rightly is learned by kind of source and length of the passage (`CopyAcceptance`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from localspec.engine.acceptance import CopyAcceptance, CopyKind
from localspec.engine.constraint import Constraint, is_allowed
from localspec.engine.corpus import BETWEEN
from localspec.engine.draft import Draft
from localspec.engine.protocols import History, Plan
from localspec.methods import DrafterContext, MethodInfo
from localspec.methods._lookup import LookupDrafter, chain

KEY = 3  # tokens by which passages are looked up; shorter ones where those are new
PLACES = 16  # the latest ones that are compared
MAX_PASSAGE = 256  # tokens of a passage that are compared
EDITED = 8  # tokens of a passage from which on leaving it is taken for an edit
NEAR = range(-2, 9)  # tokens from where the last copy departed to a source that goes on with it


Tokens = Sequence[int] | NDArray[np.int32]


@dataclass(slots=True)
class CopySource:
    """A place to copy from: position `at` of `text` has the next token; `length` tokens before it are the passage.
    `text` is the text itself, or a file's of the corpus."""

    text: Tokens
    at: int
    length: int
    kind: CopyKind


class Copy(LookupDrafter):
    """Follows one source. `acceptance` is the evidence about copies, and `constraint` restricts the answer."""

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
        self._corpus = parts.corpus
        self._departed: tuple[Tokens, int] | None = None  # where in the last source the text departed from it

    def resume(self, constraint: Constraint | None, acceptance: CopyAcceptance) -> None:
        self.constraint, self.acceptance = constraint, acceptance

    def reads(self, parts: DrafterContext) -> bool:
        return self.prediction == parts.prediction and self._corpus is parts.corpus

    def learn(self, text: Sequence[int], start: int) -> None:
        if start == 0:
            self._departed = (text, 0) if self.prediction else None  # the answer begins as the prediction, or near that
            self._index(text, 1, len(text))
            self._source = self._likeliest(text, len(text))
            return
        for at in range(start, len(text)):
            source = self._source
            if source is not None:
                is_right = source.text[source.at] == text[at]
                self.acceptance.observe(source.kind, source.length, is_right)
                if is_right:
                    self._source = self._followed(source)
                else:
                    if source.kind is CopyKind.NEAR or source.length >= EDITED:
                        self._departed = source.text, source.at
                    self._source = None
            self._index(text, at, at + 1)
            if self._source is None:
                self._source = self._likeliest(text, at + 1)

    def forget(self) -> None:
        """Start over: reading a text again takes a microsecond a token."""
        self._places.clear()
        self._source = self._departed = None

    def chances(self, history: History, most: int) -> NDArray[np.float64]:
        """Return the chances [n] of at most `most` tokens, each if all before it are right; none without a source."""
        self._read(history.tokens)
        source = self._source
        if source is None:
            return np.empty(0)
        if self.constraint is not None and not is_allowed(
            self.constraint.allowed(history.tokens), self._copied(source, ())
        ):
            return np.empty(0)  # what else is not allowed is cut off the draft
        return self.acceptance.chances(source.kind, source.length, most)

    def grow(self, text: Sequence[int], plan: Plan) -> Draft:
        source = self._source

        def copied(tokens: Sequence[int]) -> int | None:
            token = BETWEEN if source is None else self._copied(source, tokens)
            return None if token == BETWEEN else token

        return chain(text[-1], plan, copied, self.is_eog)

    def _copied(self, source: CopySource, tokens: Sequence[int]) -> int:
        """Return the token of a source that follows the copied `tokens`; BETWEEN at the end of a file."""
        at, text = source.at + len(tokens), source.text
        if text is self._text and at >= len(text):
            return tokens[at - len(text)]
        return int(text[at]) if at < len(text) else BETWEEN

    def _followed(self, source: CopySource) -> CopySource | None:
        at = source.at + 1
        if source.text is not self._text and source.text[at] == BETWEEN:
            return None
        rest = CopyKind.ONLY if source.text is self._text else CopyKind.FILE
        kind = rest if source.kind is CopyKind.DIVIDED else source.kind
        return CopySource(source.text, at, source.length + 1, kind)

    def _index(self, text: Sequence[int], start: int, end: int) -> None:
        places = self._places
        for at in range(start, end):
            for key in ((text[at - 1],), tuple(text[max(0, at - KEY) : at])):
                if key in places:
                    places[key].append(at)
                else:
                    places[key] = [at]

    def _likeliest(self, text: Sequence[int], end: int) -> CopySource | None:
        places = self._places.get(tuple(text[max(0, end - KEY) : end])) or self._places.get((text[end - 1],), [])
        sources = [
            *self._best(text, end, [(text, at) for at in places[-PLACES:]], CopyKind.ONLY),
            *self._near(text, end),
        ]
        if self._corpus is not None:
            sources += self._best(text, end, list(self._corpus.places(text, end)), CopyKind.FILE)
        return max(sources, key=lambda source: self.acceptance.chance(source.kind, source.length), default=None)

    def _best(
        self, text: Sequence[int], end: int, places: Sequence[tuple[Tokens, int]], kind: CopyKind
    ) -> Iterator[CopySource]:
        lengths = [_passage(text, end, *place) for place in places]
        longest = max(lengths, default=0)
        best = [place for length, place in zip(lengths, places, strict=True) if length == longest]
        if best:
            is_divided = len({int(source[at]) for source, at in best}) > 1
            yield CopySource(*best[-1], longest, CopyKind.DIVIDED if is_divided else kind)

    def _near(self, text: Sequence[int], end: int) -> Iterator[CopySource]:
        if self._departed is None:
            return
        source, departed = self._departed
        last = end if source is text else len(source)
        near = [
            (_passage(text, end, source, at), -abs(at - departed), at)
            for at in (departed + by for by in NEAR)
            if 0 < at < last and source[at - 1] == text[end - 1] and source[at] != BETWEEN
        ]
        if near:
            length, _, at = max(near)
            yield CopySource(source, at, length, CopyKind.NEAR)


def _passage(text: Sequence[int], end: int, source: Tokens, at: int) -> int:
    n, most = 0, min(at, end, MAX_PASSAGE)
    while n < most and source[at - 1 - n] == text[end - 1 - n]:
        n += 1
    return n
