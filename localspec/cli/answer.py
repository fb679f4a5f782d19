"""Following one answer: events to the counters, the sink and the live status, in that order."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import time
from collections.abc import Iterable, Iterator

from localspec.chat.pair_loader import PairLoader
from localspec.cli.console import Console, is_terminal
from localspec.cli.live import Live
from localspec.cli.output import Sink
from localspec.cli.signals import Stop, deferred
from localspec.engine.events import Committed, Event, Finished, Loading, Reading, Warned
from localspec.settings.request import LoadSettings
from localspec.ui.doing import Doing
from localspec.ui.stats import Stats
from localspec.ui.summary import is_slower, live_line, plans, stats_line, verdict
from localspec.worker.client import Worker

GLOSSARY = "words: localspec explain"


def follow(events: Iterable[Event], stats: Stats, sink: Sink, live: Live, console: Console, stop: Stop) -> None:
    """Hand every event on until there is none; a stop for time is told as such."""
    has_numbers, doing = False, Doing()  # in the status
    for event in events:
        if isinstance(event, Finished) and stop.is_timeout:
            event = dataclasses.replace(event, reason="timeout")
        stats.observe(event)
        if isinstance(event, Warned):
            live.erase()
            console.warn(event.message)
        is_first = isinstance(event, Committed) and not has_numbers
        if is_first:
            live.erase()  # text comes: what the status said of the prompt is over, numbers or not
        sink.event(event)
        is_told = doing.observe(time.monotonic(), event)
        line = live_line(stats) if isinstance(event, Committed) else doing.words if is_told else ""
        if line and (live.is_due or is_first or not isinstance(event, Committed | Loading | Reading)):
            live.status(line)
            has_numbers = isinstance(event, Committed)


def load(worker: Worker, settings: LoadSettings, stop: Stop) -> Iterator[Event]:
    """Yield what happens while the pair loads; ends after Loaded, or Finished if it was stopped."""
    return loader(worker).ready(settings, lambda: stop.is_asked)


def loader(worker: Worker) -> PairLoader:
    """Return a loader during whose start of a process Ctrl-C waits."""
    return PairLoader(worker, deferred)


def ended_by_itself(stats: Stats) -> bool:
    """Whether nobody stopped the answer."""
    return stats.finished is not None and stats.finished.reason not in ("interrupted", "timeout")


def tell(stats: Stats, console: Console, *, with_plans: bool = False) -> None:
    """Write the stats line and below it what the plans promised, if that is asked, and what the controller found.

    On a terminal the stats line is one line, unless all is asked for.
    """
    room = None if with_plans or not is_terminal(sys.stderr) else shutil.get_terminal_size().columns - 1
    line, words = stats_line(stats, room), GLOSSARY if stats.drafted and ended_by_itself(stats) else ""
    lines = [f"{line} · {words}"] if words and (room is None or len(f"{line} · {words}") <= room) else [line, words]
    for told in filter(None, lines):
        console.note(told, "yellow" if is_slower(stats) else "dim")
    console.has_told_stop = not ended_by_itself(stats)  # the line begins with it
    has_verdict = stats.finished is not None and stats.finished.verdict  # else the line above says all of it
    for line in (plans(stats) if with_plans else "", verdict(stats) if has_verdict else ""):
        if line:
            console.note(line, "dim")
