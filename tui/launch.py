"""Opening the chat: what the command line calls once everything it was told has been found right."""

from __future__ import annotations

from localspec.chat.pair_loader import ChatWorker
from localspec.chat.state import ChatState
from localspec.tui.app import LocalspecApp
from localspec.tui.background import background
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.leaving import leaving
from localspec.tui.worker_thread import WorkerThread


def open_chat(
    worker: ChatWorker,
    state: ChatState,
    *,
    theme: str = "auto",
    has_tokens: bool = False,
    has_figures: bool = True,
) -> int:
    """Run the chat until it is left; return the exit code.

    `theme` is auto, dark or light; the screen begins with tokens by origin, and with figures beside the chat, as
    `has_tokens` and `has_figures` say. Raises the error of an app that failed.
    """
    engine = ChatEngine(state, WorkerThread(worker))
    is_dark, typed = background() if theme == "auto" else (theme == "dark", "")
    app = LocalspecApp(
        engine,
        is_dark=is_dark,
        typed=typed,
        has_tokens=has_tokens,
        has_figures=has_figures,
    )
    try:
        with leaving(app.leave):
            code = app.run()
    finally:
        engine.close()
    if app.bug is not None:
        raise app.bug
    return code or 0
