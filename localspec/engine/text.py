"""From token bytes to text that may be shown: whole characters, nothing past a stop string, reasoning apart.

Invariant: what has been returned is never taken back. A character whose bytes are still coming and a suffix that may
become a stop string are held until they are decided, or until `finish`.

A model writes its reasoning between two marks. The chat template names them, and may have written the first one at the
end of the prompt. Reasoning stands at the beginning of an answer and nowhere else: marks further on are ordinary text.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class TextStream:
    """Incremental UTF-8 decoding with stop strings. `stopping_word` is the one that was met; its text is dropped."""

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stops = stops
        self._held = ""
        self.stopping_word = ""

    def feed(self, piece: bytes) -> str:
        """Take the bytes of one token; return the text that is now certain."""
        text = self._decoder.decode(piece)
        if not self._stops:
            return text  # only the decoder holds anything back
        self._held += text
        # The stop string that is complete first wins, so that the text does not depend on how tokens split it.
        matches = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if matches:
            _, at, self.stopping_word = min(matches)
            text, self._held = self._held[:at], ""
            return text
        keep = max((overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def finish(self) -> str:
        """Return the text that was held back, as no stop string came. A character that is not whole is left out."""
        text, self._held = self._held, ""
        return text


def overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of `stop`."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens the two texts share at their start."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next((i for i in range(n) if a[i] != b[i]), n)  # a list and a tuple differ as a whole


@dataclass(frozen=True, slots=True)
class Marks:
    """The texts around the reasoning. `is_open`: the prompt ends inside it.

    `skip` is what an answer without reasoning begins with in place of `start`, "" if nothing. `calls` are texts that
    end the reasoning as well, and belong to the answer: a call of a tool follows them.
    """

    start: str
    end: str
    skip: str = ""
    is_open: bool = False
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """Text that became certain: some of the reasoning, and some of the answer."""

    reasoning: str = ""
    answer: str = ""


class ReasoningStream:
    """Splits text as it comes. What may become a mark is held until that is decided; without marks all is answer.

    Blank lines around the reasoning are dropped.
    """

    def __init__(self, marks: Marks | None) -> None:
        self._marks = marks
        self._step: Callable[[Marks], Parts] = self._answer if marks is None else self._start
        self._held = ""
        self._is_blank = True  # nothing of the reasoning has come but blank lines

    def feed(self, text: str) -> Parts:
        """Take the next text; return the parts that are certain now."""
        if self._marks is None:
            return Parts("", text)
        self._held += text
        reasoning = answer = ""
        while True:
            before, step = self._held, self._step
            parts = step(self._marks)
            reasoning, answer = reasoning + parts.reasoning, answer + parts.answer
            if self._step == step and self._held in ("", before):
                return Parts(reasoning, answer)

    def finish(self, text: str) -> Parts:
        """Take the last text; return it with all that was held."""
        parts = self.feed(text)
        rest, self._held = self._held, ""
        if self._marks is None or self._step == self._after:
            return parts
        if self._step == self._inside or (self._step == self._start and self._marks.is_open):
            return Parts(parts.reasoning + rest.rstrip(), parts.answer)
        return Parts(parts.reasoning, parts.answer + rest)

    def _start(self, marks: Marks) -> Parts:
        text = self._held.lstrip()
        for mark, step in ((marks.start, self._inside), (marks.skip, self._after)):
            if mark and text.startswith(mark):
                self._held, self._step = text[len(mark) :], step
                return Parts()
            if mark.startswith(text):
                return Parts()  # the mark itself may still come
        self._step = self._inside if marks.is_open else self._answer
        return Parts()

    def _inside(self, marks: Marks) -> Parts:
        ends = [(at, mark) for mark in (marks.end, *marks.calls) if (at := self._held.find(mark)) >= 0]
        if ends:
            at, mark = min(ends)
            behind = at + len(mark) if mark == marks.end else at
            text, self._held, self._step = self._held[:at].rstrip(), self._held[behind:], self._after
        else:
            begun = max(overlap(self._held, mark) for mark in (marks.end, *marks.calls))
            cut = len(self._held[: len(self._held) - begun].rstrip())
            text, self._held = self._held[:cut], self._held[cut:]
        if self._is_blank:
            text = text.lstrip()
        self._is_blank = self._is_blank and not text
        return Parts(text)

    def _after(self, _marks: Marks) -> Parts:
        self._held = self._held.lstrip("\n")
        if self._held:
            self._step = self._answer
        return Parts()

    def _answer(self, _marks: Marks) -> Parts:
        text, self._held = self._held, ""
        return Parts("", text)
