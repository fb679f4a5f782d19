"""Conversations that are kept: new, list, search, resume, fork, title, delete, and files of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localspec.cli.console import write_out
from localspec.cli.conversation_file import Saved, load, save, turns
from localspec.cli.line_chat import Chat
from localspec.cli.listing import about, count, hits, rows
from localspec.cli.logs_export import write_export
from localspec.conversations.records import ASSISTANT, Conversation
from localspec.errors import UsageError
from localspec.sanitize import one_line
from localspec.settings.method_options import whole
from localspec.settings.request import typed_path

N = 20  # conversations of a list


def begin(chat: Chat, _argument: str) -> None:
    """A new conversation, under the same system message."""
    chat.current.begin()
    chat.attached.clear()
    write_out("  a new conversation\n")


def show_list(chat: Chat, argument: str) -> None:
    """The conversations that were used last, with numbers for /resume; 0 is all, as for `localspec logs -n`."""
    n = whole(argument) if argument else N
    if n is None:
        raise UsageError(f"{argument!r} is no number of conversations", hint="/list, /list 50, or /list 0 for all")
    found = chat.current.store.conversations(n or -1)
    _remember(chat, found)
    lines = rows(found, numbered=True, here=chat.current.id)
    write_out("".join(f"{line}\n" for line in lines or ["  there are no conversations yet"]))


def search(chat: Chat, argument: str) -> None:
    """The messages with all of these words, with numbers for /resume."""
    if not argument:
        raise UsageError("there is nothing to search for", hint="/search WORDS")
    found = chat.current.store.search(argument, N)
    _remember(chat, [hit.conversation for hit in found])
    write_out("".join(f"{line}\n" for line in hits(found, numbered=True) or ["  nothing was found"]))


def resume(chat: Chat, argument: str) -> None:
    """Go on with another conversation; its pair stays the one that answers here."""
    if not argument:
        show_list(chat, "")
        if chat.listed:
            write_out("  /resume NUMBER goes on with one of them\n")
        return
    found = _named(chat, argument)
    chat.current.resume(found)
    chat.attached.clear()
    write_out(f"  {about(found)} · {count(found.n_messages)}\n")


def fork(chat: Chat, _argument: str) -> None:
    """Go on in a copy; the conversation so far stays as it is."""
    if not chat.current.fork():
        raise UsageError("there is nothing to fork yet", hint="send a message first")
    write_out(f"  a copy, {chat.current.id}, goes on from here\n")


def rename(chat: Chat, argument: str) -> None:
    """Give this conversation a title, or show it."""
    if chat.current.id is None:
        raise UsageError("the conversation has no messages yet", hint="send a message first")
    if argument:
        chat.current.store.rename(chat.current.id, argument)
    write_out(f"  title: {one_line(chat.current.store.get(chat.current.id).title)}\n")


def delete(chat: Chat, argument: str) -> None:
    """Delete this conversation or another one; for a week it can be brought back."""
    if not argument and chat.current.id is None:
        raise UsageError("there is nothing to delete yet", hint="/delete ID; /list shows the ids")
    here = chat.current.id or ""
    found = _named(chat, argument) if argument else chat.current.store.get(here)
    chat.current.store.delete(found.id)
    if found.id == chat.current.id:
        chat.current.begin()
    write_out(f"  deleted {found.id}; /undelete brings it back\n")


def undelete(chat: Chat, _argument: str) -> None:
    """Bring back what was deleted last, and go there if nothing has been said since."""
    found = chat.current.store.undelete()
    if chat.current.id is None:
        chat.current.resume(found)
    write_out(f"  {about(found)} is back\n")


def export(chat: Chat, argument: str) -> None:
    """Write this conversation to a file: .md, .html or .json."""
    if chat.current.id is None:
        raise UsageError("there is nothing to export yet", hint="send a message first")
    path = path_of(argument, "/export")
    write_export(chat.current.store, chat.current.id, chat.current.leaf, path, None, hint="/export with another name")
    write_out(f"  wrote {one_line(str(path))}\n")


def save_file(chat: Chat, argument: str) -> None:
    """Write what was said to a file of JSON that /load reads."""
    path, said = path_of(argument, "/save"), turns(chat.current.path())
    save(path, Saved(chat.current.system, said), chat.settings.name)
    write_out(f"  saved {count(len(said))} to {one_line(str(path))}\n")


def load_file(chat: Chat, argument: str) -> None:
    """Go on with what /save wrote, in a new conversation."""
    path = path_of(argument, "/load")
    saved, current = load(path), chat.current
    current.begin()
    current.system = saved.system
    for turn in saved.turns:
        asked = current.ask(turn.user)
        if turn.assistant is not None:
            answer = current.store.add_message(asked.conversation, asked.id, ASSISTANT, turn.assistant)
            current.leaf = current.store.finish(answer.id, "stop").id
    write_out(f"  loaded {count(len(saved.turns))} from {one_line(str(path))}\n")


def path_of(argument: str, command: str) -> Path:
    """Return the file that is named; raises UsageError if none is."""
    if not argument:
        raise UsageError(f"{command} needs a file", hint=f"{command} FILE")
    return typed_path(argument)


def _remember(chat: Chat, found: Sequence[Conversation]) -> None:
    chat.listed = [each.id for each in found]


def _named(chat: Chat, argument: str) -> Conversation:
    """Return the conversation that a number of the last list means, or an id or a part of one."""
    number = whole(argument) or 0
    if 1 <= number <= len(chat.listed):
        return chat.current.store.find(chat.listed[number - 1])
    return chat.current.store.find(argument)
