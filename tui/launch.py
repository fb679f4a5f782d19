"""Opening the chat: what the command line calls once everything it was told has been found right."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.config import LoadSettings, Request
from localspec.setting import Setting
from localspec.tui.app import LocalspecApp
from localspec.tui.bridge import Bridge, Engine
from localspec.tui.desk import Desk
from localspec.tui.dialogue import Dialogue
from localspec.tui.signals import leaving


def open_chat(
    worker: Engine,
    settings: LoadSettings,
    request: Request,
    *,
    system: str | None = None,
    form: Sequence[Setting] = (),
    is_dark: bool = True,
) -> int:
    """Run the chat until it is left; return the exit code. Raises what the app failed of.

    `form` are the settings that the request was made from, each with where its value came from.
    """
    bridge = Bridge(worker)
    app = LocalspecApp(Desk(bridge, settings, request, Dialogue(system)), is_dark=is_dark, settings=form)
    try:
        with leaving(app.leave):
            code = app.run()
    finally:
        bridge.close()
    if app.bug is not None:
        raise app.bug
    return code or 0
