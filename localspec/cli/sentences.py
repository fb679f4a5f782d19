"""Text in pieces that a screen reader can speak: whole sentences and lines, not the fragments in which it comes."""

from __future__ import annotations

import re

MAX_HELD = 400  # characters that are held back, where no sentence ends
_END = re.compile(r".*(?:[.!?…:;][\"')\]»”’]*\s|[。！？]|\n)", re.DOTALL)


class Sentences:
    """Holds text back until a sentence or a line is complete."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Take the next piece; return what is complete."""
        self._held += text
        found = _END.match(self._held)
        n = found.end() if found else len(self._held) if len(self._held) > MAX_HELD else 0
        done, self._held = self._held[:n], self._held[n:]
        return done

    def finish(self) -> str:
        """Return what was held back."""
        rest, self._held = self._held, ""
        return rest
