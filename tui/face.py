"""What the screens may ask of the app, so that they need not know it."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable

from textual.app import App

from localspec.tui.chat_state import ChatState
from localspec.tui.conversation_writer import ConversationWriter


class Face(App[int]):
    """The app as its screens see it: the desk, what keeps the conversation, the clock."""

    def __init__(
        self, chat_state: ChatState, writer: ConversationWriter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self.chat_state = chat_state
        self.writer = writer
        self.clock = clock  # monotonic seconds
        self.first_theme = ""  # the one that the app began with

    @abstractmethod
    def export(self, conversation: str) -> None:
        """Ask where, and write a conversation there."""

    def stop_job(self) -> None:
        """Stop what the engine does; that the engine had to be ended for it is said."""
        if self.chat_state.worker_thread.stop():
            self.say("the engine did not stop and was ended; it loads again when it is wanted", is_wrong=True)

    def say(self, text: str, *, is_wrong: bool = False) -> None:
        """Show a short notice; the text is never markup."""
        self.notify(text, markup=False, severity="warning" if is_wrong else "information")
