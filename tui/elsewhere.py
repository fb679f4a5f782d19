"""The way from the chat to the screens beside it, which are imported when they are first wanted."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from localspec.conversations.records import USER
from localspec.tui.shared import Shared
from localspec.tui.themes import DARK

OF_THE_CHAT = frozenset(("pairs", "race", "settings", "new", "conversations", "system", "attach", "editor"))


class Elsewhere(Shared):
    """The app as one goes to them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+o", "pairs", "pairs", show=True, priority=True),
        Binding("f4", "race", "race", show=True),
        Binding("f9", "settings", "settings", show=True),
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keep what is about the chat to the chat."""
        return self.screen is self.chat if action in OF_THE_CHAT else True

    def action_race(self) -> None:
        """Race plain decoding against speculation, on what is being written or else on the last question."""
        from localspec.tui.screens.race import RaceScreen

        if self.chat.is_answering():
            return
        asked = next((entry for entry in reversed(self.chat_state.messages.path()) if entry.role == USER), None)
        written = self.chat.composer.message.strip()
        if written or asked is None:
            self.push_screen(RaceScreen(self.chat_state, written, ()))
        else:
            self.push_screen(RaceScreen(self.chat_state, asked.text, self.chat_state.messages.messages(asked)))

    def action_pairs(self) -> None:
        """Choose another pair, or download one."""
        from localspec.tui.screens.pairs import PairsScreen

        if self.chat.is_answering():
            return
        try:
            folder = Path.cwd()
        except OSError:  # it was removed
            folder = None
        self.push_screen(PairsScreen(self.chat_state, folder=folder))

    def action_settings(self) -> None:
        """Show the settings of the next answers."""
        from localspec.tui.screens.settings import SettingsScreen

        if self.form.theme != "auto" or self.theme != self.first_theme:
            self.form.theme = "dark" if self.theme == DARK else "light"
        self.push_screen(SettingsScreen(self.form))
