"""The table of all commands. Each of the modules below registers some; a new command is one function in one of them."""

from __future__ import annotations

from localspec.chat import answer_commands, conversation_commands, message_commands, settings_commands
from localspec.chat.command import TABLE, Chat, command
from localspec.chat.listing import in_columns

__all__ = ["FAMILIES", "TABLE", "help_rows"]

FAMILIES = (answer_commands, settings_commands, message_commands, conversation_commands)
OTHERS = (
    ("\\ at the end", 'go on in the next line; in the line chat also """ before and after'),
    ("//...", "send a message that begins with a slash"),
)


def help_rows() -> list[tuple[str, str]]:
    """Return every command as it is typed, with its help."""
    return [*((each.usage, each.description) for each in TABLE.commands), *OTHERS]


@command("/help", "keys and commands", aliases="?", screen="help")
async def show_help(chat: Chat, _argument: str) -> None:
    """List the commands."""
    await chat.show(in_columns(help_rows()))


@command("/bye", "leave the chat", aliases="exit quit q")
async def leave(chat: Chat, _argument: str) -> None:
    """End the chat."""
    await chat.leave()
