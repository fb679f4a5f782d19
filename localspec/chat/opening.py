"""What a person is told of a conversation that opens, and what must not be done in it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.chat.message_tree import Node
from localspec.chat.state import ChatState
from localspec.conversations.records import ELSEWHERE, model_names
from localspec.errors import NotFoundError, UsageError
from localspec.models.store import is_of_target, reference
from localspec.sanitize import one_line
from localspec.settings.sizes import counted
from localspec.settings.values import verifier_of

if TYPE_CHECKING:
    from localspec.chat.command import Chat


def remarks(state: ChatState) -> list[str]:
    """Return that another target has answered here, and that another process answers now; [] where neither is so."""
    return [line for line in (_other_target(state), _elsewhere(state)) if line]


def _other_target(state: ChatState) -> str:
    held, here = state.messages.pair, reference(state.settings)
    if not held or held == here or is_of_target(held, state.settings):
        return ""
    names = model_names(held), model_names(here)
    was, now = (one_line(each) for each in (names if names[0] != names[1] else (held, here)))
    if state.settings.verifier is not None:  # there /model names the draft
        back = ""
    elif verifier_of(held):
        back = f" — localspec chat -c --verifier {one_line(verifier_of(held) or '')} goes back"
    else:
        back = f" — /model {one_line(held)} loads the other"
    return f"this conversation was held with {was}; from here on {now} answers{back}"


def _elsewhere(state: ChatState) -> str:
    last = written_elsewhere(state)
    if last is None:
        return ""
    return f"another localspec (process {last.writer}) is answering here; /fork goes on in a copy of what there is"


def written_elsewhere(state: ChatState) -> Node | None:
    last = state.messages.path()[-1:]
    return last[0] if last and last[0].finish == ELSEWHERE else None


async def catch_up(chat: Chat) -> str:
    """Take in what another process has added to this conversation; return what to tell of it, "" for nothing."""
    messages = chat.state.messages
    key, after = messages.key, messages.unseen_after
    if key is None or not chat.state.writer.is_saved:
        return ""
    try:
        messages_since = await chat.wait(chat.state.writer.ask(lambda store: store.messages(key, after)))
    except Exception:  # the chat goes on without its file; the next message cannot be kept either, which is told then
        return ""
    new, ended = messages.join(messages_since)
    seen = [each for each in messages.path() if each in ended]
    if seen:
        await chat.show_ended(seen)
    news = f"another localspec has added {counted(len(new), 'message')} here: /branch lists the branches"
    return news if new else ""


async def tell_news(chat: Chat) -> None:
    news = await catch_up(chat)
    if news:
        await chat.tell(news)


async def require_whole(chat: Chat) -> None:
    """Take over an answer that another process has ended by now; raises UsageError while it is being written."""
    await tell_news(chat)
    last = written_elsewhere(chat.state)
    if last is None or last.key is None:
        return
    key = last.key
    try:
        await chat.wait(chat.state.writer.ask(lambda store: store.message(key)))
    except NotFoundError:  # deleted meanwhile: what is said next begins another conversation
        return
    refuse_unfinished(chat.state, hint="wait for its end, or /fork to go on in a copy")


def refuse_unfinished(state: ChatState, *, hint: str) -> None:
    last = written_elsewhere(state)
    if last is not None:
        raise UsageError(f"another localspec (process {last.writer}) is still answering here", hint=hint)
