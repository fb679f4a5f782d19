"""The app: themes, what is the same on every screen, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.events import Event, Paste
from textual.screen import Screen

from localspec.errors import LocalspecError
from localspec.sanitize import sanitize
from localspec.settings.request import typed_path
from localspec.settings.setting import Setting
from localspec.tui.chat_state import ChatState
from localspec.tui.clipboard import taken
from localspec.tui.commands import attach, detach
from localspec.tui.conversation_writer import ConversationWriter, sent_before
from localspec.tui.elsewhere import Elsewhere
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.dialog import Ask, AskText
from localspec.tui.themes import DARK, LIGHT, THEMES
from localspec.tui.widgets.composer import Composer
from localspec.tui.widgets.message import Spoken
from localspec.ui.editor import edited, left_to_it

WIDTHS = ((0, "-mini"), (30, "-tiny"), (60, "-narrow"), (72, "-small"), (100, "-wide"))  # columns and CSS class
HEIGHTS = ((0, "-low"), (8, "-flat"), (16, "-tall"))
AGAIN = 2.0  # seconds in which a second Ctrl+C quits

KEYLESS = (
    ("theme", "Light or dark"),
    ("export", "Export the conversation"),
    ("restart", "Restart the engine"),
)


class LocalspecApp(Elsewhere):
    """The full-screen chat. Its result is an exit code."""

    TITLE = "localspec"
    CSS_PATH = "tui.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "help", show=True),
        Binding("ctrl+n", "new", "new conversation", show=False),
        Binding("f8,ctrl+r", "conversations", "conversations", show=False),
        Binding("ctrl+s", "system", "system message", show=False),
        Binding("ctrl+f", "attach", "attach a text file", show=False),
        Binding("ctrl+g", "editor", "write in $EDITOR", show=False),
        Binding("f12", "log", "the engine's log", show=False),
        Binding("ctrl+l", "redraw", "draw the screen anew", show=False),
        Binding("ctrl+c", "interrupt", "copy selection, stop, clear, quit", show=False, priority=True),
        Binding("ctrl+d", "quit_if_empty", "quit, if nothing is written", show=False),
        Binding("ctrl+q", "quit", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        chat_state: ChatState,
        writer: ConversationWriter,
        *,
        is_dark: bool = True,
        has_tokens: bool = False,
        has_figures: bool = True,
        settings: Callable[[], Sequence[Setting]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(chat_state, writer, clock, settings)
        self.HORIZONTAL_BREAKPOINTS, self.VERTICAL_BREAKPOINTS = list(WIDTHS), list(HEIGHTS)
        self.bug: Exception | None = None
        for theme in THEMES:  # before the style sheet is read: it names their variables
            self.register_theme(theme)
        self.theme = self.first_theme = DARK if is_dark else LIGHT
        self.stylesheet.set_variables(self.get_css_variables())
        self._has_begun = False  # the first picture was drawn
        self._interrupted_at = -AGAIN
        self._chat = ChatScreen(chat_state, has_tokens=has_tokens, has_figures=has_figures)

    async def on_mount(self) -> None:
        """Show the chat; then load the pair, for which every processor is wanted, while a message is being written."""
        for steps, size in ((WIDTHS, self.size.width), (HEIGHTS, self.size.height)):
            # Textual does so too, but after it has laid out the screen, which it then does again.
            self._chat.add_class(next(name for least, name in reversed(steps) if size >= least))
        await self.push_screen(self._chat)
        self.call_after_refresh(self._begin)
        self.run_worker(self._recall_sent(), exit_on_error=False)

    def _begin(self) -> None:
        """Go on once there is a picture."""
        self._has_begun = True
        gc.enable()
        self._load()

    def refresh_css(self, animate: bool = True) -> None:
        """Read the style sheet anew for another theme; that the first one is set is no reason to read it twice."""
        if self._has_begun:
            super().refresh_css(animate)

    async def _recall_sent(self) -> None:
        """Let Up bring back what was sent in earlier conversations."""
        sent = await asyncio.wrap_future(self.writer.ask(sent_before))
        self.chat.composer.remember(sent)

    @property
    def chat(self) -> ChatScreen:
        """The home screen."""
        return self._chat

    def leave(self, code: int) -> None:
        """End the app from a signal handler."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self.exit, code, code)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield everything that has a key, and what has none, for the palette."""
        for source, prefix in ((LocalspecApp, "app"), (Elsewhere, "app"), (ChatScreen, "screen")):
            for declared in source.BINDINGS:
                if isinstance(declared, Binding) and (prefix == "app" or screen is self._chat):
                    key = self.get_key_display(declared)
                    yield SystemCommand(_title(declared), key, self._runs(f"{prefix}.{declared.action}"))
        for action, title in KEYLESS:
            yield SystemCommand(title, "", self._runs(f"app.{action}"))

    def _runs(self, action: str) -> Callable[[], object]:
        async def run() -> None:
            await self.run_action(action)

        return run

    async def on_event(self, event: Event) -> None:
        """Take out of what is pasted what would steer the terminal; the composer sees to that itself."""
        if isinstance(event, Paste) and not isinstance(self.focused, Composer):
            event.text = "\n".join(map(sanitize, event.text.splitlines()))
        await super().on_event(event)

    def action_interrupt(self) -> None:
        """Copy what is selected, else go back to the chat, stop the answer, clear the input, quit the second time."""
        selected = taken(self.focused) or self.screen.get_selected_text()
        composer = self.chat.composer
        if selected:
            self.chat.copy_text(selected, "the selection")
            self.screen.clear_selection()
        elif self.screen is not self.chat:
            getattr(self.screen, "action_back", self.screen.dismiss)()
        elif self.chat_state.answering is not None:
            self.chat.action_stop()
        elif composer.text:
            if not self.chat.stop_editing():
                composer.clear_sent()
                self.say("cleared; Up brings it back")
        elif self.chat_state.attached:
            self.say("\n".join(detach(self.chat_state.attached)))
            self.chat.show_attached()
        elif self.clock() - self._interrupted_at < AGAIN:
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

    def action_new(self) -> None:
        """Begin a new conversation."""
        self.chat.call_later(self.chat.begin)

    def action_conversations(self) -> None:
        """Choose a conversation to go on with."""
        # Late, as other screens: the first picture is waited for.
        from localspec.tui.screens.conversations import Conversations

        if self.chat.is_answering():
            return

        def take(conversation: str | None) -> None:
            if conversation is not None:
                self.chat.call_later(self.chat.open, conversation)

        self.push_screen(Conversations(), take)

    def action_system(self) -> None:
        """Change the system message."""

        def take(text: str | None) -> None:
            if text is not None:
                self.chat_state.set_system(text.strip())

        self.push_screen(
            AskText("System message, from the next answer on", self.chat_state.messages.system or ""), take
        )

    def action_attach(self) -> None:
        """Attach a text file to the next message."""

        async def take(name: str | None) -> None:
            if name:
                try:
                    told, *wrong = attach(self.chat_state.attached, name)
                except LocalspecError as error:
                    await self.chat.fail(error)
                    return
                self.chat.show_attached()
                self.say(told)
                for line in wrong:
                    self.say(line, is_wrong=True)

        self.push_screen(Ask("Attach a text file", hint="Enter attaches it to your next message"), take)

    def action_export(self) -> None:
        """Write the conversation to a file."""
        if self.chat_state.messages.key is None:
            self.say("nothing was said yet", is_wrong=True)
        else:
            self.export(self.chat_state.messages.key)

    def export(self, conversation: str) -> None:
        """Ask where, and write a conversation there: Markdown, HTML or JSON by the name's ending."""
        from localspec.tui.export import exported, suggested

        async def take(name: str | None) -> None:
            if not name:
                return
            path = typed_path(name)
            try:
                await asyncio.wrap_future(self.writer.ask(lambda store: exported(store, conversation, path)))
            except LocalspecError as error:
                self.say(f"{error.message}; try: {error.hint}", is_wrong=True)
                return
            self.say(f"written to {path}")

        hint = "Enter writes it; .md, .html or .json says how"
        self.push_screen(Ask("Export to", str(suggested(conversation)), hint=hint), take)

    async def action_editor(self) -> None:
        """Write the message in $EDITOR; what comes of an answer meanwhile is kept, and drawn afterwards."""
        text, wrong = "", None
        with self.batch_update(), self.suspend(), left_to_it():
            try:  # in here: an error that leaves `suspend` leaves the terminal suspended
                text = await asyncio.to_thread(edited, self.chat.composer.message)
            except LocalspecError as error:
                wrong = error
        if wrong is None:
            self.chat.composer.fill(text)
        else:
            self.say(f"{wrong.message}; try: {wrong.hint}", is_wrong=True)

    def action_theme(self) -> None:
        """Change between light and dark."""
        self.theme = LIGHT if self.theme == DARK else DARK

    def action_help(self) -> None:
        """Show keys and commands."""
        from localspec.tui.screens.conversations import Conversations
        from localspec.tui.screens.help import Help

        self.push_screen(
            Help(
                [
                    ("Everywhere", [LocalspecApp, Elsewhere]),
                    ("Writing", [Composer]),
                    ("The chat", [ChatScreen]),
                    ("On a message (Tab goes to the messages)", [Spoken]),
                    ("Conversations", [Conversations]),
                ]
            )
        )

    def action_log(self) -> None:
        """Show the engine's log."""
        from localspec.tui.screens.log import LogScreen

        self.push_screen(LogScreen(self.chat_state.worker_thread.worker.log_tail(500)))

    def action_redraw(self) -> None:
        """Draw everything anew."""
        self.refresh(repaint=True, layout=True)

    def action_restart(self) -> None:
        """Start the engine again after it died."""
        self._load()
        self.chat.composer.focus()

    def _load(self) -> None:
        """Load the pair, unless a message that came first does."""
        if not self.chat_state.worker_thread.is_busy:
            self.chat_state.worker_thread.load(self.chat_state.settings)

    def _handle_exception(self, error: Exception) -> None:
        """Keep the bug for the command line, which tells of it as of every other one."""
        self.bug = error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        """Print nothing: Textual's traceback would stand where one line should."""
        self._exit_renderables.clear()


def _title(binding: Binding) -> str:
    return binding.description[:1].upper() + binding.description[1:]
