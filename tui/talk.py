"""What the commands of the chat may ask of its screen, so that they need not know it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property, wraps
from typing import TypeVar

from textual.screen import Screen

from localspec.errors import LocalspecError
from localspec.tui.chat_state import ChatState
from localspec.tui.face import Face
from localspec.tui.message_tree import Node
from localspec.tui.widgets.composer import Composer

Chat = TypeVar("Chat", bound="Talk")


def in_turn(action: Callable[[Chat], object]) -> Callable[[Chat], None]:
    """Let an action wait its turn among the screen's messages: a key's is run by the app, beside whatever they do."""

    @wraps(action)
    def hand_over(chat: Chat) -> None:
        chat.call_later(action, chat)

    return hand_over


class Talk(Screen[None]):
    """The chat's screen as its commands see it."""

    app: Face
    chat_state: ChatState

    @cached_property  # asked for twenty times a second
    def composer(self) -> Composer:
        """Where messages are written."""
        return self.query_one(Composer)

    @abstractmethod
    async def renew(self) -> None:
        """Show the whole path anew."""

    @abstractmethod
    async def show(self, *entries: Node) -> None:
        """Add messages at the end."""

    @abstractmethod
    def show_attached(self) -> None:
        """Tell what goes with the next message."""

    @abstractmethod
    async def tell(self, text: str) -> None:
        """Add a line of the chat's own."""

    @abstractmethod
    async def fail(self, error: LocalspecError) -> None:
        """Add a card that tells of an error."""

    @abstractmethod
    def is_answering(self) -> bool:
        """Whether an answer is being written, which is then said."""

    @abstractmethod
    def edit(self, entry: Node) -> None:
        """Let a message be written anew."""

    @abstractmethod
    async def fork(self, entry: Node) -> None:
        """Begin a conversation that has said what was said up to here."""

    @abstractmethod
    def copy_text(self, text: str, what: str) -> None:
        """Copy, and say how."""
