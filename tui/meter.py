"""Tokens a second by the wall clock, over a sliding window, with its history for a sparkline.

A person waiting sees this, next to `Stats.tok_per_s`, which counts the time inside passes only.
"""

from __future__ import annotations

from collections import deque

WINDOW = 2.0  # seconds
BUCKET = 0.25  # seconds of one bar of the sparkline
TOGETHER = 0.01  # seconds: what is less apart was read at one time
PAUSE = 5.0  # seconds without a token that are no decoding: the machine slept, or the process was stopped
BARS = "▁▂▃▄▅▆▇█"


class Meter:
    """Counts tokens as they arrive. Times are monotonic seconds and never decrease."""

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque()
        self._bucket = 0.0  # when the current bucket began
        self._in_bucket = 0
        self.history: deque[float] = deque(maxlen=64)  # tokens a second, one value a bucket

    def observe(self, at: float, tokens: int) -> None:
        """Count tokens that came together; the first call only starts the clock."""
        if self._arrivals and at - self._arrivals[-1][0] > PAUSE:
            self._arrivals.clear()
            self._in_bucket = 0
        if not self._arrivals:
            self._arrivals.append((at, 0))
            self._bucket = at
            return
        began, so_far = self._arrivals[-1]
        if at - began < TOGETHER:
            self._arrivals[-1] = began, so_far + tokens
        else:
            self._arrivals.append((at, tokens))
        while len(self._arrivals) > 2 and at - self._arrivals[0][0] > WINDOW:
            self._arrivals.popleft()
        while at - self._bucket >= BUCKET:
            self.history.append(self._in_bucket / BUCKET)
            self._in_bucket = 0
            self._bucket += BUCKET
        self._in_bucket += tokens

    def end(self) -> None:
        self.history.append(self.rate or 0.0)

    @property
    def rate(self) -> float | None:
        if len(self._arrivals) < 2:
            return None
        seconds = self._arrivals[-1][0] - self._arrivals[0][0]
        tokens = sum(n for _, n in self._arrivals) - self._arrivals[0][1]
        return tokens / seconds if seconds > 0 else None

    def sparkline(self, width: int) -> str:
        """Return the history as at most `width` bars; the highest bar is the window's highest rate."""
        shown = list(self.history)[-width:]
        top = max(shown, default=0.0)
        return "".join(BARS[round(rate / top * (len(BARS) - 1))] for rate in shown) if top else ""
