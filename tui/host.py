"""The app and the screen of the chat, as the objects that they hold see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from textual.binding import BindingType

from localspec.chat.message_tree import Node
from localspec.errors import LocalspecError
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.trace import Trace
from localspec.tui.widgets.composer import Composer
from localspec.tui.widgets.message import Answered

if TYPE_CHECKING:
    from localspec.tui.downloads import Download
    from localspec.tui.settings_form import Form


class Host(Protocol):
    """The app, as its screens see it."""

    engine: ChatEngine
    clock: Callable[[], float]  # monotonic seconds
    download: Download | None  # the one on its way, or the last

    @property
    def form(self) -> Form:
        """The settings as a form."""

    @property
    def keys(self) -> list[tuple[str, list[BindingType]]]:
        """The keys that the help lists, by where they work."""

    def say(self, text: str, *, is_wrong: bool = False) -> None:
        """Show a short notice; the text is never markup."""

    def stop_job(self) -> None:
        """Stop the engine's job, by force if it does not stop."""

    def open(self, name: str) -> None:
        """Open a screen beside the chat."""

    def race(self, rounds: int) -> None:
        """Race on the screen for it."""

    def inspect(self, trace: Trace) -> None:
        """Show the passes of an answer."""

    def copy_to_clipboard(self, text: str) -> None:
        """Ask the terminal to copy."""

    def export(self, conversation: str) -> None:
        """Ask for a file, and write a conversation there."""

    def watch_download(self) -> None:
        """Tell how the download ends, whatever is shown then."""


class ChatView(Protocol):
    """The screen of the chat, as the objects that it holds see it."""

    @property
    def composer(self) -> Composer:
        """Where messages are written."""

    async def renew(self, before: Node | None = None, asked: Node | None = None) -> None:
        """Draw the whole path anew, and go to its end; or to a message, where the one `before` it stood."""

    async def show(self, *entries: Node) -> None:
        """Add messages at the end."""

    def show_attached(self) -> None:
        """Show the attachments of the next message."""

    @property
    def away(self) -> str:
        """The first words of another conversation in which an answer is being written, "" if there is none."""

    async def go_on(self, finish: str | None) -> None:
        """Send what waited for the answer, which ended so."""

    def show_figures(self, *, is_due: bool = False) -> None:
        """Draw the figures; with `is_due` only if the last drawing is long enough ago."""

    async def tell(self, text: str) -> None:
        """Add a line of the chat's own."""

    async def fail(self, error: LocalspecError, *, is_load: bool = False) -> None:
        """Add a card that tells of an error, of a load until a pair is loaded."""

    async def drop_cards(self) -> None:
        """Take away the cards that tell why the engine ended or did not load."""

    def answer_of(self, entry: Node | None) -> Answered | None:
        """Return the widget of an answer."""

    async def run_action(self, action: str) -> None:
        """Do what a key does."""

    def call_after_refresh(self, callback: Callable[[], None]) -> bool:
        """Call something when the screen is drawn."""
