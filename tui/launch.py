"""Opening the chat: what the command line calls once everything it was told has been found right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.chat.pair_loader import ChatWorker
from localspec.chat.state import ChatState
from localspec.settings.setting import Setting
from localspec.tui.app import LocalspecApp
from localspec.tui.background import is_dark
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.signals import leaving
from localspec.tui.worker_thread import WorkerThread


@dataclass(frozen=True, slots=True)
class Look:
    """The screen at the start: theme (auto, dark or light), tokens by origin, figures beside the chat.

    `reads_ahead` is as in `ReadingAhead`.
    """

    theme: str = "auto"
    has_tokens: bool = False
    has_figures: bool = True
    reads_ahead: str = "auto"


def open_chat(
    worker: ChatWorker,
    state: ChatState,
    *,
    form: Callable[[], Sequence[Setting]] = tuple,
    look: Look | None = None,
) -> int:
    """Run the chat until it is left; return the exit code.

    `form` returns the settings that the request was made from, each with its origin. Raises the error of an app that
    failed.
    """
    look = look or Look()
    engine = ChatEngine(state, WorkerThread(worker))
    app = LocalspecApp(
        engine,
        is_dark=is_dark() if look.theme == "auto" else look.theme == "dark",
        settings=form,
        has_tokens=look.has_tokens,
        has_figures=look.has_figures,
        reads_ahead=look.reads_ahead,
    )
    try:
        with leaving(app.leave):
            code = app.run()
    finally:
        engine.close()
    if app.bug is not None:
        raise app.bug
    return code or 0
