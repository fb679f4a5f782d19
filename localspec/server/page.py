"""The page of the server, and what it shows: the running answer and the last ones, with their tokens by origin.

Text of a model reaches the page as JSON, and the page puts it in as text only. Its policy allows its own script and
style by their hashes, and no other source of anything.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import deque
from functools import cache
from importlib.resources import files

from localspec.engine.events import Committed, Event, Finished
from localspec.server.refusal import Wire
from localspec.ui.sources import SourceSpans, Span
from localspec.ui.stats import Stats

LAST = 5  # answers that are kept to be shown
LONGEST = 400  # spans of an answer that are shown: its end


class Board:
    """What the page shows. The engine's thread writes it; a look from another thread may be a pass behind."""

    def __init__(self) -> None:
        self._stats: Stats | None = None
        self._cut = SourceSpans()
        self._spans: deque[Span] = deque(maxlen=LONGEST)
        self._last: deque[Wire] = deque(maxlen=LAST)

    def begin(self, stats: Stats) -> None:
        """Show an answer from here on; `stats` are its figures so far."""
        self._cut, self._spans, self._stats = SourceSpans(), deque(maxlen=LONGEST), stats

    def observe(self, event: Event) -> None:
        """Take what an event released."""
        if isinstance(event, Committed):
            self._spans.extend(self._cut.feed(event))
        elif isinstance(event, Finished):
            self._spans.extend(self._cut.release(event.tail))

    def end(self) -> None:
        """Put the answer among the last ones, if it has begun."""
        if self._stats is not None and self._stats.passes:
            self._last.appendleft(_told(self._stats, self._spans))
        self._stats = None

    def told(self) -> Wire:
        """Return the running answer, None without one, and the last ones, the latest first."""
        stats = self._stats
        return {"running": None if stats is None else _told(stats, self._spans), "last": list(self._last)}


def _told(stats: Stats, spans: deque[Span]) -> Wire:
    started = stats.started
    return {
        "method": started.method if started is not None else "",
        "emitted": stats.emitted,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "acceptance": stats.acceptance,
        "tok_per_s": stats.tok_per_s,
        "speedup": stats.speedup if stats.finished is not None else None,
        "reason": stats.finished.reason if stats.finished is not None else "",
        "spans": [{"text": span.text, "source": span.source} for span in spans.copy()],
    }


@cache
def page() -> tuple[bytes, dict[str, str]]:
    """Return the page and its headers."""
    text = files("localspec.server").joinpath("page.html").read_text("utf-8")
    script, style = (_hash(re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)[0]) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    told = {"content-security-policy": policy, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
    return text.encode(), {**told, "cache-control": "no-store"}


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
