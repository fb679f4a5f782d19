"""Commands about the last answer and the engine that gave it."""

from __future__ import annotations

from localspec.chat.command import Chat, command
from localspec.errors import UsageError
from localspec.ui.summary import table


@command("/stats", "every number of the last answer")
async def show_stats(chat: Chat, _argument: str) -> None:
    """Show the figures of the last answer."""
    if chat.stats is None:
        await chat.tell("nothing was answered yet")
    else:
        await chat.show(table(chat.stats).split("\n"))


@command("/race", "answer the last message plainly, too: how much faster?", needs_rest=True)
async def race(chat: Chat, _argument: str) -> None:
    """Answer the last message plainly and with speculation."""
    if chat.state.messages.question() is None:
        raise UsageError("there is nothing to answer in a race", hint="send a message first")
    await chat.race()


@command("/tokens", "show where each token comes from")
async def toggle_tokens(chat: Chat, _argument: str) -> None:
    """Show where each token comes from, or do not."""
    await chat.toggle_tokens()


@command("/regen", "answer the last message again", needs_rest=True)
async def regenerate(chat: Chat, _argument: str) -> None:
    """Answer the last message again; the answer that it has stays, as another branch."""
    question = chat.state.messages.question()
    if question is None:
        raise UsageError("there is nothing to answer again", hint="send a message first")
    await chat.answer(chat.state.ask_again(question))


@command("/restart", "start the engine anew", needs_rest=True)
async def restart(chat: Chat, _argument: str) -> None:
    """Start the engine anew."""
    await chat.restart()
