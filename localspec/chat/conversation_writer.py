"""The conversation on disk while it happens: every change goes to the store, in order.

The store may wait for the disk or for another process. A screen must not wait, so a thread writes for it; without a
screen the caller writes. Invariants: changes are written in the order in which they happened, and an error of the store
ends the saving, not the conversation. What is not sent is in a file of this process, which the next chat takes over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from localspec.chat.message_tree import MessageTree, Node
from localspec.conversations.records import ASSISTANT, USER
from localspec.conversations.store import Store
from localspec.errors import InternalError, LocalspecError, NotFoundError
from localspec.settings.folders import replace_file, state_folder

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
RECENT = 20  # conversations whose messages Up brings back
_IN_THE_MESSAGE = ("text", "session")  # of the figures of an answer: its message has them itself


class _AtOnce:
    """An executor that runs a call before `submit` returns."""

    def submit(
        self, call: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        from concurrent.futures import Future  # late: it takes longer than a message needs to be written

        done: Future[Result] = Future()
        try:
            done.set_result(call(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self) -> None:
        """Have nothing left to do."""


def _thread() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # late, as above

    return ThreadPoolExecutor(1, "conversation writer")


class ConversationWriter:
    """Writes the changes of a conversation to `store`, which makes the conversation with its first message."""

    def __init__(self, store: Store, *, in_background: bool = True) -> None:
        self.is_saved = store.is_saved
        self._store = store
        self._thread = _thread() if in_background else _AtOnce()
        self._is_broken = False
        trouble = store.trouble()  # of opening it
        self._troubles: list[LocalspecError] = [] if trouble is None else [trouble]

    def say(self, messages: MessageTree, entry: Node, pair: str) -> None:
        """Keep a message: a user's is complete, an answer is open for `append`."""

        def write() -> None:
            try:
                self._add(messages, entry, pair)
            except NotFoundError:
                messages.key = None
                for each in list(messages.entries.values()):
                    each.key = None
                self._add(messages, entry, pair)

        self._do(write)

    def append(self, entry: Node, text: str) -> None:
        if text:
            self._do(lambda: self._store.append_text(_key(entry), text))

    def finish(self, entry: Node, stats: dict[str, Any] | None) -> None:
        reason = entry.finish
        assert reason is not None, "it has ended"
        figures = stats and {name: value for name, value in stats.items() if name not in _IN_THE_MESSAGE}
        self._do(lambda: self._store.finish(_key(entry), reason, figures))

    def look_at(self, messages: MessageTree) -> None:
        path = messages.path()

        def write() -> None:
            if messages.key is not None:
                self._store.set_leaf(messages.key, path[-1].key if path else None)

        self._do(write)

    def change(self, messages: MessageTree, *, pair: str | None = None) -> None:
        system = messages.system

        def write() -> None:
            if messages.key is not None:
                self._store.set_system(messages.key, system)
                if pair is not None:
                    self._store.set_pair(messages.key, pair)

        self._do(write)

    def ask(self, question: Callable[[Store], Result]) -> Future[Result]:

        def run() -> Result:
            try:
                return question(self._store)
            finally:
                self._note(self._store.trouble())

        return self._thread.submit(run)

    def trouble(self) -> LocalspecError | None:
        """Return why nothing is saved any more, once."""
        return self._troubles.pop(0) if self._troubles else None

    def close(self) -> None:
        self._thread.shutdown()

    def _add(self, messages: MessageTree, entry: Node, pair: str) -> int:
        """Write a message, and before an answer its question where that is not kept; return the name it has there."""
        if messages.key is None:
            messages.key = self._store.create(pair, system=messages.system).id
        parent = messages.parent(entry)
        above = None if parent is None else parent.key
        if parent is not None and above is None and entry.role == ASSISTANT:
            above = self._add(messages, parent, pair)
        text = "" if entry.role == ASSISTANT else entry.text  # an answer's comes by `append`
        made = self._store.add_message(messages.key, above, entry.role, text, attachments=entry.attachments)
        entry.key = made.id
        return made.id

    def _do(self, write: Callable[[], object]) -> None:
        def run() -> None:
            if self._is_broken:
                return
            try:
                with suppress(NotFoundError):  # another process deleted it; what is said next begins another one
                    write()
                trouble = self._store.trouble()
            except LocalspecError as error:
                trouble = error
            except Exception as error:  # no caller would see it
                self._is_broken = True
                message = f"the conversation is no longer saved: {type(error).__name__}: {error}"
                trouble = InternalError(message, hint="/copy all, and report this")
            self._note(trouble)

        self._thread.submit(run)

    def _note(self, trouble: LocalspecError | None) -> None:
        if trouble is not None:
            self._troubles.append(trouble)
        self.is_saved = self._store.is_saved and not self._is_broken


def _key(entry: Node) -> int:
    assert entry.key is not None, "what came before it was written"
    return entry.key


def sent_before(store: Store) -> list[str]:
    sent: list[str] = []
    for conversation in reversed(store.conversations(RECENT)):
        sent += [message.text for message in store.messages(conversation.id) if message.role == USER]
    return sent


PAUSE = 0.5  # seconds between a change and its writing

Later = Callable[[float, Callable[[], None]], object]


class Unsent:
    """Keeps what `text` returns, for the conversation `key`. Nothing is kept where the conversation is not."""

    def __init__(self, writer: ConversationWriter, text: Callable[[], str], key: Callable[[], str | None]) -> None:
        self._writer = writer
        self._text, self._key = text, key
        self._is_due = False
        self._kept: tuple[str, str | None] | None = None  # not known: what was taken over may be there

    def changed(self, later: Later) -> None:
        if self._writer.is_saved and not self._is_due:
            self._is_due = True
            later(PAUSE, self.keep)

    def keep(self) -> None:
        self._is_due, kept = False, (self._text(), self._key())
        if self._writer.is_saved and kept != self._kept:
            self._kept = kept
            self._writer.ask(lambda _store: write(*kept))  # a screen waits for no disk: a thread writes


def write(text: str, conversation: str | None = None, others: Sequence[Path] = ()) -> None:
    """Keep a text in the place of what this process has kept, and of `others`."""
    file = _folder() / ".".join(filter(None, (str(os.getpid()), conversation)))
    if text:
        replace_file(file, text)  # first: it is never in no file
    for other in (*others, file, *_folder().glob(f"{os.getpid()}.*"), _folder() / str(os.getpid())):
        if not text or other != file:
            other.unlink(missing_ok=True)


def recover(conversation: str | None = None) -> str:
    """Take over what ended chats have left: of a `conversation` what belongs to no other one."""
    files = [file for file in sorted(_folder().glob("[0-9]*"), key=os.path.getmtime) if not _is_anothers(file)]
    files = [file for file in files if conversation is None or file.suffix in ("", f".{conversation}")]
    text = "\n".join(file.read_text("utf-8", "replace").removesuffix("\n") for file in files)
    if files:
        write(text, conversation, files)
    return text


def _folder() -> Path:
    return state_folder("unsent")


def _is_anothers(file: Path) -> bool:
    if file.stem == str(os.getpid()):
        return False
    try:
        os.kill(int(file.stem), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except (OSError, ValueError):  # of another user; or no name that was made here
        return True
    return True
