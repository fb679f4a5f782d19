"""One chat: where it is in its conversation, the settings of the next answer, and the worker that gives it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

from localspec.bench.race import Race
from localspec.cli.answer import follow, generate, load, tell, warn_if_full
from localspec.cli.answer_writer import Record
from localspec.cli.console import Console, is_terminal
from localspec.cli.listing import ASSISTANT
from localspec.cli.live import Live
from localspec.cli.output import TextSink
from localspec.cli.race import N, shown_race
from localspec.cli.signals import Stop, stopping
from localspec.conversations.attachment import Attachment
from localspec.conversations.current import Current
from localspec.conversations.sending import to_send
from localspec.engine.events import Event, Finished
from localspec.settings.request import LoadSettings, Request
from localspec.ui.result import result
from localspec.ui.stats import Stats
from localspec.worker.client import Worker


class Chat:
    """What the commands of a chat act on. `request` is the next answer's without its messages."""

    def __init__(
        self,
        console: Console,
        worker: Worker,
        settings: LoadSettings,
        request: Request,
        current: Current,
        open_pair: Callable[[str], LoadSettings] | None = None,
    ) -> None:
        self.console = console
        self.settings = settings
        self.request = request
        self.current = current
        self.open_pair = open_pair  # how to load a pair that is named
        self.attached: list[Attachment] = []  # goes with the next message
        self.listed: list[str] = []  # the conversations that were listed last, for their numbers
        self.last: Stats | None = None
        self.has_marks = False
        self.has_stats = is_terminal(sys.stderr) and not console.quiet
        self.control = "auto"
        self.is_over = False
        self.is_script = not is_terminal(sys.stdin)
        self._worker = worker
        self._loaded: int | None = None  # the worker's process that holds the models

    def send(self, text: str) -> None:
        """Answer a message, with what /read attached to it."""
        attached, self.attached = self.attached, []
        self.current.ask(text, attached)
        self.answer()

    def answer(self) -> None:
        """Answer the last message. Text that came is kept, whatever happens.

        A second Ctrl-C ends an engine that does not stop; in a script the first one ends the script.
        """
        try:
            self._answer()
        except KeyboardInterrupt:
            self._worker.close()
            if self.is_script:
                raise
            self.console.say("the engine was ended; it loads again with your next message", "dim")
        finally:
            self.tell_trouble()

    def regenerate(self) -> None:
        """Answer the last message again; a fixed seed moves on by one, or the answer would be the same."""
        seed = self.request.sampling.seed
        if seed is not None:
            self.request = replace(self.request, sampling=replace(self.request.sampling, seed=(seed + 1) % 2**64))
        self.answer()

    def race(self) -> Race | None:
        """Answer the last question plainly and with speculation, of which nothing is kept; None if it was stopped."""
        *before, question = self.current.path_to_question()
        messages = to_send(before, self.current.system, question.content)
        request = replace(self.request, messages=messages, max_tokens=self.request.max_tokens or N, shorten=True)
        live = Live(self.console)
        try:
            with stopping(self._worker.cancel, _abandon) as stop:
                for _ in self._loading(live, stop):
                    pass
                found = None if stop.is_asked else shown_race(self._worker, request, 1, live, stop)
        except KeyboardInterrupt:
            self._worker.close()
            if self.is_script:
                raise
            return None
        finally:
            live.erase()
        stop.leave_if_told(is_script=self.is_script)
        return found

    def switch(self, settings: LoadSettings, pair: str) -> None:
        """Let another pair answer from now on; it loads with the next message."""
        self._worker.close()  # its memory is needed
        self._loaded, self.last, self.settings = None, None, settings
        self.current.switch_pair(pair)

    def tell_trouble(self) -> None:
        """Say, once, that and why the conversation is not saved."""
        trouble = self.current.store.trouble()
        if trouble is not None:
            self.console.warn(f"{trouble.message}; {trouble.hint}")

    def _answer(self) -> None:
        live = Live(self.console)
        stats = Stats(loaded=self.last.loaded if self.last is not None else None)  # told once, when it was loaded
        label = "" if self.console.quiet else ASSISTANT
        sink = TextSink(self.console, live, control=self.control, has_marks=self.has_marks, label=label)
        record = Record(self.current)
        request = replace(self.request, messages=self.current.to_send(), shorten=True)
        reason = "error"
        try:
            with stopping(self._worker.cancel, _abandon) as stop:
                events = self._events(request, live, stop)
                follow(_recorded(events, record), stats, sink, live, self.console, stop)
            reason = stats.finished.reason if stats.finished is not None else reason
        except KeyboardInterrupt:
            reason = "interrupted"
            sink.fail({})
            raise
        except BaseException:
            sink.fail({})
            raise
        finally:
            record.finish(reason, result(stats, self.settings, request))
            self.last = stats
        sink.finish(stats)
        if not stats.text and reason == "stop":
            self.console.warn("the model had nothing to say; /regen asks it again")
        warn_if_full(stats, self.console)
        if self.has_stats:
            tell(stats, self.console)
        stop.leave_if_told(is_script=self.is_script)

    def _events(self, request: Request, live: Live, stop: Stop) -> Iterator[Event]:
        """Load if need be, then generate; nothing is generated once a load was stopped."""
        yield from self._loading(live, stop)
        if self._loaded is not None:
            yield from generate(self._worker, request, stop)

    def _loading(self, live: Live, stop: Stop) -> Iterator[Event]:
        """Load if nothing is loaded, as at the start and after the worker's death."""
        lost = self._worker.lost()
        if lost is not None:
            self.console.warn(f"{lost.message}; it loads again")
        if self._loaded is not None and self._loaded == self._worker.pid:
            return
        self._loaded = None
        live.status("starting the engine")
        is_stopped = False
        for event in load(self._worker, self.settings, stop):
            is_stopped = isinstance(event, Finished)
            yield event
        if not is_stopped:
            self._loaded = self._worker.pid


def _recorded(events: Iterator[Event], record: Record) -> Iterator[Event]:
    """Keep what comes before it is shown."""
    for event in events:
        record.event(event)
        yield event


def _abandon() -> None:
    raise KeyboardInterrupt
