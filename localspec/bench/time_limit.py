"""A worker whose requests end in time: several of them share some seconds, and what is too slow is cut there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from localspec.bench.answers import MeasuringWorker
from localspec.engine.events import Event, Finished
from localspec.settings.jobs import Question, SurveyRequest
from localspec.settings.request import Request

CUT = "timeout"  # the reason of an answer that was cut: what it has counts


class TimeLimit:
    """Passes requests on to a worker. `share` sets the time; each request may take its part of what is left of it."""

    def __init__(self, worker: MeasuringWorker, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker = worker
        self._clock = clock
        self._until = float("inf")
        self._requests = 1
        self.n_cut = 0

    def share(self, until: float, requests: int) -> None:
        """Let the next `requests` end by the time `until` on the clock."""
        self._until, self._requests = until, requests

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self._clock() >= self._until

    def generate(self, request: Request) -> Iterator[Event]:
        """Answer; an answer that is cut ends with the reason `CUT`."""
        return self._limited(lambda: self._worker.generate(request))

    def inspect(self, question: Question) -> Iterator[Event]:
        """Ask something about the pair."""
        return self._worker.inspect(question)

    def survey(self, asked: SurveyRequest) -> Iterator[Event]:
        """Time passes: that has its own budget."""
        return self._worker.survey(asked)

    def cancel(self) -> None:
        """Stop the request that is running."""
        self._worker.cancel()

    def _limited(self, ask: Callable[[], Iterator[Event]]) -> Iterator[Event]:
        part = max(0.0, (self._until - self._clock()) / max(self._requests, 1))
        self._requests -= 1
        end, is_late = self._clock() + part, False
        # No event comes while a prompt is read, so the clock is not enough.
        timer = threading.Timer(min(part, threading.TIMEOUT_MAX), self._worker.cancel)
        timer.daemon = True
        timer.start()
        try:
            for event in ask():
                if isinstance(event, Finished) and event.reason == "interrupted" and self._clock() >= end:
                    self.n_cut += 1
                    event = replace(event, reason=CUT)
                yield event
                if not is_late and self._clock() >= end:
                    is_late = True
                    self._worker.cancel()
        finally:
            timer.cancel()
            timer.join()  # what it cancels must not be the next request
