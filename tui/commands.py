"""The commands of the chat that are typed: everything that begins with a slash. // sends a literal one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from localspec.conversations.attachment import Attachment
from localspec.conversations.records import USER
from localspec.conversations.store import Store
from localspec.errors import UsageError
from localspec.sanitize import one_line
from localspec.settings.request import typed_path
from localspec.tui.talk import Talk
from localspec.ui.inputs import MAX_FILE, Inputs, text_or_file
from localspec.ui.settings import SETTINGS, changed, shown
from localspec.ui.slash import looked_up
from localspec.ui.summary import table


@dataclass(frozen=True, slots=True)
class Typed:
    """One command: what it does with its argument, how it is written, what the help says."""

    act: Callable[[Talk, str], Awaitable[None]]
    usage: str
    help: str


async def obey(chat: Talk, line: str) -> None:
    """Run the command that `line` holds; raises UsageError for one that does not exist."""
    command, argument = looked_up(line, COMMANDS, ALIASES)
    await command.act(chat, argument)


def action(name: str) -> Callable[[Talk, str], Awaitable[None]]:
    """Return a command that does what a key does."""

    async def act(chat: Talk, _argument: str) -> None:
        await chat.run_action(name)

    return act


def setting(name: str) -> Callable[[Talk, str], Awaitable[None]]:
    """Return a command that changes one setting."""

    async def act(chat: Talk, argument: str) -> None:
        await _set(chat, f"{name} {argument}".rstrip())

    return act


async def _set(chat: Talk, argument: str) -> None:
    name, _, value = argument.partition(" ")
    request = chat.chat_state.request
    if not name:
        await chat.tell("\n".join(f"{each:<18} {shown(request, each)}" for each in SETTINGS))
        return
    if value:
        request = changed(request, name, value.strip())
        chat.chat_state.change(request)
    await chat.tell(f"{name} {shown(request, name.lstrip('-'))}")


async def _system(chat: Talk, argument: str) -> None:
    if argument:
        chat.chat_state.set_system(None if argument == "none" else text_or_file("/system", argument))
        await chat.tell(f"system message: {chat.chat_state.messages.system or 'none'}")
    else:
        await chat.run_action("app.system")


async def _read(chat: Talk, argument: str) -> None:
    if not argument:
        await chat.run_action("app.attach")
        return
    told = detach(chat.chat_state.attached) if argument == "none" else attach(chat.chat_state.attached, argument)
    chat.show_attached()
    for line in told:
        await chat.tell(line)


def attach(attached: list[Attachment], name: str) -> list[str]:
    """Attach a text file to the next message; return what to tell of it: the first line, and what was wrong with it.

    Raises NotFoundError or PromptTooLongError.
    """
    path, inputs = typed_path(name), Inputs(MAX_FILE)
    text = inputs.regular(str(path))
    attached.append(Attachment(path.name, text))
    told = [f"{path.name} goes with your next message", *(warned.message for warned in inputs.warnings)]
    return list(map(one_line, told))


def detach(attached: list[Attachment]) -> list[str]:
    """Take back what was to go with the next message; return what to tell of it."""
    names = [each.name for each in attached]
    attached.clear()
    return [f"{one_line(name)} does not go with your next message" for name in names] or ["nothing was attached"]


async def _stats(chat: Talk, _argument: str) -> None:
    trace = chat.chat_state.trace
    await chat.tell("nothing was answered yet" if trace is None else table(trace.stats))


async def _undo(chat: Talk, _argument: str) -> None:
    if chat.is_answering():
        return
    asked = chat.chat_state.undo()
    if asked is None:
        raise UsageError("there is nothing to undo", hint="send a message first")
    await chat.renew()
    chat.composer.fill(asked.text)


async def _edit(chat: Talk, _argument: str) -> None:
    asked = next((entry for entry in reversed(chat.chat_state.messages.path()) if entry.role == USER), None)
    if asked is None:
        raise UsageError("there is nothing to edit", hint="send a message first")
    if not chat.is_answering():
        chat.edit(asked)


async def _fork(chat: Talk, _argument: str) -> None:
    path = chat.chat_state.messages.path()
    if not path:
        raise UsageError("there is nothing to fork", hint="send a message first")
    await chat.fork(path[-1])


async def _title(chat: Talk, argument: str) -> None:
    key = chat.chat_state.messages.key
    if not argument or key is None:
        raise UsageError("/title needs a title, and a conversation", hint="/title TEXT, after the first message")

    def renamed(store: Store) -> str:
        store.rename(key, argument)
        return store.get(key).title

    kept = await asyncio.wrap_future(chat.app.writer.ask(renamed))
    await chat.tell(f"title: {kept}")


async def _copy(chat: Talk, argument: str) -> None:
    answer = chat.chat_state.last_answer
    if answer is None:
        raise UsageError("there is nothing to copy", hint="send a message first")
    if argument == "code":
        fences = answer.text.split("```")[1::2]
        if not fences:
            raise UsageError("the last answer has no code", hint="/copy")
        chat.copy_text("\n".join(fence.partition("\n")[2] for fence in fences), "its code")
    elif argument == "all":
        chat.copy_text("\n\n".join(entry.text for entry in chat.chat_state.messages.path()), "the conversation")
    else:
        chat.copy_text(answer.text, "the answer")


COMMANDS: dict[str, Typed] = {
    "set": Typed(_set, "/set [NAME VALUE]", "change a setting; alone, list them"),
    "temp": Typed(setting("temp"), "/temp F", "temperature"),
    "seed": Typed(setting("seed"), "/seed N", "seed; none: a new one each time"),
    "k": Typed(setting("k"), "/k N", "draft tokens per pass; 0: plain decoding"),
    "system": Typed(_system, "/system [TEXT|@FILE]", "system message; none removes it"),
    "read": Typed(_read, "/read [FILE]", "attach a text to the next message; none takes all back"),
    "regen": Typed(action("regenerate"), "/regen", "answer the last message again"),
    "undo": Typed(_undo, "/undo", "take the last message back"),
    "new": Typed(action("app.new"), "/new", "begin a new conversation"),
    "load": Typed(action("app.conversations"), "/load", "go on with another conversation"),
    "edit": Typed(_edit, "/edit", "write the last message anew, as another branch"),
    "fork": Typed(_fork, "/fork", "go on in a copy of the conversation"),
    "title": Typed(_title, "/title TEXT", "give the conversation a title"),
    "model": Typed(action("app.pairs"), "/model", "choose the pair, or download one"),
    "race": Typed(action("app.race"), "/race", "plain against speculative on one prompt"),
    "settings": Typed(action("app.settings"), "/settings", "every setting, and where it comes from"),
    "copy": Typed(_copy, "/copy [code|all]", "copy the last answer, its code, or everything"),
    "export": Typed(action("app.export"), "/export", "write the conversation to a file"),
    "stats": Typed(_stats, "/stats", "every number of the last answer"),
    "tokens": Typed(action("origins"), "/tokens", "show where each token comes from"),
    "restart": Typed(action("app.restart"), "/restart", "start the engine anew"),
    "help": Typed(action("app.help"), "/help", "keys and commands"),
    "bye": Typed(action("app.quit"), "/bye", "leave"),
}
ALIASES = {
    "clear": "new",
    **dict.fromkeys(("exit", "quit", "q"), "bye"),
    **dict.fromkeys(("resume", "list", "search"), "load"),
    **dict.fromkeys(("pair", "draft"), "model"),
    "?": "help",
    "save": "export",
}
