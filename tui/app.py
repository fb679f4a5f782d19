"""The app: themes, what is the same on every screen, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from localspec.tui.desk import Desk
from localspec.tui.face import Face
from localspec.tui.keeper import Keeper
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.themes import DARK, LIGHT, THEMES


class LocalspecApp(Face):
    """The full-screen chat. Its result is an exit code."""

    TITLE = "localspec"
    CSS_PATH = "tui.tcss"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-small"), (100, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", "copy, stop, clear, quit", show=False, priority=True),
        Binding("ctrl+d", "quit_if_empty", "quit", show=False),
        Binding("ctrl+q", "quit", "quit", show=False, priority=True),
        Binding("ctrl+n", "new", "new conversation", show=False),
        Binding("ctrl+l", "redraw", "draw the screen anew", show=False),
    ]

    def __init__(
        self,
        desk: Desk,
        keeper: Keeper,
        *,
        is_dark: bool = True,
        history: list[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(desk, keeper, clock)
        self.bug: Exception | None = None
        for theme in THEMES:  # before the style sheet is read: it names their variables
            self.register_theme(theme)
        self.theme = DARK if is_dark else LIGHT
        self._interrupted_at = -10.0
        self._chat = ChatScreen(desk, history or [])

    def on_mount(self) -> None:
        """Show the chat and load the pair while the first message is being written."""
        self.push_screen(self._chat)
        self.desk.bridge.load(self.desk.settings)

    @property
    def chat(self) -> ChatScreen:
        """The home screen."""
        return self._chat

    def leave(self, code: int) -> None:
        """End the app from a signal handler."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self.exit, code, code)

    def action_interrupt(self) -> None:
        """Copy what is selected, else stop the answer, else clear the input, else quit the second time."""
        selected = self.screen.get_selected_text()
        composer = self.chat.composer
        if selected:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
        elif self.desk.bridge.is_busy and self.desk.answering is not None:
            self.chat.action_stop()
        elif composer.text:
            composer.fill("")
        elif self.clock() - self._interrupted_at < 2.0:
            self.exit(130, 130)
        else:
            self._interrupted_at = self.clock()
            self.say("Ctrl+C again to quit")

    def action_quit_if_empty(self) -> None:
        """Quit, unless something is written."""
        if not self.chat.composer.text:
            self.exit(0)

    async def action_quit(self) -> None:
        """Quit."""
        self.exit(0)

    async def action_new(self) -> None:
        """Begin a new conversation."""
        if self.desk.answering is not None:
            self.say("an answer is being written; Esc stops it")
            return
        self.desk.renew()
        await self.chat.renew()

    def action_redraw(self) -> None:
        """Draw everything anew."""
        self.refresh(repaint=True, layout=True)

    def action_restart(self) -> None:
        """Start the engine again after it died."""
        if not self.desk.bridge.is_busy:
            self.desk.bridge.load(self.desk.settings)

    def _handle_exception(self, error: Exception) -> None:
        """Keep the bug for the command line, which tells of it as of every other one."""
        self.bug = error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        """Print nothing: Textual's traceback would stand where one line should."""
        self._exit_renderables.clear()
