"""The way from the chat to the other screens, which are imported when they are first wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from localspec.sanitize import sanitize
from localspec.tui.dialogue import USER

if TYPE_CHECKING:
    from localspec.tui.app import LocalspecApp


def open_race(app: LocalspecApp) -> None:
    """Race on the last question, or on what is being written."""
    from localspec.tui.screens.race import RaceScreen

    if not _is_free(app):
        return
    desk = app.desk
    asked = next((entry for entry in reversed(desk.dialogue.path()) if entry.role == USER), None)
    written = app.chat.composer.text.strip()
    if written or asked is None:
        app.push_screen(RaceScreen(desk, written, ()))
    else:
        app.push_screen(RaceScreen(desk, asked.text, desk.dialogue.messages(asked)))


def open_pairs(app: LocalspecApp) -> None:
    """Show what can be run."""
    from localspec.tui.screens.pairs import PairsScreen

    if _is_free(app):
        app.push_screen(PairsScreen(app.desk, folder=Path.cwd()))


def watch_download(app: LocalspecApp) -> None:
    """Tell how a download ended, whatever is shown then."""

    def look() -> None:
        download = app.download
        if download is None or download.is_over:
            timer.stop()
        if download is not None and download.phase == "done":
            app.notify(sanitize(f"{download.ref} is here; Ctrl+O uses it"), markup=False)
        elif download is not None and download.error is not None:
            app.notify(sanitize(f"{download.ref}: {download.error.message}"), severity="error", markup=False)

    timer = app.set_interval(0.25, look)


def open_settings(app: LocalspecApp) -> None:
    """Show the settings of the next answers."""
    from localspec.tui.screens.settings import SettingsScreen

    if app.screen is app.chat:
        app.push_screen(SettingsScreen(app.form))


def _is_free(app: LocalspecApp) -> bool:
    """Whether the chat is what is shown, and no answer is being written."""
    if app.screen is not app.chat:
        return False
    if app.desk.answering is not None:
        app.notify("an answer is being written; Esc stops it", markup=False)
        return False
    return True
