"""The one way in which a command starts a pair: its process, its warnings, Ctrl-C, and the status beside the output.

    with open_engine(console, options.log_file) as engine:
        loaded = engine.load(settings)

Every warning of a load reaches the person here. A child that dies raises WorkerDiedError; the first Ctrl-C cancels
the request at hand, and the second leaves at once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.chat.pair_loader import ChatWorker, PairLoader
from localspec.cli.console import Console
from localspec.cli.live import Live
from localspec.cli.output import Sink
from localspec.cli.settings import open_worker
from localspec.cli.signals import Stop, deferred, leave_at_once, stopping
from localspec.engine.events import Committed, Event, Finished, Loaded, Loading, Reading, Warned
from localspec.settings.jobs import LoadedJob
from localspec.settings.request import LoadSettings
from localspec.ui.doing import Doing
from localspec.ui.stats import Stats
from localspec.worker.keep_policy import KeepAlive

if TYPE_CHECKING:
    from localspec.worker.served import ServedWorker


def _live_line(stats: Stats) -> str:
    from localspec.ui.summary import live_line  # late: the first word goes before it

    return live_line(stats)


@dataclass(frozen=True)
class PairEngine:
    """A worker as one command uses it, with the streams of the command and the reason why it was stopped."""

    worker: ChatWorker
    pairs: PairLoader
    live: Live
    console: Console
    stop: Stop

    def is_stopped(self) -> bool:
        return self.stop.is_asked

    def leave_if_stopped(self) -> None:
        self.stop.leave_if_told(is_script=True)

    def tell_start(self, settings: LoadSettings) -> None:
        if not self.pairs.has(settings):
            self.live.status("starting the engine")

    def load(self, settings: LoadSettings) -> Loaded | None:
        self.tell_start(settings)
        loaded, doing = None, Doing()
        for event in self.pairs.ready(settings, self.is_stopped):
            self._warn(event)
            loaded = event if isinstance(event, Loaded) else loaded
            if doing.observe(time.monotonic(), event) and self.live.is_due:
                self.live.status(doing.words)
        return None if self.is_stopped() else loaded

    def start(self, job: LoadedJob) -> Iterator[Event]:
        """Ask the loaded pair: a `MeasuringWorker`, whose jobs end at once where a stop was asked for before."""
        return self.pairs.start(job, self.is_stopped)

    def cancel(self) -> None:
        self.worker.cancel()

    def follow(self, events: Iterable[Event], stats: Stats, sink: Sink) -> None:
        """Hand every event to the counters, the sink and the status, in that order; a stop for time is told as such."""
        live, has_numbers, doing = self.live, False, Doing()  # numbers in the status
        for event in events:
            if isinstance(event, Finished) and self.stop.is_timeout:
                event = dataclasses.replace(event, reason="timeout")
            stats.observe(event)
            if not stats.passes:  # later ones are told below the text
                self._warn(event)
            is_first = isinstance(event, Committed) and not has_numbers
            if is_first:
                live.erase()  # text comes: what the status said of the prompt is over, numbers or not
            sink.event(event)
            is_told = doing.observe(time.monotonic(), event)
            line = _live_line(stats) if isinstance(event, Committed) else doing.words if is_told else ""
            if line and (live.is_due or is_first or not isinstance(event, Committed | Loading | Reading)):
                live.status(line)
                has_numbers = isinstance(event, Committed)

    def _warn(self, event: Event) -> None:
        if isinstance(event, Warned):
            self.live.erase()
            self.console.warn(event.message)


@contextmanager
def open_engine(
    console: Console,
    log_file: str | None,
    timeout: float | None = None,
    *,
    keep_alive: KeepAlive | None = None,
    far: ServedWorker | None = None,
) -> Iterator[PairEngine]:
    """Yield an engine for a command that measures; its process ends with the block. `keep_alive` as `SharedWorker` has
    it. `far` takes its place, where a server answers."""
    worker = far or open_worker(log_file, keep_alive)
    with worker, asking(worker, Live(console, is_long=True), console, timeout) as engine:
        yield engine


@contextmanager
def asking(
    worker: ChatWorker,
    live: Live,
    console: Console,
    timeout: float | None = None,
    *,
    pairs: PairLoader | None = None,
    cancel: Callable[[], None] | None = None,
    again: Callable[[], None] | None = None,
) -> Iterator[PairEngine]:
    """Yield the engine for one answer or measurement. The first signal, or `timeout` seconds, calls `cancel`, which is
    the worker's own; further ones call `again`, which leaves at once. Ctrl-C waits while a process starts."""
    try:
        with stopping(cancel or worker.cancel, again or leave_at_once(live.erase), timeout) as stop:
            yield PairEngine(worker, pairs or PairLoader(worker, deferred), live, console, stop)
    finally:
        live.erase()
