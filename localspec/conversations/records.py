"""The records that the store returns: frozen copies of rows, which do not change when the file does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from localspec.conversations.attachment import Attachment, with_attachments

USER, ASSISTANT = "user", "assistant"
SENT = "sent"  # the finish of what a person wrote, which is complete at once
INTERRUPTED = "interrupted"
ELSEWHERE = "elsewhere"  # the finish of an answer that another process is writing, in a tree of this one
_ENDINGS = {
    SENT: "",
    "stop": "",
    "length": "cut off by -n",
    "context": "cut off: the context is full",
    INTERRUPTED: "stopped",
    "timeout": "stopped by --timeout",
    "error": "failed",
    None: "still being written",
    ELSEWHERE: "still being written by another localspec",
}


def ending(finish: str | None) -> str:
    """Return why a message is not whole, in words; "" for one that is."""
    return _ENDINGS.get(finish, finish or "")


def spoken(role: str, text: str) -> str:
    """Return a message as it is shown: many tokenizers write a space before the first word of an answer."""
    return text.removeprefix(" ") if role == ASSISTANT else text


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One node of a tree. `parent` None is a beginning; `finish` None is an answer that is still being written.

    `finish` is otherwise "sent" for what a person wrote, and for an answer the reason it ended: stop, length, context,
    timeout, interrupted, or error. `created` is in seconds since 1970. `stats` is the JSON object of the answer, as
    `--json` prints it, None without one. `writer` is the process that writes it, None for a whole one and where that
    process has ended.
    """

    id: int
    conversation: str
    parent: int | None
    role: str
    text: str
    created: float
    finish: str | None
    stats: dict[str, Any] | None = None
    attachments: tuple[Attachment, ...] = ()
    writer: int | None = None

    @property
    def content(self) -> str:
        """The text that is sent to the model: attachments between fences, then the words."""
        return with_attachments(self.text, self.attachments)

    @property
    def reasoning(self) -> str:
        """The reasoning before an answer, which is no part of its text."""
        return (self.stats or {}).get("reasoning") or ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One tree; `leaf` is the end of the path that was looked at last, None before the first message."""

    id: str
    title: str
    pair: str
    system: str | None
    created: float
    updated: float
    deleted_at: float | None
    leaf: int | None
    n_messages: int


def model_names(pair: str) -> str:
    """Return the models of a pair for people: a file by its name alone, and nothing of a draft that there is not."""
    parts = [part for part in pair.split("+") if part != "none"]
    names = [PurePath(part).name if part.startswith("/") else part for part in parts]
    return "+".join(name[:-5] if name.lower().endswith(".gguf") else name for name in names)


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that a search found, with an excerpt of its text in one line."""

    conversation: Conversation
    message: StoredMessage
    excerpt: str
