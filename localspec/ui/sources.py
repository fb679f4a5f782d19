"""The text of an answer, cut by the tokens it came from.

Tokens and released text do not arrive in step: text is held until its characters are whole and no stop string can begin
in it. So tokens queue up, and each takes its share of the text.
"""

from collections import deque
from dataclasses import dataclass

from localspec.engine.events import Committed, Piece


@dataclass(frozen=True, slots=True)
class Span:
    """Text that came from one token, or from tokens that share a character."""

    text: str
    source: str


class SourceSpans:
    def __init__(self) -> None:
        self._queue: deque[Piece] = deque()

    def feed(self, event: Committed) -> list[Span]:
        self._queue.extend(piece for piece in event.out if piece.text)
        self.release(event.reasoning)  # its tokens are no part of the answer
        return self.release(event.text)

    def release(self, text: str) -> list[Span]:
        spans = []
        while text and self._queue:
            piece = self._queue.popleft()
            if text.startswith(piece.text):
                n = len(piece.text)
            elif piece.text.startswith(text):  # the rest of this token is held back, or cut off by a stop string
                n = len(text)
                self._queue.appendleft(Piece(piece.id, piece.text[n:], piece.source))
            else:
                n = self._partial(text)
            if n:
                spans.append(Span(text[:n], piece.source))
            text = text[n:]
        if text:
            spans.append(Span(text, "plain"))
        return spans

    def _partial(self, text: str) -> int:
        while self._queue:
            at = text.find(self._queue[0].text)
            if at >= 0 and "\ufffd" not in self._queue[0].text:
                return at
            self._queue.popleft()
        return len(text)
