"""The records that the store returns: frozen copies of rows, which do not change when the file does.

Ids are short enough to type, and in the order of their beginnings: six characters tell the second (until 2054), two are
drawn. The alphabet is Crockford's, without i, l, o and u; what is typed may have them, or capitals.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
LENGTH = 8
MIN_ID = 6  # characters of an id that a person may type in place of all: fewer are hit by chance
_BEGINNING = 1577836800  # 2020-01-01, in seconds since 1970
_TYPED = str.maketrans("ilo", "110")
_FENCE = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)
_ELSEWHERE = re.compile(r'(?<!\S)(@")(?:\.\.)?/(?:[^"\n]*/)?(?=[^"/\n])|(?<!\S)(@)(?:\.\.)?/(?:\S*/)?(?=[\w.*?~-])')


@dataclass(frozen=True, slots=True)
class Attachment:
    name: str
    text: str


def fenced(attachment: Attachment) -> str:
    fence = "`" * (max((len(fence) for fence in _FENCE.findall(attachment.text)), default=2) + 1)
    end = "" if attachment.text.endswith("\n") else "\n"
    path = Path(attachment.name)
    is_outside = path.is_absolute() or ".." in path.parts  # where a folder is nobody's business
    return f"{fence}{path.name if is_outside or not attachment.name else path}\n{attachment.text}{end}{fence}"


def by_names(words: str) -> str:
    """Return words in which an `@` has the name alone of a file that lies elsewhere: that is nobody's business."""
    return _ELSEWHERE.sub(lambda match: match[1] or match[2], words)


def with_attachments(words: str, attachments: Sequence[Attachment]) -> str:
    blocks, words = [fenced(attachment) for attachment in attachments], by_names(words) if attachments else words
    return "\n\n".join([*blocks, words] if words or not blocks else blocks)


USER, ASSISTANT = "user", "assistant"
SENT = "sent"  # the finish of what a person wrote, which is complete at once
INTERRUPTED = "interrupted"
FAILED = "error"
ELSEWHERE = "elsewhere"  # the finish of an answer that another process is writing, in a tree of this one
_ENDINGS = {
    SENT: "",
    "stop": "",
    "length": "cut off by max-tokens",
    "context": "cut off: the context is full",
    INTERRUPTED: "stopped",
    "timeout": "stopped by --timeout",
    FAILED: "failed",
    ELSEWHERE: "still being written by another localspec",
}


def ending(finish: str | None) -> str:
    return "still being written" if finish is None else _ENDINGS.get(finish, finish)


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
        return with_attachments(self.text, self.attachments)

    @property
    def reasoning(self) -> str:
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
    parts = [part for part in pair.split("+") if part != "none"]
    names = [PurePath(part).name if part.startswith("/") else part for part in parts]
    return "+".join(name[:-5] if name.lower().endswith(".gguf") else name for name in names)


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that a search found, or with None a title, and an excerpt of its text in one line."""

    conversation: Conversation
    message: StoredMessage | None
    excerpt: str


def new_id(now: float) -> str:
    # Not `secrets`: it brings hashlib, and the chat's first picture waits for all that is imported.
    number = max(0, int(now) - _BEGINNING) * 32**2 + int.from_bytes(os.urandom(2)) % 32**2
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(LENGTH)))


def as_typed(text: str) -> str:
    meant = text.strip().lower().translate(_TYPED)
    return meant if len(meant) <= LENGTH and all(letter in ALPHABET for letter in meant) else ""
