"""The command palette (Ctrl+P), which lists everything that has a key, and some that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.command import CommandPalette
from textual.screen import Screen

from localspec.tui.host import OF_THE_CHAT
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.dialog import OverChat
from localspec.tui.screens.help import key_names

KEYLESS = (
    ("theme", "Light or dark", "change the colours of the screen"),
    ("open('export')", "Export the conversation", "write it to a .md, .html or .json file"),
    ("restart", "Restart the engine", "end its process and load the pair again"),
)


class Palette(OverChat, CommandPalette):
    """Textual's palette, which goes as the other screens do."""


def open_palette(app: App[int]) -> None:
    if not isinstance(app.screen, CommandPalette):
        app.push_screen(Palette(id="--command-palette"))


def palette(app: App[int], screen: Screen[object]) -> Iterator[SystemCommand]:
    for source, prefix in ((type(app), "app"), (ChatScreen, "screen")):
        for declared in source.BINDINGS:
            is_of_the_chat = prefix == "screen" or (isinstance(declared, Binding) and declared.action in OF_THE_CHAT)
            if isinstance(declared, Binding) and (isinstance(screen, ChatScreen) or not is_of_the_chat):
                about = " · ".join(filter(None, (declared.tooltip, key_names(declared)[0])))
                title = declared.description[:1].upper() + declared.description[1:]
                yield SystemCommand(title, about, _runs(app, f"{prefix}.{declared.action}"))
    for action, title, about in KEYLESS:
        yield SystemCommand(title, about, _runs(app, f"app.{action}"))


def _runs(app: App[int], action: str) -> Callable[[], object]:
    async def run() -> None:
        await app.run_action(action)

    return run
