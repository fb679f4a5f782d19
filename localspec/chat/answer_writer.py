"""An answer on its way to the store, written while it comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from localspec.chat.message_tree import Node
from localspec.chat.state import ChatState
from localspec.engine.events import Committed, Event, Finished


class AnswerWriter:
    """Keeps the text of one answer. The answer begins with its first text: an empty one leaves nothing."""

    def __init__(self, state: ChatState, asked: Node | None = None) -> None:
        self.asked = asked
        self._state = state
        self._text = ""

    def recorded(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield the events, each after its text was kept."""
        for event in events:
            if isinstance(event, Committed):
                self._add(event.text)
            elif isinstance(event, Finished):
                self._add(event.tail)
            yield event

    def finish(self, reason: str, stats: dict[str, Any]) -> None:
        """End the answer; `stats` is the object of --json."""
        if self._text:
            self._state.end_answer(self._text, reason, stats)

    def _add(self, text: str) -> None:
        if text and self.asked is not None:
            if not self._text:
                self._state.begin_answer(self.asked)
            self._text += text
            assert self._state.answering is not None
            self._state.writer.append(self._state.answering, text)
