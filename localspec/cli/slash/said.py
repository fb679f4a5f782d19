"""What was said here: answer again, edit, take back, other branches, show, copy, attach."""

from __future__ import annotations

import re
import sys

from localspec.cli.clipboard import copy
from localspec.cli.console import is_terminal, write_out
from localspec.cli.line_chat import Chat
from localspec.cli.listing import count, said, short
from localspec.conversations.attachment import Attachment
from localspec.conversations.records import ASSISTANT, Message
from localspec.errors import UsageError
from localspec.settings.method_options import whole
from localspec.settings.request import typed_path
from localspec.ui.editor import edited, left_to_it
from localspec.ui.inputs import MAX_FILE, Inputs

_BLOCK = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)


def regenerate(chat: Chat, _argument: str) -> None:
    """Answer the last message again; the answer that was stays, as another branch."""
    if chat.current.back_to_question() is None:
        raise UsageError("there is nothing to answer again", hint="send a message first")
    chat.regenerate()


def edit(chat: Chat, argument: str) -> None:
    """Say the last message differently, in words that follow or in $EDITOR; what was said stays, as another branch."""
    question = chat.current.question()
    if question is None:
        raise UsageError("there is nothing to edit", hint="send a message first")
    text = argument or _edited(question.text)
    if text == question.text or not text.strip():
        write_out("  nothing was changed\n")
        return
    attached, chat.attached = [*question.attachments, *chat.attached], []
    chat.current.go_to(question.parent)
    chat.current.ask(text, attached)
    chat.answer()


def undo(chat: Chat, _argument: str) -> None:
    """Take back the last message and its answer."""
    question = chat.current.before_question()
    if question is None:
        write_out("  there is nothing to undo\n")
    else:
        write_out(f"  taken back: {short(question.text)} (/branch brings it back)\n")


def branch(chat: Chat, argument: str) -> None:
    """Show how this conversation went, each way it took, or go to one of them."""
    ends = chat.current.paths()
    if not argument:
        here = {message.id for message in chat.current.path()}
        for number, end in enumerate(ends, 1):
            mark = "*" if end.id == chat.current.leaf else " "
            write_out(f"{mark}{number:>3}. {_way(chat, end, here)}\n")
        if not ends:
            write_out("  nothing was said yet\n")
        return
    number = whole(argument) or 0
    if not 1 <= number <= len(ends):
        raise UsageError(f"there is no branch {argument!r}", hint="/branch lists them")
    chat.current.go_to(ends[number - 1].id)
    show(chat, "")


def show(chat: Chat, _argument: str) -> None:
    """What was said up to here."""
    write_out("".join(f"{line}\n" for line in said(chat.current.path())))


def copy_answer(chat: Chat, argument: str) -> None:
    """Copy the last answer, the code in it, the answer N before it, or everything, as it was written."""
    path = chat.current.path()
    answers = [message.text for message in path if message.role == ASSISTANT]
    if argument == "all":
        text = "\n\n".join(said(path))
    elif not answers:
        raise UsageError("there is nothing to copy", hint="send a message first")
    elif argument == "code":
        text = _code(answers[-1])
    else:
        number = whole(argument) or 0 if argument else 1
        if not 1 <= number <= len(answers):
            raise UsageError(f"there is no answer {argument!r} to copy", hint="/copy, /copy 2, /copy code or /copy all")
        text = answers[-number]
    write_out(f"  {copy(text)}\n")


def attach(chat: Chat, argument: str) -> None:
    """Attach a text file to the next message, or take back what was attached."""
    if not argument:
        raise UsageError("/read needs a file", hint="/read FILE")
    if argument == "none":
        chat.attached.clear()
        write_out("  nothing goes with your next message but its words\n")
        return
    path = typed_path(argument)
    inputs = Inputs(MAX_FILE)
    text = inputs.regular(str(path))
    for warned in inputs.warnings:
        chat.console.warn(warned.message)
    chat.attached.append(Attachment(path.name, text))
    lines = len(text.splitlines())
    write_out(f"  read {lines} line{'s' * (lines != 1)}; they go with your next message\n")


def _way(chat: Chat, end: Message, here: set[int]) -> str:
    """Return how a path differs from the one that is looked at: its first message of its own, and its last."""
    path = chat.current.store.path(end.id)
    first = next((message for message in path if message.id not in here), None)
    if first is None:
        return f"here, {count(len(path))}"
    last = "" if end.id == first.id else f" … {short(end.text)}"
    return f"from message {path.index(first) + 1} of {len(path)}: {short(first.text)}{last}"


def _code(answer: str) -> str:
    """Return the last block of code in an answer; one that is not closed goes to the end."""
    blocks = _BLOCK.findall(answer)
    if not blocks:
        raise UsageError("there is no code in the last answer", hint="/copy copies all of it")
    return str(blocks[-1][1])


def _edited(text: str) -> str:
    """Let a person edit `text` in the editor of their choice."""
    if not is_terminal(sys.stdin):
        raise UsageError("/edit needs the new words: nobody is at a terminal", hint="/edit WORDS")
    with left_to_it():
        return edited(text, hint="set EDITOR, or /edit WORDS")
