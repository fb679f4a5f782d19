"""An answer on its way to the store, written while it comes: the one way in which any answer is kept."""

from collections.abc import Iterator
from typing import Any

from localspec.chat.message_tree import Node
from localspec.chat.state import ChatState
from localspec.conversations.records import FAILED, INTERRUPTED
from localspec.engine.events import Committed, Event, Finished, Started
from localspec.errors import EngineStoppedError
from localspec.settings.request import FORMS, Request
from localspec.settings.structure import unbounded
from localspec.ui.stats import Stats, grown


def full_context(stats: Stats, option: str = "--ctx") -> str:
    """Return that an answer ended where the context did, "" where it did not: it looks as if the model was done."""
    if stats.finished is None or stats.finished.reason != "context" or stats.loaded is None:
        return ""
    n = stats.loaded.n_ctx
    return f"the context is full: {n} tokens with the prompt; {option} {2 * n} for more"


def unfinished_form(stats: Stats, schema: str | None = None) -> str:
    """Return that an answer was cut before it had the form that was asked for, "" where it was not."""
    if stats.finished is None or stats.finished.is_whole:
        return ""
    when = "before its form was complete"
    if stats.finished.reason not in ("stop", "length", "context"):  # a person, or the time
        return f"the answer was stopped {when}"
    if stats.finished.reason == "stop":
        return f"the answer was cut {when}: a stop text ended it"
    endless = "" if schema is None else unbounded(schema)
    more = f"; the schema sets no end to {endless}" if endless else ""
    greater = "--ctx" if stats.finished.reason == "context" else "-n"
    return f"the answer was cut {when}; a greater {greater} lets it end{more}"


def empty_form(stats: Stats, request: Request) -> str:
    given = [f"--{name}" for name in FORMS if getattr(request, name) is not None]
    finished = stats.finished
    if not given or stats.text or finished is None or not finished.is_whole or finished.reason != "stop":
        return ""
    return f"the answer has no text, which {given[0]} allows"


def remark(stats: Stats) -> str:
    full = full_context(stats, "/ctx")
    if full:
        return f"{full}, or /new"
    if unfinished_form(stats):
        return unfinished_form(stats)
    is_empty = stats.finished is not None and stats.finished.reason == "stop" and not stats.text
    return "the answer is empty; /regen tries again" if is_empty else ""


def ending(error: BaseException | None) -> str:
    """Return how an answer ends that `error` breaks off: somebody stopped it, or it failed."""
    return INTERRUPTED if isinstance(error, EngineStoppedError | BrokenPipeError | KeyboardInterrupt) else FAILED


class AnswerWriter:
    """Keeps one answer from when it is asked for to its end. One that stays empty is kept too, with its reason."""

    def __init__(self, state: ChatState) -> None:
        self._state = state
        self._text = ""
        self._ids: list[int] = []
        self._n_saved = 0  # characters

    def begin(self, asked: Node) -> Node:
        return self._state.begin_answer(asked)

    def observe(self, event: Event) -> None:
        if isinstance(event, Committed):
            self._text += event.text
            self._ids += [piece.id for piece in event.out]
        elif isinstance(event, Finished):
            self._text += event.tail
        elif isinstance(event, Started):
            self._state.loaded = grown(self._state.loaded, event)

    def save(self) -> None:
        new = self._text[self._n_saved :]
        if new and self._state.answering is not None:
            self._state.writer.append(self._state.answering, new)
            self._n_saved = len(self._text)

    def recorded(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            self.observe(event)
            self.save()
            yield event

    def finish(self, reason: str, stats: dict[str, Any]) -> None:
        """End the answer, if it was begun; `stats` is the object of --json, and its tokens are kept with it."""
        if self._state.answering is not None:
            self.save()
            self._state.end_answer(self._text, reason, {**stats, "ids": self._ids})
