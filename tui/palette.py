"""The command palette (Ctrl+P): everything that has a key, and what has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.command import CommandPalette
from textual.screen import Screen

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
    """Show the palette, unless it is shown."""
    if not isinstance(app.screen, CommandPalette):
        app.push_screen(Palette(id="--command-palette"))


def palette(app: App[int], screen: Screen[object]) -> Iterator[SystemCommand]:
    """Yield the entries over `screen`: the keys of the app, those of the chat over the chat, and `KEYLESS`."""
    for source, prefix in ((type(app), "app"), (ChatScreen, "screen")):
        for declared in source.BINDINGS:
            if isinstance(declared, Binding) and (prefix == "app" or isinstance(screen, ChatScreen)):
                told = " · ".join(filter(None, (declared.tooltip, key_names(declared)[0])))
                yield SystemCommand(_title(declared), told, _runs(app, f"{prefix}.{declared.action}"))
    for action, title, told in KEYLESS:
        yield SystemCommand(title, told, _runs(app, f"app.{action}"))


def _runs(app: App[int], action: str) -> Callable[[], object]:
    async def run() -> None:
        await app.run_action(action)

    return run


def _title(binding: Binding) -> str:
    return binding.description[:1].upper() + binding.description[1:]
