"""The reasoning of an answer told apart from the answer itself, while both come.

A model writes its reasoning between two marks. The chat template names them, and may have written the first one at the
end of the prompt. Reasoning stands at the beginning of an answer and nowhere else: marks further on are ordinary text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localspec.engine.text import overlap


@dataclass(frozen=True, slots=True)
class Marks:
    """The texts around the reasoning. `is_open`: the prompt ends inside it.

    `skip` is what an answer without reasoning begins with in place of `start`, "" if nothing.
    """

    start: str
    end: str
    skip: str = ""
    is_open: bool = False


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
            found = step(self._marks)
            reasoning, answer = reasoning + found.reasoning, answer + found.answer
            if self._step == step and self._held in ("", before):
                return Parts(reasoning, answer)

    def finish(self, text: str) -> Parts:
        """Take the last text; return it with all that was held."""
        found = self.feed(text)
        rest, self._held = self._held, ""
        if self._marks is None or self._step == self._after:
            return found
        if self._step == self._inside or (self._step == self._start and self._marks.is_open):
            return Parts(found.reasoning + rest.rstrip(), found.answer)
        return Parts(found.reasoning, found.answer + rest)

    def _start(self, marks: Marks) -> Parts:
        """Decide whether the answer begins with reasoning."""
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
        """Release reasoning up to its end."""
        at = self._held.find(marks.end)
        if at >= 0:
            text, self._held, self._step = self._held[:at].rstrip(), self._held[at + len(marks.end) :], self._after
        else:
            cut = len(self._held[: len(self._held) - overlap(self._held, marks.end)].rstrip())
            text, self._held = self._held[:cut], self._held[cut:]
        if self._is_blank:
            text = text.lstrip()
        self._is_blank = self._is_blank and not text
        return Parts(text)

    def _after(self, _marks: Marks) -> Parts:
        """Drop the blank lines before the answer."""
        self._held = self._held.lstrip("\n")
        if self._held:
            self._step = self._answer
        return Parts()

    def _answer(self, _marks: Marks) -> Parts:
        """Release all."""
        text, self._held = self._held, ""
        return Parts("", text)
