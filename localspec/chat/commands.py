"""The table of all commands, and those about the last answer and the engine.

The `*_commands` modules register the others. A new command is one function in one of these files.
"""

from localspec.chat import conversation_commands, message_commands, settings_commands
from localspec.chat.command import TABLE, Chat, command
from localspec.chat.listing import in_columns
from localspec.errors import UsageError
from localspec.ui.summary import table

__all__ = ["FAMILIES", "TABLE", "help_rows"]

MOST_ROUNDS = 1000  # of a race
FAMILIES = (settings_commands, message_commands, conversation_commands)
OTHERS = (
    ("@file, @folder/, @*.py", "send files with a message; Tab completes their names"),
    ("\\ at the end", 'go on in the next line; in the line chat also """ before and after'),
    ("//...", "send a message that begins with a slash"),
)


def help_rows() -> list[tuple[str, str]]:
    return [*((each.usage, each.description) for each in TABLE.commands), *OTHERS]


@command("/stats", "every number of the last answer")
async def show_stats(chat: Chat, _argument: str) -> None:
    if chat.state.answering_here is not None and chat.stats is not None:
        lines = [
            line for line in table(chat.stats).split("\n") if line and not line.startswith(("  in short", "  why"))
        ]
        await chat.show(["The answer is still being written. Its figures so far:", *lines])
    elif chat.stats is None or not table(chat.stats):
        await chat.tell("there is no answer yet" if chat.stats is None else "the last answer has no figures")
    else:
        await chat.show(table(chat.stats).split("\n"))


@command("/race [ROUNDS]", "answer the last message plainly too, and compare", needs_rest=True, values="6")
async def race(chat: Chat, argument: str) -> None:
    if chat.state.messages.question() is None:
        raise UsageError("there is no message to race", hint="send a message first")
    rounds = int(argument or 1) if argument.isascii() and (argument or "1").isdigit() else 0
    if not 1 <= rounds <= MOST_ROUNDS:
        raise UsageError(f"{argument!r} is no number of rounds, from 1 to {MOST_ROUNDS}", hint="/race 6")
    await chat.race(rounds)


@command("/tokens", "show where each token comes from")
async def toggle_tokens(chat: Chat, _argument: str) -> None:
    await chat.toggle_tokens()


@command("/regen", "regenerate the last answer", aliases="retry", needs_rest=True)
async def regenerate(chat: Chat, _argument: str) -> None:
    question = chat.state.messages.question()
    if question is None:
        raise UsageError("there is no answer to regenerate", hint="send a message first")
    asked = chat.state.ask_again(question)
    remark = chat.state.seed_of_next(asked)
    await chat.answer(asked)
    if remark:
        await chat.tell(remark)


@command("/restart", "restart the engine", needs_rest=True)
async def restart(chat: Chat, _argument: str) -> None:
    await chat.restart()


@command("/help", "keys and commands", aliases="?", screen="help")
async def show_help(chat: Chat, _argument: str) -> None:
    await chat.show(in_columns(help_rows()))


@command("/bye", "leave the chat", aliases="exit quit q")
async def leave(chat: Chat, _argument: str) -> None:
    await chat.leave()
