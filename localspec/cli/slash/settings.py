"""What of the next answer is set: /set and its short forms, /system, /model, /draft, /tokens; and figures."""

from __future__ import annotations

from collections.abc import Callable

from localspec.cli.console import write_out
from localspec.cli.line_chat import Chat
from localspec.cli.race import figures
from localspec.errors import UsageError
from localspec.models.store import reference, target_reference
from localspec.sanitize import one_line
from localspec.ui.inputs import text_or_file
from localspec.ui.settings import SETTINGS, changed, check, shown
from localspec.ui.summary import table


def show_stats(chat: Chat, _argument: str) -> None:
    """Every number of the last answer."""
    write_out(table(chat.last) + "\n" if chat.last is not None else "  nothing was answered yet\n")


def race(chat: Chat, _argument: str) -> None:
    """Answer the last message plainly and with speculation: how much faster, and the same text?"""
    if chat.current.question() is None:
        raise UsageError("there is nothing to answer in a race", hint="send a message first")
    found = chat.race()
    write_out("  stopped\n" if found is None else "".join(f"  {line}\n" for line in figures(found)))


def change(chat: Chat, argument: str) -> None:
    """Change one setting, show it, or show all."""
    name, _, value = argument.partition(" ")
    if not name:
        write_out("".join(f"  {each:<18} {one_line(shown(chat.request, each))}\n" for each in SETTINGS))
        return
    if value:
        request = changed(chat.request, name, value.strip())
        check(request, chat.settings)  # before it is taken: a bad value leaves the old one
        chat.request = request
    write_out(f"  {name} {one_line(shown(chat.request, name.lstrip('-')))}\n")


def setting(name: str) -> Callable[[Chat, str], None]:
    """Return the command that changes one setting."""
    return lambda chat, argument: change(chat, f"{name} {argument}".rstrip())


def change_system(chat: Chat, argument: str) -> None:
    """Change or show the system message."""
    if argument:
        chat.current.system = None if argument == "none" else text_or_file("/system", argument)
    write_out(f"  system: {one_line(chat.current.system or 'none')}\n")


def change_model(chat: Chat, argument: str) -> None:
    """Let another pair answer, or show which one does."""
    if argument:
        _switch(chat, argument)
    draft = "" if chat.settings.draft is not None else ", without a draft model"
    write_out(f"  pair: {one_line(chat.settings.name)}{draft}\n")


def change_draft(chat: Chat, argument: str) -> None:
    """Let another model draft for the same target."""
    if argument:
        _switch(chat, f"{target_reference(chat.settings)}+{argument}")
    write_out(f"  draft: {one_line(chat.settings.draft or 'none')}\n")


def toggle_marks(chat: Chat, _argument: str) -> None:
    """Mark where each token comes from, or do not."""
    chat.has_marks = not chat.has_marks
    write_out(f"  marks {'on: ⟦corrected⟧, bonus⁺' if chat.has_marks else 'off'}\n")


def _switch(chat: Chat, pair: str) -> None:
    """Find the pair and check that the settings go with it before anything is given up."""
    if chat.open_pair is None:
        raise UsageError("this chat cannot change its pair", hint="localspec chat -m PAIR")
    settings = chat.open_pair(pair)
    check(chat.request, settings)
    chat.switch(settings, reference(settings))
