"""The end of the engine's log."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from localspec.sanitize import sanitize

LINES = 500


class LogScreen(Screen[None]):
    """What llama.cpp and the worker have said lately."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f12", "dismiss", "back", show=True)]

    def __init__(self, log: str) -> None:
        super().__init__()
        self._log = log

    def compose(self) -> ComposeResult:
        """A title and the lines."""
        yield Static(Content.styled(" The engine's log", "bold"), classes="title", markup=False)
        with VerticalScroll():
            yield Static(Content(sanitize(self._log) or "the log is empty"), markup=False, classes="help")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin at the end, which is what one looks for."""
        scroll = self.query_one(VerticalScroll)
        scroll.focus()
        scroll.scroll_end(animate=False)
