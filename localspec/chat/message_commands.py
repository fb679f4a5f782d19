"""Commands about the messages of this conversation: edit, take back, other branches, show, copy, attach."""

import re

from localspec.chat.command import Chat, command
from localspec.chat.listing import count, said, short
from localspec.chat.message_tree import Node
from localspec.conversations.records import ASSISTANT
from localspec.errors import UsageError
from localspec.sanitize import one_line
from localspec.settings.sizes import whole
from localspec.ui.files import several_completions

_BLOCK = re.compile(r"^ {0,3}(`{3,}+|~{3,}+)[^\n]*\n(.*?)(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)


@command("/edit [TEXT]", "say the last message differently; alone, in an editor", needs_rest=True)
async def edit(chat: Chat, argument: str) -> None:
    question = chat.state.messages.question()
    if question is None:
        raise UsageError("there is nothing to edit", hint="send a message first")
    text = argument or await chat.rewrite(question)
    if text is None:
        return
    if text == question.text or not text.strip():
        await chat.tell("nothing was changed")
    else:
        await chat.answer(chat.state.edit(question, text))


@command("/undo", "take back the last message and its answer", needs_rest=True)
async def undo(chat: Chat, _argument: str) -> None:
    question = chat.state.undo()
    restores = "/undelete brings back a deleted conversation"
    if question is None:
        await chat.tell(f"there is nothing to undo here; {restores}")
        return
    names = ", ".join(one_line(each.name) for each in question.attachments)
    more = f"; attached {names} to your next message" if names else ""
    more += f"; {restores}" if chat.state.deleted else ""
    await chat.moved(f"undone: {short(question.text)} (/branch restores it){more}", unsaid=question)


@command("/branch [N]", "list the branches; with N, open one", needs_rest=True)
async def branch(chat: Chat, argument: str) -> None:
    messages = chat.state.messages
    ends, path = messages.paths(), messages.path()
    if not argument:
        here = {entry.id for entry in path}
        marks = ["*" if path and end is path[-1] else " " for end in ends]
        lines = [
            f"{mark}{number:>3}. {_way(messages.path_to(end), here)}"
            for number, (mark, end) in enumerate(zip(marks, ends, strict=True), 1)
        ]
        await chat.show(lines or ["  no messages yet"])
        return
    number = whole(argument) or 0
    if not 1 <= number <= len(ends):
        raise UsageError(f"there is no branch {argument!r}", hint="/branch lists them")
    chat.state.go_to(ends[number - 1])
    await chat.moved("")
    await chat.show_path()


@command("/history", "show the conversation")
async def history(chat: Chat, _argument: str) -> None:
    await chat.show_path()


@command("/copy [N|code|all]", "copy the last answer, the Nth from the end, or its last block of code",
         values="code all")  # fmt: skip
async def copy(chat: Chat, argument: str) -> None:
    path = chat.state.messages.path()
    answers = [entry.text for entry in path if entry.role == ASSISTANT]
    if argument == "all":
        await chat.copy("\n\n".join(said(path)), "the conversation")
    elif not answers:
        raise UsageError("there is nothing to copy", hint="send a message first")
    elif argument == "code":
        blocks = code_blocks(answers[-1])
        if not blocks:
            raise UsageError("there is no code in the last answer", hint="/copy copies all of it")
        await chat.copy(blocks[-1], "its code")
    else:
        number = whole(argument) or 0 if argument else 1
        if not 1 <= number <= len(answers):
            raise UsageError(f"there is no answer {argument!r} to copy", hint="/copy, /copy 2, /copy code or /copy all")
        await chat.copy(answers[-number], "the answer")


@command("/read FILE...", "attach texts, folders and patterns to the next message; none removes all",
         aliases="attach file", screen="attach", values=several_completions)  # fmt: skip
async def read(chat: Chat, argument: str) -> None:
    if not argument:
        raise UsageError("/read needs a file", hint="/read FILE, or several, a folder, or '*.py'")
    if argument == "none":
        await chat.tell(chat.state.detach())
        return
    taken, warnings = chat.state.attach(argument)
    await chat.tell(f"{taken.summary}; for your next message")
    for warning in warnings:
        await chat.warn(warning)


def _way(path: list[Node], here: set[int]) -> str:
    first = next((entry for entry in path if entry.id not in here), None)
    if first is None:
        return f"here, {count(len(path))}"
    last = "" if path[-1] is first else f" … {short(path[-1].text)}"
    return f"from message {path.index(first) + 1} of {len(path)}: {short(first.text)}{last}"


def code_blocks(answer: str) -> list[str]:
    return [str(code) for _, code in _BLOCK.findall(answer)]
