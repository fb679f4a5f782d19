"""Opening the chat: what the command line calls once everything it was told has been found right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.conversations.records import Conversation
from localspec.conversations.store import Store
from localspec.models.store import reference
from localspec.settings.request import LoadSettings, Message, Request
from localspec.settings.setting import Setting
from localspec.tui.app import LocalspecApp
from localspec.tui.background import is_dark
from localspec.tui.chat_state import ChatState
from localspec.tui.conversation_writer import ConversationWriter
from localspec.tui.message_tree import MessageTree
from localspec.tui.signals import leaving
from localspec.tui.worker_thread import Engine, WorkerThread


@dataclass(frozen=True, slots=True)
class Look:
    """How the screen begins: theme (auto, dark or light), tokens by origin, figures beside the chat."""

    theme: str = "auto"
    has_tokens: bool = False
    has_figures: bool = True


def open_chat(
    worker: Engine,
    store: Store,
    settings: LoadSettings,
    request: Request,
    *,
    system: tuple[Message, ...] = (),
    found: Conversation | None = None,
    form: Callable[[], Sequence[Setting]] = tuple,
    look: Look | None = None,
) -> int:
    """Run the chat until it is left, going on with the conversation `found`; return the exit code.

    `form` tells the settings that the request was made from, each with its origin. Raises what the app failed of.
    """
    look = look or Look()
    said = system[0].content if system else None
    messages = MessageTree(said)
    if found is not None:
        stored = store.messages(found.id)
        messages = MessageTree.restored(stored, system=said or found.system, key=found.id, leaf=found.leaf)
    writer, pair = ConversationWriter(store), reference(settings)
    if found is not None and (found.pair, found.system) != (pair, messages.system):
        writer.change(messages, pair=pair)
    chat_state = ChatState(WorkerThread(worker), writer, settings, request, messages)
    app = LocalspecApp(
        chat_state,
        writer,
        is_dark=is_dark() if look.theme == "auto" else look.theme == "dark",
        settings=form,
        has_tokens=look.has_tokens,
        has_figures=look.has_figures,
    )
    try:
        with leaving(app.leave):
            code = app.run()
    finally:
        close(chat_state)
    if app.bug is not None:
        raise app.bug
    return code or 0


def close(chat_state: ChatState) -> None:
    """End the engine, and keep what has come of an answer since the screen last looked."""
    chat_state.worker_thread.close()
    try:
        chat_state.take()
    finally:
        chat_state.writer.close()
