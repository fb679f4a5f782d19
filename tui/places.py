"""The screens beside the chat, by the names that keys and commands have for them; each is imported when it opens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

from localspec.chat.conversation_files import write_export
from localspec.chat.listing import named
from localspec.conversations.records import Conversation
from localspec.conversations.store import Store
from localspec.errors import LocalspecError
from localspec.settings.folders import typed_path
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.host import Host
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.dialog import Ask, AskText
from localspec.tui.trace import Trace
from localspec.ui.files import several_completions

_OPENED = ("pairs", "race", "settings", "conversations", "system", "attach")  # over the chat alone
OF_THE_CHAT = frozenset(("new", "editor", *(f"open({name!r})" for name in _OPENED)))
LOG_LINES = 500
NAME = 40  # characters of the name of a file


class Places:
    """Opens screens over the chat. `push` shows a screen, and calls back with what it gives."""

    def __init__(self, host: Host, engine: ChatEngine, chat: ChatScreen, push: Callable[..., object]) -> None:
        self._host = host
        self._engine = engine
        self._chat = chat
        self._push = push
        self._places: dict[str, Callable[[], None]] = {
            "pairs": self._pairs,
            "race": self.race,
            "settings": self._settings,
            "conversations": self._conversations,
            "system": self._system,
            "attach": self._attach,
            "export": self._export,
            "help": self._help,
            "log": self._log,
        }

    def open(self, name: str) -> None:
        self._places[name]()

    def inspect(self, trace: Trace) -> None:
        from localspec.tui.screens.inspector import Inspector

        self._push(Inspector(trace))

    async def export(self, key: str) -> None:
        """Ask for a file, and write a conversation there, of the kind that its name says."""
        conversation = await asyncio.wrap_future(self._engine.state.writer.ask(lambda store: store.get(key)))

        def write(name: str) -> Callable[[Store], None]:
            path = typed_path(name)
            return lambda store: write_export(store, key, store.get(key).leaf, path, None, hint="another name")

        async def take(name: str | None) -> None:
            if not name:
                return
            try:
                await asyncio.wrap_future(self._engine.state.writer.ask(write(name)))
            except LocalspecError as error:
                self._host.say(f"{error.message}{error.advice}", is_wrong=True)
                return
            self._host.say(f"saved to {typed_path(name)}")

        hint = "Enter saves · the ending .md, .html or .json sets the format"
        self._push(Ask(f"Export {named(conversation)} to", f"{_file_name(conversation)}.md", hint=hint), take)

    def _pairs(self) -> None:
        """Choose another pair, or download one."""
        from localspec.tui.screens.pairs import PairsScreen

        if self._chat.turns.is_answering():
            return
        try:
            folder = Path.cwd()
        except OSError:  # it was removed
            folder = None
        self._push(PairsScreen(self._host, folder=folder))

    def race(self, rounds: int = 1) -> None:
        """Race plain decoding against speculation, on the text in the composer or else on the last question."""
        from localspec.tui.screens.race import RaceScreen

        if self._chat.turns.is_answering():
            return
        written = self._chat.composer.message.strip()
        asked = self._engine.state.messages.question()
        if written or asked is None:
            self._push(RaceScreen(self._host, written, None, rounds))
        else:
            self._push(RaceScreen(self._host, asked.text, asked, rounds))

    def _settings(self) -> None:
        """Show the settings of the next answers."""
        from localspec.tui.screens.settings import SettingsScreen

        self._push(SettingsScreen(self._host, self._host.form))

    def _conversations(self) -> None:
        """Choose a conversation to go on with."""
        from localspec.tui.screens.conversations import Conversations

        def take(conversation: str | None) -> None:
            if conversation is not None:
                self._chat.call_later(self._chat.turns.open, conversation)

        self._push(Conversations(self._host, self._chat.turns), take)

    def _system(self) -> None:
        """Change the system message."""

        def take(text: str | None) -> None:
            if text is not None:
                self._engine.state.set_system(text.strip())
                self._chat.show_attached()

        system = self._engine.state.messages.system or ""
        self._push(AskText("System message, from the next answer", system), take)

    def _attach(self) -> None:
        """Attach files to the next message."""

        async def take(name: str | None) -> None:
            if name:
                await self._chat.turns.run(f"/read {name}")

        hint = "Tab completes · several names, folders and *.py too · Enter attaches"
        self._push(Ask("Attach to your next message", hint=hint, completions=several_completions), take)

    def _export(self) -> None:
        """Write the conversation to a file."""
        key = self._engine.state.messages.key
        if key is None:
            self._host.say("no messages yet", is_wrong=True)
        else:
            self._chat.call_later(self.export, key)

    def _help(self) -> None:
        """Explain what the cursor is on, and show keys and commands."""
        from localspec.tui.screens.help import Help

        about = getattr(self._chat.app.screen, "about", [])
        self._push(Help(self._host.keys, about))

    def _log(self) -> None:
        """Show the end of the engine's log."""
        from localspec.tui.screens.help import LogScreen

        self._push(LogScreen(self._engine.worker_thread.worker.log_tail(LOG_LINES)))


def _file_name(conversation: Conversation) -> str:
    """Return a name for the file of a conversation: the words of its title."""
    words = "-".join(re.findall(r"\w+", conversation.title.lower()))
    return words[:NAME].rstrip("-") or f"localspec-{conversation.id}"
