"""The app: themes, what is the same on every screen, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.events import Event, Key, Paste
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widgets import TextArea

from localspec.chat.conversation_files import write_export
from localspec.chat.listing import named
from localspec.chat.state import ChatState
from localspec.conversations.records import Conversation
from localspec.conversations.store import Store
from localspec.errors import LocalspecError
from localspec.sanitize import sanitize
from localspec.settings.folders import typed_path
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.host import OF_THE_CHAT
from localspec.tui.keyboard import Burst, Keyboard
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.dialog import Ask, AskText
from localspec.tui.settings_form import Form
from localspec.tui.themes import DARK, LIGHT, THEMES
from localspec.tui.trace import Trace
from localspec.tui.turns import recall
from localspec.tui.widgets.composer import Composer, taken
from localspec.tui.widgets.message import Spoken
from localspec.tui.widgets.notices import Notices
from localspec.ui.files import several_completions
from localspec.ui.programs import edited, left_to_it

if TYPE_CHECKING:
    from localspec.tui.downloads import Download

WIDTHS = ((0, "-mini"), (30, "-tiny"), (60, "-narrow"), (72, "-small"), (100, "-wide"))  # columns and CSS class
HEIGHTS = ((0, "-low"), (8, "-flat"), (16, "-tall"))
AGAIN = 2.0  # seconds in which a second Ctrl+C quits
WATCH = 0.25  # seconds between two looks at a download
LOG_LINES = 500
NAME = 40  # characters of the name of a file


class LocalspecApp(App[int]):
    """The full-screen chat. Its result is an exit code."""

    TITLE = "localspec"
    CSS_PATH = "tui.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+o", "open('pairs')", "pairs", show=True, priority=True, tooltip="choose or download another pair"
        ),
        Binding("f4", "open('race')", "race", show=True, tooltip="answer plainly and with drafts, and compare"),
        Binding("f9", "open('settings')", "settings", show=True, tooltip="change the settings of the next answers"),
        Binding("f1", "open('help')", "help", show=True, tooltip="what the cursor is on, keys and commands"),
        Binding("ctrl+n", "new", "new conversation", show=False),
        Binding(
            "f8,ctrl+r", "open('conversations')", "conversations", show=False, tooltip="search and open what was said"
        ),
        Binding("ctrl+y", "restore", "restore", show=True, priority=True, tooltip="restore what was deleted last"),
        Binding("ctrl+s", "open('system')", "system message", show=False),
        Binding("ctrl+f", "open('attach')", "attach a text file", show=False),
        Binding("ctrl+g", "editor", "write in $EDITOR", show=False),
        Binding("f12", "open('log')", "the engine's log", show=False),
        Binding("ctrl+l", "redraw", "redraw", show=False),
        Binding("ctrl+z", "suspend", "suspend; fg brings it back", show=False, priority=True),
        Binding("ctrl+c", "interrupt", "copy selection, stop, clear, quit", show=False, priority=True),
        Binding("ctrl+d", "quit_if_empty", "quit, if the composer is empty", show=False),
        Binding("ctrl+q", "quit", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        engine: ChatEngine,
        *,
        is_dark: bool = True,
        typed: str = "",
        has_tokens: bool = False,
        has_figures: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(driver_class=cast("type[Keyboard]", partial(Keyboard, typed=typed)))
        self.HORIZONTAL_BREAKPOINTS, self.VERTICAL_BREAKPOINTS = list(WIDTHS), list(HEIGHTS)
        self.engine, self.clock = engine, clock  # the latter in monotonic seconds
        self.download: Download | None = None
        self.bug: Exception | None = None
        self._request, self.notices = engine.state.request, Notices(self)
        for theme in THEMES:  # before the style sheet is read: it names their variables
            self.register_theme(theme)
        self.theme = self._first_theme = DARK if is_dark else LIGHT
        self.stylesheet.set_variables(self.get_css_variables())
        self._interrupted_at, self._has_begun = -AGAIN, False  # the latter: the first picture was drawn
        self._early: list[Event] = []  # what was typed before that, for the composer
        self.chat = ChatScreen(self, engine, has_tokens=has_tokens, has_figures=has_figures)

    async def on_mount(self) -> None:
        """Show the chat; then load the pair, for which every processor is wanted, while a message is being written."""
        for steps, size in ((WIDTHS, self.size.width), (HEIGHTS, self.size.height)):
            # Textual does so too, but after it has laid out the screen, which it then does again.
            self.chat.add_class(next(name for least, name in reversed(steps) if size >= least))
        await self.push_screen(self.chat)
        self.call_after_refresh(self._begin)
        self.run_worker(recall(self, self.chat_state, self.chat.composer), exit_on_error=False)

    async def _begin(self) -> None:
        self._has_begun = True
        for event in self._early:
            await self.on_event(event)
        gc.enable()
        self.engine.load()

    def refresh_css(self, animate: bool = True) -> None:
        """Read the style sheet anew for another theme; that the first one is set is no reason to read it twice."""
        if self._has_begun:
            super().refresh_css(animate)

    @property
    def chat_state(self) -> ChatState:
        return self.engine.state

    @cached_property
    def form(self) -> Form:
        """The settings as a form, made when it is wanted: to know every method, plug-ins are looked for on the disk."""
        return Form.of(self.chat_state, self.chat_state.settings_at_start(), self._request)

    @property
    def keys(self) -> list[tuple[str, list[BindingType]]]:
        from localspec.tui.screens.conversations import Conversations

        own = [each for each in self.BINDINGS if isinstance(each, Binding)]
        return [
            ("The chat", ChatScreen.BINDINGS),
            ("Writing", Composer.BINDINGS),
            ("On a message (Tab goes to the messages)", Spoken.BINDINGS),
            ("From the chat (Esc goes back to it)", [each for each in own if each.action in OF_THE_CHAT]),
            ("Everywhere", [each for each in own if each.action not in OF_THE_CHAT]),
            ("Conversations", Conversations.BINDINGS),
        ]

    def leave(self, code: int) -> None:
        if (loop := self._loop) is not None:
            loop.call_soon_threadsafe(self.exit, code, code)

    def say(self, text: str, *, is_wrong: bool = False) -> None:
        self.notices.say(text, is_wrong=is_wrong)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        self.say(message, is_wrong=severity != "information")

    def stop_job(self) -> None:
        if self.engine.worker_thread.stop():
            self.say("the engine did not stop and was ended; your next message starts it", is_wrong=True)

    def open(self, name: str) -> None:
        getattr(self, "race" if name == "race" else f"_open_{name}")()

    def export(self, conversation: str) -> None:
        self.chat.call_later(self._export, conversation)

    def watch_download(self) -> None:

        def look() -> None:
            download = self.download
            if download is None or download.is_over:
                timer.stop()
            if download is not None and download.phase == "done":
                self.say(sanitize(f"{download.ref} is downloaded; Ctrl+O opens it"))
            elif download is not None and download.error is not None:
                self.say(sanitize(f"{download.ref}: {download.error.message}"), is_wrong=True)

        timer = self.set_interval(WATCH, look)

    def inspect(self, trace: Trace) -> None:
        from localspec.tui.screens.inspector import Inspector

        self.push_screen(Inspector(trace))

    async def _export(self, key: str) -> None:
        conversation = await asyncio.wrap_future(self.chat_state.writer.ask(lambda store: store.get(key)))

        def write(name: str) -> Callable[[Store], None]:
            path = typed_path(name)
            return lambda store: write_export(store, key, store.get(key).leaf, path, None, hint="another name")

        async def take(name: str | None) -> None:
            if not name:
                return
            try:
                await asyncio.wrap_future(self.chat_state.writer.ask(write(name)))
            except LocalspecError as error:
                self.say(f"{error.message}{error.advice}", is_wrong=True)
                return
            self.say(f"saved to {typed_path(name)}")

        hint = "Enter saves · the ending .md, .html or .json sets the format"
        self.push_screen(Ask(f"Export {named(conversation)} to", f"{_file_name(conversation)}.md", hint=hint), take)

    def _open_pairs(self) -> None:
        from localspec.tui.screens.pairs import PairsScreen

        if self.chat.turns.is_answering():
            return
        try:
            folder = Path.cwd()
        except OSError:  # it was removed
            folder = None
        self.push_screen(PairsScreen(self, folder=folder))

    def race(self, rounds: int = 1) -> None:
        from localspec.tui.screens.race import RaceScreen

        if self.chat.turns.is_answering():
            return
        written = self.chat.composer.message.strip()
        asked = None if written else self.chat_state.messages.question()
        self.push_screen(RaceScreen(self, written if asked is None else asked.text, asked, rounds))

    def _open_settings(self) -> None:
        from localspec.tui.screens.settings import SettingsScreen

        if self.form.theme != "auto" or self.theme != self._first_theme:
            self.form.theme = "dark" if self.theme == DARK else "light"
        self.push_screen(SettingsScreen(self, self.form))

    def _open_conversations(self) -> None:
        from localspec.tui.screens.conversations import Conversations

        def take(conversation: str | None) -> None:
            if conversation is not None:
                self.chat.call_later(self.chat.turns.open, conversation)

        self.push_screen(Conversations(self, self.chat.turns), take)

    def _open_system(self) -> None:
        def take(text: str | None) -> None:
            if text is not None:
                self.chat_state.set_system(text.strip())
                self.chat.show_attached()

        system = self.chat_state.messages.system or ""
        self.push_screen(AskText("System message, from the next answer", system), take)

    def _open_attach(self) -> None:
        async def take(name: str | None) -> None:
            if name:
                await self.chat.turns.run(f"/read {name}")

        hint = "Tab completes · several names, folders and *.py too · Enter attaches"
        self.push_screen(Ask("Attach to your next message", hint=hint, completions=several_completions), take)

    def _open_export(self) -> None:
        key = self.chat_state.messages.key
        if key is None:
            self.say("no messages yet", is_wrong=True)
        else:
            self.export(key)

    def _open_help(self) -> None:
        from localspec.tui.screens.help import Help

        self.push_screen(Help(self.keys, getattr(self.screen, "about", [])))

    def _open_log(self) -> None:
        from localspec.tui.screens.help import LogScreen

        self.push_screen(LogScreen(self.engine.worker_thread.worker.log_tail(LOG_LINES)))

    def action_command_palette(self) -> None:
        from localspec.tui.palette import open_palette

        open_palette(self)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        from localspec.tui.palette import palette

        return palette(self, screen)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "restore":
            return bool(self.chat_state.deleted)
        written = f"{action}({', '.join(map(repr, parameters))})" if parameters else action
        return self.screen is self.chat if written in OF_THE_CHAT else True

    async def on_event(self, event: Event) -> None:
        """Make what is pasted safe; the composer does so itself. Text typed at a message goes to the composer."""
        if isinstance(event, (Burst, Key, Paste)) and not self._has_begun:
            self._early.append(event)
            return
        if isinstance(event, Burst) and not event.is_forwarded:
            await self._type(event)
            return
        if isinstance(event, Key) and isinstance(self.focused, Spoken) and self.focused.is_written(event):
            self.screen.set_focus(self.chat.composer)  # now: the next key may be one of the message's
        if isinstance(event, Paste) and not isinstance(self.focused, Composer):
            event.text = "\n".join(map(sanitize, event.text.splitlines()))
        await super().on_event(event)

    async def on_app_focus(self) -> None:
        """Look, when a person comes back to this terminal, at what was said in another."""
        if self.screen is self.chat:
            await self.chat.turns.look_again()

    async def _type(self, burst: Burst) -> None:
        first = next(burst.each_key())
        if isinstance(self.focused, Spoken) and self.focused.is_written(first):
            self.screen.set_focus(self.chat.composer)
        if isinstance(self.focused, Composer):
            self.focused._forward_event(burst)
        elif isinstance(self.focused, TextArea):
            await self.on_event(Paste(burst.text))
        else:
            for key in burst.each_key():
                await self.on_event(key)

    async def action_restore(self) -> None:
        from localspec.tui.screens.conversations import Conversations

        restored = await self.chat.turns.restore()
        self.screen.refresh_bindings()
        if isinstance(self.screen, Conversations):
            await self.screen.renew(restored)

    def action_open(self, name: str) -> None:
        self.open(name)

    def action_interrupt(self) -> None:
        """Copy what is selected, else go back to the chat, stop the answer, clear the input, quit the second time."""
        selected = taken(self.focused) or self.screen.get_selected_text()
        composer, turns = self.chat.composer, self.chat.turns
        if selected:
            turns.copy_text(selected, "the selection")
            self.screen.clear_selection()
        elif self.screen is not self.chat:
            getattr(self.screen, "action_back", self.screen.dismiss)()
        elif self.chat_state.answering_here is not None:
            self.chat.action_stop()
        elif composer.text:
            if not turns.stop_editing():
                composer.clear_sent()
                self.say("Cleared · Up restores it")
        elif self.chat_state.attached:
            self.say(self.chat_state.detach())
            self.chat.show_attached()
        elif self.clock() - self._interrupted_at < AGAIN:
            self.exit(0)
        else:
            self._interrupted_at = self.clock()
            self.say("Ctrl+C again to quit")

    def action_quit_if_empty(self) -> None:
        if not self.chat.composer.text:
            self.exit(0)

    async def action_quit(self) -> None:
        self.chat.composer.call_later(self.exit, 0)

    def action_new(self) -> None:
        self.chat.call_later(self.chat.turns.begin)

    async def action_editor(self) -> None:
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

    def action_suspend(self) -> None:
        if os.getsid(0) == os.getpgrp():  # the terminal has no other program: nothing could bring this one back
            self.say("There is no shell to go back to")
        elif self._driver is not None and self._driver.can_suspend:
            os.killpg(0, signal.SIGTSTP)  # the group: whatever has started this program waits as well

    def action_theme(self) -> None:
        self.theme = LIGHT if self.theme == DARK else DARK

    def action_redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    def action_restart(self) -> None:
        self.engine.restart()
        self.chat.composer.focus()

    def _handle_exception(self, error: Exception) -> None:
        """Keep the bug for the command line, which tells of it as of every other one."""
        self.bug = error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        """Print nothing: Textual's traceback would stand where one line should."""
        self._exit_renderables.clear()


def _file_name(conversation: Conversation) -> str:
    words = "-".join(re.findall(r"\w+", conversation.title.lower()))
    return words[:NAME].rstrip("-") or f"localspec-{conversation.id}"
