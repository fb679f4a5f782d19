"""A card in the transcript: an error with what to do next, or a note on what was done."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Static

from localspec.errors import LocalspecError, WorkerDiedError
from localspec.sanitize import sanitize
from localspec.settings.sizes import counted
from localspec.tui.widgets.folded import Folded


class Note(Folded):
    is_table = True

    def __init__(self, text: str) -> None:
        super().__init__(Content(sanitize(text)), classes="note-card")


class WelcomeCard(Static):
    """The page before the first message: which keys there are, and what a bundled pair is."""

    def __init__(self) -> None:
        super().__init__(_HINTS, markup=False, classes="welcome")
        self._sentences: tuple[str, ...] = ()

    def show(self, sentences: tuple[str, ...]) -> None:
        if sentences != self._sentences:
            self._sentences = sentences
            self.update(Content.assemble(_HINTS, *((f"\n\n{sentence}", "$muted") for sentence in sentences)))


_HINTS = Content.from_markup(
    "[$muted]A new conversation.[/]\n\n[b]Enter[/][$muted] sends · [/][b]Esc[/][$muted] stops · [/]"
    "[b]F3[/][$muted] shows where each token comes from\n[/][b]F8[/][$muted] earlier conversations · [/]"
    "[b]Ctrl+P[/][$muted] everything · [/][b]F1[/][$muted] help: keys, and what the cursor is on[/]"
)


class ErrorCard(Vertical):
    """An error and what to do; for an engine that died also a button that starts it again, and its log, folded."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "app.restart", "restart the engine")]

    def __init__(self, error: LocalspecError, *, is_of_engine: bool = False) -> None:
        super().__init__(classes="error-card")
        self.error = error
        self.is_of_engine = is_of_engine  # it says why there is none

    def compose(self) -> ComposeResult:
        yield Folded(card(self.error))
        if isinstance(self.error, WorkerDiedError):
            log = sanitize(str(self.error.detail.get("log", "")).rstrip())
            with Horizontal():
                yield Button("Restart the engine (/restart)", action="app.restart", compact=True)
                if log:
                    n = log.count("\n") + 1
                    yield Button(f"Its log, {counted(n, 'line')}", id="unfold", compact=True)
            yield Static(Content.styled(log, "$muted"), id="log", markup=False)

    @on(Button.Pressed, "#unfold")
    def unfold(self) -> None:
        log = self.query_one("#log", Static)
        log.display = not log.display


def card(error: LocalspecError) -> Content:
    parts = [(sanitize(error.message), "bold $error")]
    if error.hint:
        start = "" if error.is_sentence else "Try: "
        parts.append((f"\n{start}{sanitize(error.hint)}", ""))
    if isinstance(error, WorkerDiedError):
        parts.append(("\nThe conversation is intact; your next message starts the engine as well.", ""))
    return Content.assemble(*parts)
