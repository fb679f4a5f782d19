"""An answer on its way to the store, written while it comes."""

from __future__ import annotations

from typing import Any

from localspec.conversations.current import Current
from localspec.conversations.records import ASSISTANT
from localspec.engine.events import Committed, Event, Finished


class Record:
    """Takes the events of one answer to what was asked last. One that says nothing leaves nothing behind."""

    def __init__(self, current: Current) -> None:
        self._current = current
        self._message: int | None = None

    def event(self, event: Event) -> None:
        """Keep the text that an event released."""
        if isinstance(event, Committed):
            self._add(event.text)
        elif isinstance(event, Finished):
            self._add(event.tail)

    def finish(self, reason: str, stats: dict[str, Any]) -> None:
        """Complete the answer; `stats` is the object of --json."""
        if self._message is not None:
            # What the message itself says is left out.
            kept = {name: value for name, value in stats.items() if name not in ("text", "session")}
            self._current.store.finish(self._message, reason, kept)

    def _add(self, text: str) -> None:
        if not text:
            return
        if self._message is None:
            assert self._current.id is not None, "something was asked"
            message = self._current.store.add_message(self._current.id, self._current.leaf, ASSISTANT)
            self._message = self._current.leaf = message.id
        self._current.store.append_text(self._message, text)
