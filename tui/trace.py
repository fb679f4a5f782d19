"""Everything that is known of one answer: its counters, its passes, and where each token came from.

Also here: tokens a second by the wall clock, over a sliding window, with its history for a sparkline.

This is what a person waiting sees, next to `Stats.tok_per_s`, which counts the time inside passes only.

And an answer shown by where each token came from: colour, and a mark for all that is not the draft model's.

Accepted from the draft model: green, unmarked. Copied from the text ‹so›, drafted by the target itself ⟨so⟩, corrected
⟦so⟧, bonus so⁺, plain ·so·. Rejected drafts, where they are revealed, are struck through.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from textual.content import Content

from localspec.engine.events import Committed, Event, Finished, Loaded
from localspec.sanitize import Sanitizer, sanitize
from localspec.settings.request import LoadSettings, Request
from localspec.ui.sources import SourceSpans
from localspec.ui.stats import Stats

_MARKS = {"copied": ("‹", "›"), "early": ("⟨", "⟩"), "corrected": ("⟦", "⟧"), "bonus": ("", "⁺"), "plain": ("·", "·")}
LEGEND = (
    ("draft", "draft"),
    ("copied", "‹copied›"),
    ("early", "⟨early⟩"),
    ("corrected", "⟦corrected⟧"),
    ("bonus", "bonus⁺"),
    ("plain", "·plain·"),
)
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

    @property
    def rate(self) -> float | None:
        """Tokens a second over the window, None before there are two arrivals."""
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


COPIERS = ("copy", "suffix", "prompt-lookup")  # they draft what the text said before
EARLY = ("early-exit", "lookahead")  # the target drafts for itself


@dataclass(frozen=True, slots=True)
class SourcedText:
    """Text from one source: draft, copied, early, corrected, bonus, plain, or rejected (which is not in the text)."""

    text: str  # safe to show
    source: str


@dataclass(slots=True)
class Trace:
    """One answer as it comes. `observe` its events in order, with their times of arrival.

    `settings` and `request` are those that it is made with, `request` without its messages.
    """

    stats: Stats
    settings: LoadSettings = field(default_factory=lambda: LoadSettings(""))
    request: Request = field(default_factory=Request)
    meter: Meter = field(default_factory=Meter)
    passes: list[Committed] = field(default_factory=list)
    origins: list[SourcedText] = field(default_factory=list)
    reasoning: str = ""  # safe to show
    _spans: SourceSpans = field(default_factory=SourceSpans)
    _sanitizer: Sanitizer = field(default_factory=Sanitizer)
    _reasoning_sanitizer: Sanitizer = field(default_factory=Sanitizer)

    @classmethod
    def begin(
        cls,
        settings: LoadSettings,
        request: Request,
        loaded: Loaded | None,
        clock: Callable[[], float],
        asked_at: float | None = None,
    ) -> Trace:
        """Return the trace of an answer by the pair that is loaded, or will be; `asked_at` as in `Stats`."""
        return cls(Stats(clock, asked_at, loaded), settings, request)

    @property
    def text(self) -> str:
        """The text so far, safe to show."""
        return "".join(origin.text for origin in self.kept())

    def observe(self, at: float, event: Event) -> str:
        """Take an event into account; return what it adds to the shown text."""
        self.stats.observe(event)
        if isinstance(event, Committed | Finished):
            self.reasoning += self._reasoning_sanitizer.feed(event.reasoning)
        if isinstance(event, Committed):
            self.meter.observe(at, len(event.out))
            self.passes.append(event)
            return self._show(event)
        if isinstance(event, Finished):
            self.meter.history.append(self.meter.rate or 0.0)
            shown = "".join(self._add(span.text, span.source) for span in self._spans.release(event.tail))
            return shown + self._sanitizer.finish()
        return ""

    @property
    def is_reasoning(self) -> bool:
        """Whether the model still reasons: its answer has not begun."""
        return bool(self.reasoning) and self.stats.finished is None and not self.stats.text

    def _show(self, event: Committed) -> str:
        shown, was_rejected = [], False
        for span in self._spans.feed(event):
            source = span.source
            if source == "forced":
                source = "plain"  # nobody drafted it
            elif source == "accepted":
                source = "copied" if event.drafter in COPIERS else "early" if event.drafter in EARLY else "draft"
            elif not was_rejected:
                was_rejected = True
                self._reject(event)
            shown.append(self._add(span.text, source))
        return "".join(shown)

    def _reject(self, event: Committed) -> None:
        """Note what was drafted for the place of the target's own token: of a tree, the first that was refused."""
        rejected = [piece.text for piece in event.drafted if piece.source == "rejected"]
        if rejected:
            self.origins.append(SourcedText(sanitize("".join(rejected[:8])), "rejected"))

    def _add(self, text: str, source: str) -> str:
        text = self._sanitizer.feed(text)
        if text:
            self.origins.append(SourcedText(text, source))
        return text

    def kept(self) -> Iterator[SourcedText]:
        """Yield the origins of the text itself."""
        return (origin for origin in self.origins if origin.source != "rejected")


class View(Enum):
    """The ways to show answers; F3 goes round."""

    OFF = "off"
    FULL = "full"
    MARKS = "marks"  # without colours

    def next(self) -> View:
        views = list(View)
        return views[(views.index(self) + 1) % len(views)]


def marked(origins: Iterable[SourcedText], view: View, *, is_revealed: bool = False) -> Content:
    """Return the text of `origins` with marks, and in full view with colours and, if revealed, rejected drafts."""
    parts: list[tuple[str, str]] = []
    merged = _merged(origins)
    if {origin.source for origin in merged} <= {"plain"}:  # nothing to tell apart
        return Content("".join(origin.text for origin in merged))
    for origin in merged:
        if origin.source == "rejected":
            if is_revealed:
                parts.append((origin.text.replace("\n", "↵"), "$origin-rejected strike"))
            continue
        style = f"$origin-{origin.source}" if view is View.FULL else ""
        before, after = _MARKS.get(origin.source, ("", ""))
        word = origin.text.lstrip()
        if not word:
            parts.append((origin.text, style))
            continue
        space = origin.text[: len(origin.text) - len(word)]
        body = word.rstrip()
        parts.append((f"{space}{before}{body}{after}{word[len(body) :]}", style))
    return Content.assemble(*parts)


def legend(origins: Iterable[SourcedText], view: View) -> Content:
    """Return what the marks and colours in `origins` mean."""
    sources = {origin.source for origin in origins}
    shown = [
        (f"{text} ", f"$origin-{source}" if view is View.FULL else "$muted")
        for source, text in LEGEND
        if source in sources
    ]
    return Content.assemble(*shown)


def _merged(origins: Iterable[SourcedText]) -> list[SourcedText]:
    """Join neighbours that were copied or drafted together: one pair of marks a run reads better."""
    merged: list[SourcedText] = []
    for origin in origins:
        is_run = origin.source in ("draft", "copied", "early", "plain")
        if merged and is_run and merged[-1].source == origin.source:
            merged[-1] = SourcedText(merged[-1].text + origin.text, origin.source)
        else:
            merged.append(origin)
    return merged
