"""One chat: the conversation, the settings of the next answer, and the worker that gives it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from localspec.attachment import Attachment, fenced
from localspec.cli.answer import follow, generate, load, tell, warn_if_full
from localspec.cli.console import Console, is_terminal
from localspec.cli.conversation import Conversation, Turn
from localspec.cli.live import Live
from localspec.cli.output import TextSink
from localspec.cli.signals import Stop, Terminated, stopping
from localspec.config import LoadSettings, Request
from localspec.errors import PromptTooLongError
from localspec.events import Event, Finished
from localspec.stats import Stats
from localspec.worker import Worker

YOU, ASSISTANT = "You: ", "Assistant: "


class Chat:
    """What the commands of a chat act on. `request` is the next answer's without its messages."""

    def __init__(self, console: Console, worker: Worker, settings: LoadSettings, request: Request) -> None:
        self.console = console
        self.settings = settings
        self.request = request
        self.conversation = Conversation()
        self.attached: list[Attachment] = []  # goes with the next message
        self.last: Stats | None = None
        self.has_marks = False
        self.has_stats = is_terminal(sys.stderr) and not console.quiet
        self.control = "auto"
        self.is_over = False
        self._worker = worker
        self._loaded: int | None = None  # the worker's process that holds the models

    def send(self, text: str) -> None:
        """Answer a message, with what /read attached to it."""
        attached, self.attached = self.attached, []
        self.conversation.turns.append(Turn("\n\n".join([*map(fenced, attached), text])))
        self.answer()

    def answer(self) -> None:
        """Answer the last turn. Text that came is kept, whatever happens; turns that do not fit are left out.

        A second Ctrl-C ends an engine that does not stop.
        """
        while True:
            try:
                self._answer()
                return
            except KeyboardInterrupt:
                self._worker.close()
                self.console.say("the engine was ended; it loads again with your next message", "dim")
                return
            except PromptTooLongError:
                if not self.conversation.forget_oldest():
                    raise
                self.console.warn("the context is full: the oldest message and its answer are no longer sent")

    def regenerate(self) -> None:
        """Answer the last turn again; a fixed seed moves on by one, or the answer would be the same."""
        seed = self.request.sampling.seed
        if seed is not None:
            self.request = replace(self.request, sampling=replace(self.request.sampling, seed=(seed + 1) % 2**64))
        self.answer()

    def _answer(self) -> None:
        turn, live = self.conversation.turns[-1], Live(self.console)
        stats = Stats(loaded=self.last.loaded if self.last is not None else None)  # told once, when it was loaded
        label = "" if self.console.quiet else ASSISTANT
        sink = TextSink(self.console, live, control=self.control, has_marks=self.has_marks, label=label)
        try:
            with stopping(self._worker.cancel, _abandon) as stop:
                follow(self._events(live, stop), stats, sink, live, self.console, stop)
        except BaseException:
            sink.fail({})
            raise
        finally:
            turn.assistant = stats.text or None
            self.last = stats
        sink.finish(stats)
        warn_if_full(stats, self.console)
        if self.has_stats:
            tell(stats, self.console)
        if stop.termination:
            raise Terminated(stop.termination)

    def _events(self, live: Live, stop: Stop) -> Iterator[Event]:
        """Load if nothing is loaded, as at the start and after the worker's death, then generate."""
        lost = self._worker.lost()
        if lost is not None:
            self.console.warn(f"{lost.message}; it loads again")
        if self._loaded is None or self._loaded != self._worker.pid:
            live.status("starting the engine")
            for event in load(self._worker, self.settings, stop):
                yield event
                if isinstance(event, Finished):
                    return
            self._loaded = self._worker.pid
        yield from generate(self._worker, replace(self.request, messages=self.conversation.messages()), stop)


def _abandon() -> None:
    raise KeyboardInterrupt
