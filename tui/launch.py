"""Opening the chat: what the command line calls once everything it was told has been found right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.chat.pair_loader import ChatWorker
from localspec.chat.state import ChatState
from localspec.settings.declaration import Setting
from localspec.tui.app import LocalspecApp
from localspec.tui.background import background
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.leaving import leaving
from localspec.tui.worker_thread import WorkerThread


@dataclass(frozen=True, slots=True)
class ScreenLook:
    """The screen at the start: theme (auto, dark or light), tokens by origin, figures beside the chat."""

    theme: str = "auto"
    has_tokens: bool = False
    has_figures: bool = True


def open_chat(
    worker: ChatWorker,
    state: ChatState,
    *,
    form: Callable[[], Sequence[Setting]] = tuple,
    look: ScreenLook | None = None,
) -> int:
    """Run the chat until it is left; return the exit code.

    `form` returns the settings that the request was made from, each with its origin. Raises the error of an app that
    failed.
    """
    look = look or ScreenLook()
    engine = ChatEngine(state, WorkerThread(worker))
    is_dark, typed = background() if look.theme == "auto" else (look.theme == "dark", "")
    app = LocalspecApp(
        engine,
        is_dark=is_dark,
        typed=typed,
        settings=form,
        has_tokens=look.has_tokens,
        has_figures=look.has_figures,
    )
    try:
        with leaving(app.leave):
            code = app.run()
    finally:
        engine.close()
    if app.bug is not None:
        raise app.bug
    return code or 0
