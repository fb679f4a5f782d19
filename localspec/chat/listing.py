"""Conversations as lines for people: lists, hits of a search, and what was said. Everything in them is made safe."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from localspec.chat.message_tree import Node
from localspec.conversations.records import USER, Conversation, Hit, StoredMessage, ending, model_names, spoken
from localspec.sanitize import one_line, sanitize
from localspec.settings.sizes import counted

YOU, ASSISTANT = "You: ", "Assistant: "
_SHORT = 60  # characters of a message in a list
_NAMED = 5  # attachments


def rows(conversations: Sequence[Conversation], *, numbered: bool = False, here: str | None = None) -> list[str]:
    """Return a line for each conversation; `numbered` begins with its number, and `here` is marked."""
    return [
        f"{f'{number:>3}. ' if numbered else ''}{each.id}  {when(each.updated)}  {count(each.n_messages):>12}  "
        f"{short(each.title) or '(no title)'}{' (this one)' if each.id == here else ''}"
        for number, each in enumerate(conversations, 1)
    ]


def hits(matches: Sequence[Hit], *, numbered: bool = False) -> list[str]:
    return [
        f"{f'{number:>3}. ' if numbered else ''}{hit.conversation.id}  {_where(hit)}{one_line(hit.excerpt)}"
        for number, hit in enumerate(matches, 1)
    ]


def _where(hit: Hit) -> str:
    if hit.message is None:
        return f"{when(hit.conversation.updated)}  Title: "
    return f"{when(hit.message.created)}  {YOU if hit.message.role == USER else ASSISTANT}"


def about(conversation: Conversation) -> str:
    parts = (when(conversation.created), one_line(model_names(conversation.pair)), one_line(conversation.title))
    return " · ".join(filter(None, (conversation.id, *parts)))


def named(conversation: Conversation) -> str:
    return f"{conversation.id} “{short(conversation.title) or 'no title'}”, {count(conversation.n_messages)}"


def renamed(after: Conversation, before: Conversation) -> str:
    return f"{named(after)}; it was “{short(before.title) or 'no title'}”"


def came_back(conversation: Conversation, path: Sequence[StoredMessage | Node]) -> str:
    return " · ".join(filter(None, (about(conversation), count(conversation.n_messages), attached(path))))


def attached(path: Sequence[StoredMessage | Node]) -> str:
    attachments = [each for message in path for each in message.attachments]
    names = [
        f"{one_line(each.name) or 'piped text'} ({counted(len(each.text.splitlines()), 'line')})"
        for each in attachments[:_NAMED]
    ]
    more = [f"{len(attachments) - _NAMED} more"] if len(attachments) > _NAMED else []
    return f"attached: {', '.join([*names, *more])}" if attachments else ""


def said(path: Sequence[StoredMessage | Node], figures: Callable[[Mapping[str, Any]], str] | None = None) -> list[str]:
    """Return what was said, with labels; an answer that was cut short says so. `figures` tells those of an answer."""
    lines = []
    for message in path:
        lines.append(f"{YOU if message.role == USER else ASSISTANT}{sanitize(spoken(message.role, message.content))}")
        if ending(message.finish):
            lines.append(f"({one_line(ending(message.finish))})")
        if figures is not None and message.stats and figures(message.stats):
            lines.append(f"({one_line(figures(message.stats))})")
    return lines


def in_columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name:<{width}}  {text}" for name, text in rows]


def when(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).isoformat(" ", "minutes")
    except (OverflowError, OSError, ValueError):
        return "?" * 16


def count(n: int) -> str:
    return counted(n, "message")


def short(text: str) -> str:
    line = one_line(text[: 10 * _SHORT])
    return line if len(line) <= _SHORT else f"{line[:_SHORT]}…"
