"""What the chat is about, apart from the screen: the pair, the settings of the next answer, the conversation.

The screens change it and show it; nothing of Textual is here. Invariant: at most one answer is being written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from localspec.conversations.attachment import Attachment
from localspec.conversations.records import ASSISTANT, USER
from localspec.engine.events import Committed, Finished, Loaded
from localspec.errors import LocalspecError
from localspec.models.store import reference
from localspec.settings.request import LoadSettings, Request, Speculation
from localspec.tui.conversation_writer import ConversationWriter
from localspec.tui.message_tree import MessageTree, Node
from localspec.tui.trace import Trace
from localspec.tui.worker_thread import Arrived, Ended, WorkerThread
from localspec.ui.result import result
from localspec.ui.settings import check


@dataclass(slots=True)
class ChatState:
    """The chat's state. `request` is the next answer's without its messages."""

    worker_thread: WorkerThread
    writer: ConversationWriter
    settings: LoadSettings
    request: Request
    messages: MessageTree = field(default_factory=MessageTree)
    loaded: Loaded | None = None
    traces: dict[int, Trace] = field(default_factory=dict)  # of answers, by the entry's id
    answering: Node | None = None
    job: int = 0  # the bridge's number of the answer
    attached: list[Attachment] = field(default_factory=list)  # goes with the next message
    error: LocalspecError | None = None  # why the last job failed
    clock: Callable[[], float] = time.monotonic
    switched_off: Speculation | None = None  # what the answers had before speculation was switched off
    unseen: str = ""  # of the answer that is being written: taken, safe to show, and not drawn yet
    _unsaved: str = ""
    _loading: int = 0  # the bridge's number of the load that was asked for last

    @property
    def trace(self) -> Trace | None:
        """The trace of the answer that is being written, else of the last on the path."""
        entries = [self.answering] if self.answering else reversed(self.messages.path())
        for entry in entries:
            if entry.id in self.traces:
                return self.traces[entry.id]
        return None

    @property
    def trace_of_pair(self) -> Trace | None:
        """The same, if it is of the pair that answers now: figures of another one say nothing of this one."""
        trace = self.trace
        return trace if trace is not None and trace.settings == self.settings else None

    @property
    def last_answer(self) -> Node | None:
        """The last answer on the path."""
        return next((entry for entry in reversed(self.messages.path()) if entry.role == ASSISTANT), None)

    def ask(self, text: str) -> Node:
        """Add a message of the user, at the end or as another branch of the one that is edited, and answer it.

        What was attached to the one that is edited goes with it.
        """
        path, edited = self.messages.path(), self.messages.editing
        parent = self.messages.parent(edited) if edited else (path[-1] if path else None)
        self.messages.editing = None
        asked = self.messages.add(USER, text, parent=parent)
        asked.attachments, self.attached = (*(edited.attachments if edited else ()), *self.attached), []
        self.writer.say(self.messages, asked, reference(self.settings))
        return self.answer(asked)

    def answer(self, asked: Node) -> Node:
        """Begin an answer to a message, beside those it has."""
        assert asked.role == USER
        entry = self.messages.add(ASSISTANT, parent=asked, status="streaming")
        self.traces[entry.id] = Trace.begin(self.settings, self.request, self.loaded, self.clock)
        self.answering, self.error = entry, None
        self.writer.say(self.messages, entry, reference(self.settings))
        self._send(asked)
        return entry

    def again(self, answer: Node) -> Node:
        """Answer anew what `answer` answers; a fixed seed moves on, or the text would be the same."""
        seed = self.request.sampling.seed
        if seed is not None:
            self.request = replace(self.request, sampling=replace(self.request.sampling, seed=(seed + 1) % 2**64))
        asked = self.messages.parent(answer)
        assert asked is not None
        return self.answer(asked)

    def take(self) -> list[Arrived | Ended]:
        """Take what has come into account, keep it, and return it; `unseen` is then longer."""
        items = self.worker_thread.take()
        for item in items:
            self.unseen += self._observe(item)
        self._save()
        return items

    def _observe(self, item: Arrived | Ended) -> str:
        if isinstance(item, Ended):
            return self._end(item)
        if isinstance(item.event, Loaded) and item.job >= self._loading:  # else of a pair that is no longer wanted
            self.loaded = item.event
            if self.answering is not None:  # it was asked for while the pair was loading
                self.traces[self.answering.id].stats.loaded = item.event
        if self.answering is None or item.job != self.job:
            return ""
        trace = self.traces[self.answering.id]
        shown = trace.observe(item.at, item.event)
        if isinstance(item.event, Committed):
            self._unsaved += item.event.text
        if isinstance(item.event, Finished):
            self._unsaved += item.event.tail
            stopped = item.event.reason in ("interrupted", "timeout")
            self.answering.status = "interrupted" if stopped else "done"
        return shown

    def change(self, request: Request) -> None:
        """Take other settings from the next answer on; raises UsageError and keeps the old ones if they are wrong.

        Who changes how it is speculated, while that is switched off, wants it on.
        """
        off, speculation = self.switched_off, request.speculation
        if off is not None and speculation != self.request.speculation:
            k = off.k if speculation.k == 0 else speculation.k
            self._set(replace(request, speculation=replace(speculation, k=k)))
            self.switched_off = None
        else:
            self._set(request)

    def switch_speculation(self) -> bool:
        """Turn drafting off, or on again as it was; return whether it is on."""
        if self.switched_off is not None:
            self._set(replace(self.request, speculation=self.switched_off))
            self.switched_off = None
            return True
        before = self.request.speculation
        self._set(replace(self.request, speculation=replace(before, k=0)))
        self.switched_off = before
        return False

    def _set(self, request: Request) -> None:
        check(request, self.settings)
        self.request = request

    def switch_pair(self, settings: LoadSettings) -> None:
        """Load another pair; the conversation goes on."""
        check(self.request, settings)
        self.settings, self.loaded, self.error = settings, None, None
        self.writer.change(self.messages, pair=reference(settings))
        self._loading = self.worker_thread.load(settings)

    def open(self, messages: MessageTree) -> None:
        """Go on with another conversation, with which goes nothing that was attached in this one."""
        self.messages, self.attached = messages, []
        self.traces.clear()

    def set_system(self, text: str | None) -> None:
        """Change the system message from the next answer on."""
        self.messages.system = text or None
        self.writer.change(self.messages)

    def choose(self, entry: Node) -> None:
        """Look at another branch."""
        self.messages.choose(entry)
        self.writer.look_at(self.messages)

    def undo(self) -> Node | None:
        """Look at the conversation without its last message, and return that; nothing is lost.

        What was attached to it goes with the next message, which will be the same one in other words.
        """
        asked = next((entry for entry in reversed(self.messages.path()) if entry.role == USER), None)
        if asked is not None:
            self.messages.hide(asked)
            self.attached = list(asked.attachments)
            self.writer.look_at(self.messages)
        return asked

    def renew(self) -> None:
        """Begin a new conversation under the same system message."""
        self.open(MessageTree(self.messages.system, now=self.messages.now))

    def _send(self, asked: Node) -> None:
        messages = self.messages.messages(asked)
        request = replace(self.request, messages=messages, details=True, shorten=True)
        self.job = self.worker_thread.answer(self.settings, request)

    def _save(self) -> None:
        if self.answering is not None:
            self.writer.append(self.answering, self._unsaved)
            self._unsaved = ""

    def _end(self, item: Ended) -> str:
        """Close the answer."""
        entry = self.answering
        if entry is None or item.job != self.job:
            self.error = item.error
            return ""
        self._save()
        trace = self.traces[entry.id]
        entry.text, self.answering, self.error = trace.stats.text, None, item.error
        if item.error is not None:
            entry.status = "failed"
        elif trace.stats.finished is None:  # the process was ended on purpose
            entry.status = "interrupted"
        reason = trace.stats.finished.reason if trace.stats.finished is not None and item.error is None else None
        self.writer.finish(entry, reason, result(trace.stats, trace.settings, trace.request))
        return ""
