"""The engine of a chat on a screen: its thread answers, and what has come is taken into the chat's state.

Nothing of Textual is here.

While a person writes, the engine reads what stands fast: the conversation so far, and the text up to now.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from localspec.chat.answer_writer import AnswerWriter, ending
from localspec.chat.commands import TABLE
from localspec.chat.message_tree import MessageTree, Node
from localspec.chat.state import ChatState
from localspec.conversations.records import with_attachments
from localspec.engine.events import Loaded
from localspec.errors import LocalspecError
from localspec.settings.request import LoadSettings
from localspec.tui.trace import Trace
from localspec.tui.worker_thread import Arrived, Ended, WorkerThread
from localspec.ui.result import result

WORTH = 200  # characters that are new, before they are read


class ChatEngine:
    """Asks the thread for answers to the messages of `state`, and keeps a trace of each."""

    def __init__(
        self, state: ChatState, worker_thread: WorkerThread, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.state = state
        self.worker_thread = worker_thread
        self.unseen = ""  # of the answer that is being written: taken, safe to show, and not drawn yet
        self.clock = clock
        self._traces: list[tuple[MessageTree, dict[int, Trace]]] = []  # of the open conversation, and of `answered`
        self._trace: Trace | None = None  # of the answer that is being written, or was last
        self._job = 0  # the thread's number of the answer
        self._loading = 0  # its number of the load that was asked for last
        self._before: LoadSettings | None = None  # the pair that was loaded before that load
        self.refused: LocalspecError | None = None  # why that load failed, after which the pair before loads again
        self._writer = AnswerWriter(state)

    @property
    def traces(self) -> dict[int, Trace]:
        state = self.state
        traces_here = next((traces for messages, traces in self._traces if messages is state.messages), None)
        if traces_here is None:
            traces_here = {}
            self._traces = [each for each in self._traces if each[0] is state.answered]
            self._traces.append((state.messages, traces_here))
        return traces_here

    @property
    def trace(self) -> Trace | None:
        answering = self.state.answering_here
        entries = [answering] if answering else reversed(self.state.messages.path())
        return next((self.traces[entry.id] for entry in entries if entry.id in self.traces), None)

    @property
    def trace_of_pair(self) -> Trace | None:
        """The same, if it is of the pair that answers now: figures of another one say nothing of this one."""
        trace = self.trace
        return trace if trace is not None and trace.settings == self.state.settings else None

    def answer(self, asked: Node, asked_at: float | None = None) -> Node:
        """Begin an answer to a message, beside those it has; Enter was pressed now, or at `asked_at` on the clock."""
        state = self.state
        request = replace(state.next_request(asked), details=True)
        self._writer = AnswerWriter(state)
        entry = self._writer.begin(asked)
        self._trace = self.traces[entry.id] = Trace.begin(
            state.settings, state.request, state.loaded, self.clock, self.clock() if asked_at is None else asked_at
        )
        self._job = self.worker_thread.answer(state.to_load(), request)
        return entry

    def read_ahead(self, text: str) -> None:
        state, edited = self.state, self.state.messages.editing
        path = state.messages.path() if edited is None else state.messages.path_to(state.messages.parent(edited))
        files = (*(edited.attachments if edited else ()), *state.attached)
        request = replace(state.request_after(path, with_attachments(text, files)), reads_ahead=True)
        self.worker_thread.read_ahead(state.to_load(), request)

    def load(self) -> None:
        if not self.worker_thread.is_busy:
            self.worker_thread.load(self.state.to_load())

    def restart(self) -> None:
        if not self.worker_thread.is_busy:
            self.worker_thread.restart(self.state.to_load())

    def switch_pair(self, settings: LoadSettings) -> None:
        before = self._before if self.state.loaded is None else self.state.settings
        self.state.switch_pair(settings)
        self._before, self.refused = before, None
        self._loading = self.worker_thread.load(self.state.to_load())

    def take(self) -> list[Arrived | Ended]:
        """Take what has come into account, keep it, and return it; `unseen` is then longer."""
        items = self.worker_thread.take()
        for item in items:
            self.unseen += self._observe(item)
        if self.state.answering is not None and self.state.answering_here is None:
            self.unseen = ""  # who comes back sees all of it
        self._writer.save()
        return items

    def close(self) -> None:
        self.worker_thread.close()
        try:
            self.take()
        finally:
            self.state.writer.close()

    def _observe(self, item: Arrived | Ended) -> str:
        if isinstance(item, Ended):
            self._end(item)
            return ""
        answering = self.state.answering
        if isinstance(item.event, Loaded) and item.job >= self._loading:  # else of a pair that is no longer wanted
            self.state.has_loaded(item.event)
            self._before = None
            if answering is not None and self._trace is not None:  # it was asked for while the pair was loading
                self._trace.stats.loaded = item.event
        if answering is None or self._trace is None or item.job != self._job:
            return ""
        self._writer.observe(item.event)
        return self._trace.observe(item.at, item.event)

    def _end(self, item: Ended) -> None:
        answering = self.state.answering
        if answering is None and item.job == self._loading and item.error is not None and self._before is not None:
            self.refused, before = item.error, self._before
            self._before = None
            self.state.switch_pair(before)
            self._loading = self.worker_thread.load(self.state.to_load())
        if answering is None or self._trace is None or item.job != self._job:
            return
        trace, stats = self._trace, self._trace.stats
        # Without an end the process was ended on purpose.
        reason = ending(item.error) if item.error else stats.finished.reason if stats.finished else "interrupted"
        self._writer.finish(reason, result(stats, trace.settings, trace.request))


class ReadingAhead:
    def __init__(self, engine: ChatEngine) -> None:
        self._engine = engine
        self._seen = ""  # the text a second ago
        self._leaf: int | None = None  # the message under which something was read
        self._text = ""  # what was read of the next one

    def look(self, text: str) -> None:
        """Have the engine read, if it has nothing to do and a text of the composer stood still for a second."""
        is_still, self._seen = text == self._seen, text
        state, thread = self._engine.state, self._engine.worker_thread
        if not is_still or state.loaded is None or state.answering is not None or thread.is_busy or "@" in text:
            return
        path = state.messages.path()
        leaf = path[-1].id if path else None
        if leaf != self._leaf:
            self._leaf, self._text = leaf, ""
            is_new = leaf is not None and leaf not in self._engine.traces  # else it was written here: it is known
        else:
            is_new = False
        is_new |= len(text.removeprefix(self._text)) >= WORTH
        if is_new and not TABLE.is_command(text) and state.may_idle():
            self._text = text
            self._engine.read_ahead(text)
