"""Everything that is known of one answer: its counters, its passes, and where each token came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from localspec.engine.events import Committed, Event, Finished, Loaded
from localspec.sanitize import Sanitizer, sanitize
from localspec.settings.request import LoadSettings, Request
from localspec.tui.meter import Meter
from localspec.ui.sources import SourceSpans, Span
from localspec.ui.stats import Stats

COPIERS = ("copy", "suffix", "prompt-lookup")  # they draft what the text said before
EARLY = ("early-exit", "lookahead")  # the target drafts for itself


@dataclass(slots=True)
class Trace:
    """One answer as it comes. `observe` its events in order, with their times of arrival. `settings` and `request` are
    those that it is made with, `request` without its messages."""

    stats: Stats
    settings: LoadSettings = field(default_factory=lambda: LoadSettings(""))
    request: Request = field(default_factory=Request)
    meter: Meter = field(default_factory=Meter)
    passes: list[Committed] = field(default_factory=list)
    origins: list[Span] = field(default_factory=list)  # safe to show; a rejected one is not in the text
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
        return cls(Stats(clock, asked_at, loaded), settings, request)

    @property
    def text(self) -> str:
        return "".join(origin.text for origin in self.kept())

    def observe(self, at: float, event: Event) -> str:
        self.stats.observe(event)
        if isinstance(event, Committed | Finished):
            self.reasoning += self._reasoning_sanitizer.feed(event.reasoning)
        if isinstance(event, Committed):
            self.meter.observe(at, len(event.out))
            self.passes.append(event)
            return self._show(event)
        if isinstance(event, Finished):
            self.meter.end()
            shown = "".join(self._add(span.text, span.source) for span in self._spans.release(event.tail))
            return shown + self._sanitizer.finish()
        return ""

    @property
    def is_reasoning(self) -> bool:
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
        rejected = [piece.text for piece in event.drafted if piece.source == "rejected"]
        if rejected:
            self.origins.append(Span(sanitize("".join(rejected[:8])), "rejected"))

    def _add(self, text: str, source: str) -> str:
        text = self._sanitizer.feed(text)
        if text:
            self.origins.append(Span(text, source))
        return text

    def kept(self) -> Iterator[Span]:
        return (origin for origin in self.origins if origin.source != "rejected")
