"""The commands of a chat: everything that begins with a slash. // sends a literal one."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.attachment import Attachment
from localspec.cli.console import one_line, write_out
from localspec.cli.conversation import Conversation
from localspec.cli.inputs import MAX_FILE, Inputs
from localspec.cli.settings import check, text_or_file
from localspec.cli.summary import table
from localspec.cli.talk import ASSISTANT, YOU, Chat
from localspec.cli.tuning import SETTINGS, changed, shown
from localspec.errors import UsageError
from localspec.sanitize import sanitize


@dataclass(frozen=True, slots=True)
class Slash:
    """One command: what it does with its argument, how it is written, what /help says."""

    act: Callable[[Chat, str], None]
    usage: str
    help: str


def obey(chat: Chat, line: str) -> None:
    """Run the command that `line` holds; raises UsageError for one that does not exist."""
    name, _, argument = line[1:].partition(" ")
    name = ALIASES.get(name.lower(), name.lower())
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
        hint = f"/{near[0]}" if near else "/help"
        raise UsageError(f"there is no command /{name}", hint=f"{hint}, or // to send a slash")
    command.act(chat, argument.strip())


def _stats(chat: Chat, _argument: str) -> None:
    write_out(table(chat.last) + "\n" if chat.last is not None else "  nothing was answered yet\n")


def _set(chat: Chat, argument: str) -> None:
    name, _, value = argument.partition(" ")
    if not name:
        write_out("".join(f"  {each:<18} {one_line(shown(chat.request, each))}\n" for each in SETTINGS))
        return
    if value:
        request = changed(chat.request, name, value.strip())
        check(request, chat.settings)  # before it is taken: a bad value leaves the old one
        chat.request = request
    elif name not in SETTINGS:
        changed(chat.request, name, "")  # raises, with the nearest name
    write_out(f"  {name} {one_line(shown(chat.request, name.lstrip('-')))}\n")


def _setting(name: str) -> Callable[[Chat, str], None]:
    return lambda chat, argument: _set(chat, f"{name} {argument}".rstrip())


def _system(chat: Chat, argument: str) -> None:
    if argument:
        chat.conversation.system = None if argument == "none" else text_or_file("/system", argument)
    write_out(f"  system: {one_line(chat.conversation.system or 'none')}\n")


def _regen(chat: Chat, _argument: str) -> None:
    if not chat.conversation.turns:
        raise UsageError("there is nothing to answer again", hint="send a message first")
    chat.regenerate()


def _undo(chat: Chat, _argument: str) -> None:
    turn = chat.conversation.undo()
    write_out("  there is nothing to undo\n" if turn is None else f"  forgotten: {_short(turn.user)}\n")


def _clear(chat: Chat, _argument: str) -> None:
    chat.conversation.clear()
    chat.attached.clear()
    write_out("  a new conversation\n")


def _save(chat: Chat, argument: str) -> None:
    path = _path(argument, "/save")
    chat.conversation.save(path, chat.settings.name)
    write_out(f"  saved {_count(chat.conversation)} to {one_line(str(path))}\n")


def _load(chat: Chat, argument: str) -> None:
    path = _path(argument, "/load")
    chat.conversation = Conversation.load(path)
    write_out(f"  loaded {_count(chat.conversation)} from {one_line(str(path))}\n")


def _read(chat: Chat, argument: str) -> None:
    path = _path(argument, "/read")
    inputs = Inputs(MAX_FILE)
    text = inputs.regular(str(path))
    for warned in inputs.warnings:
        chat.console.warn(warned.message)
    chat.attached.append(Attachment(path.name, text))
    lines = len(text.splitlines())
    write_out(f"  read {lines} line{'s' * (lines != 1)}; they go with your next message\n")


def _history(chat: Chat, _argument: str) -> None:
    for turn in chat.conversation.turns:
        write_out(f"{YOU}{sanitize(turn.user)}\n")
        if turn.assistant is not None:
            write_out(f"{ASSISTANT}{sanitize(turn.assistant)}\n")


def _tokens(chat: Chat, _argument: str) -> None:
    chat.has_marks = not chat.has_marks
    write_out(f"  marks {'on: ⟦corrected⟧, bonus⁺' if chat.has_marks else 'off'}\n")


def _help(_chat: Chat, _argument: str) -> None:
    rows = [(command.usage, command.help) for command in COMMANDS.values()]
    rows += [("\\ at the end", 'go on in the next line; or """ before and after'), ("//...", "send a slash")]
    write_out("".join(f"  {usage:<20} {text}\n" for usage, text in rows))


def _bye(chat: Chat, _argument: str) -> None:
    chat.is_over = True


def _path(argument: str, command: str) -> Path:
    if not argument:
        raise UsageError(f"{command} needs a file", hint=f"{command} FILE")
    return Path(argument).expanduser()


def _count(conversation: Conversation) -> str:
    n = len(conversation.turns)
    return f"{n} message{'s' * (n != 1)}"


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= 60 else f"{line[:60]}…"


COMMANDS: dict[str, Slash] = {
    "stats": Slash(_stats, "/stats", "every number of the last answer"),
    "set": Slash(_set, "/set [NAME VALUE]", "change a setting; alone, list them"),
    "temp": Slash(_setting("temp"), "/temp F", "temperature"),
    "seed": Slash(_setting("seed"), "/seed N", "seed; none: a new one each time"),
    "k": Slash(_setting("k"), "/k N", "draft tokens per pass; 0: plain decoding"),
    "system": Slash(_system, "/system TEXT|@FILE", "system message; none removes it"),
    "regen": Slash(_regen, "/regen", "answer the last message again"),
    "undo": Slash(_undo, "/undo", "forget the last message and its answer"),
    "clear": Slash(_clear, "/clear", "forget everything said (also: /new)"),
    "save": Slash(_save, "/save FILE", "write the conversation to a file"),
    "load": Slash(_load, "/load FILE", "go on with a saved conversation"),
    "read": Slash(_read, "/read FILE", "attach a text to the next message"),
    "history": Slash(_history, "/history", "show the conversation"),
    "tokens": Slash(_tokens, "/tokens", "mark where each token comes from"),
    "help": Slash(_help, "/help", "this list"),
    "bye": Slash(_bye, "/bye", "leave (also: /exit, /quit, Ctrl-D)"),
}
ALIASES = {"new": "clear", "exit": "bye", "quit": "bye", "?": "help", "q": "bye"}
