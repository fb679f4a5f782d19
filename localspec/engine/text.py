"""From token bytes to text that may be shown: whole characters only, and nothing past a stop string.

Invariant: what has been returned is never taken back. A character whose bytes are still coming and a suffix that may
become a stop string are held until they are decided, or until `finish`.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Incremental UTF-8 decoding with stop strings. `stopping_word` is the one that was met; its text is dropped."""

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stops = stops
        self._held = ""
        self.stopping_word = ""

    @property
    def has_stopped(self) -> bool:
        return bool(self.stopping_word)

    def feed(self, piece: bytes) -> str:
        """Take the bytes of one token; return the text that is now certain."""
        text = self._decoder.decode(piece)
        if not self._stops:
            return text  # only the decoder holds anything back
        self._held += text
        # The stop string that is complete first wins, so that the text does not depend on how tokens split it.
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            _, at, self.stopping_word = min(found)
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
