"""What every screen over the chat has in common, and a question in a box: a line, or a text, and what it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from localspec.sanitize import one_line, sanitize
from localspec.tui.keys_in_turn import in_turn
from localspec.tui.widgets.composer import Area, LineInput, beginning, differing

if TYPE_CHECKING:
    from textual.screen import Screen

    _Screen = Screen[Any]
else:
    _Screen = object  # not a Screen: style sheets and bindings are inherited from the first base that is one


class OverChat(_Screen):
    """A screen that is dismissed only while it is the one shown. Textual gives the result of the screen that asks, and
    removes the one on top. Keys wait in a busy screen, so that a second Esc can come when that screen is gone, or has
    another one over it: then it does nothing."""

    def dismiss(self, result: object = None) -> AwaitComplete:
        is_shown = self.app.screen_stack[-1:] == [self]  # `is_current` is also true behind a dialog
        return super().dismiss(result) if is_shown else AwaitComplete()


class Ask(OverChat, ModalScreen[str | None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "never mind"),
        Binding("tab", "complete", priority=True, show=False),
    ]

    def __init__(
        self,
        title: str,
        text: str = "",
        *,
        hint: str = "",
        completions: Callable[[str], list[str]] = lambda _typed: [],
    ) -> None:
        super().__init__()
        self._title, self._text, self._completions = title, sanitize(text), completions
        self._hint = hint or "Enter accepts · Esc cancels"

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Content.styled(self._title, "bold $primary"), markup=False)
            yield LineInput(self._text, compact=True)
            yield Static(Content.styled(self._hint, "$muted"), id="hint", markup=False)

    @in_turn
    def action_complete(self) -> None:
        line = self.query_one(LineInput)
        choices = self._completions(line.value)
        if choices:
            line.value = beginning(choices)
            line.cursor_position = len(line.value)
        hint = "  ".join(map(one_line, differing(choices))) if len(choices) > 1 else self._hint
        self.query_one("#hint", Static).update(Content.styled(hint, "$muted"))

    @on(Input.Submitted)
    def take(self, submitted: Input.Submitted) -> None:
        self.dismiss(submitted.value)


class AskText(OverChat, ModalScreen[str | None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "never mind"),
        Binding("ctrl+s", "take", "take it"),
    ]

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self._title, self._text = title, sanitize(text)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box -text"):
            yield Static(Content.styled(self._title, "bold $primary"), markup=False)
            yield Area(self._text, compact=True, highlight_cursor_line=False)
            yield Static(Content.styled("Ctrl+S saves · Esc cancels · leave empty for none", "$muted"), markup=False)

    def action_take(self) -> None:
        self.dismiss(self.query_one(TextArea).text)
