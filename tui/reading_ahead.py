"""While a person writes, the engine reads what stands fast: the conversation so far, and the text up to now."""

from __future__ import annotations

from pathlib import Path

from localspec.chat.commands import TABLE
from localspec.tui.chat_engine import ChatEngine

WORTH = 200  # characters that are new, before they are read
SUPPLIES = Path("/sys/class/power_supply")


class ReadingAhead:
    """Looked at each second. `when` is "on", "off", or "auto": unless the machine runs on its battery."""

    def __init__(self, engine: ChatEngine, when: str) -> None:
        self._engine = engine
        self._when = when
        self._seen = ""  # the text a second ago
        self._leaf: int | None = None  # the message under which something was read
        self._text = ""  # what was read of the next one

    def look(self, text: str) -> None:
        """Have the engine read, if it has nothing to do and a text of the composer stood still for a second."""
        is_still, self._seen = text == self._seen, text
        state, thread = self._engine.state, self._engine.worker_thread
        if not is_still or state.loaded is None or state.answering is not None or thread.is_busy or "@" in text:
            return
        path = state.messages.path()
        leaf = path[-1].id if path else None
        if leaf != self._leaf:
            self._leaf, self._text = leaf, ""
            is_new = leaf is not None and leaf not in self._engine.traces  # else it was written here: it is known
        else:
            is_new = False
        is_new |= len(text.removeprefix(self._text)) >= WORTH
        if is_new and not TABLE.is_command(text) and self._may():
            self._text = text
            self._engine.read_ahead(text)

    def _may(self) -> bool:
        return self._when == "on" or (self._when == "auto" and not on_battery())


def on_battery(supplies: Path = SUPPLIES) -> bool:
    """Whether the system says that no mains power comes in (Linux)."""
    try:
        mains = [each for each in supplies.iterdir() if (each / "type").read_text().strip() == "Mains"]
        return bool(mains) and not any((each / "online").read_text().strip() == "1" for each in mains)
    except (OSError, UnicodeDecodeError):
        return False
