"""The conversations that were kept: search, look, open, fork, export, delete, and undo that."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import DataTable, Input, Static

from localspec.chat.command import Chat
from localspec.chat.conversation_commands import (
    delete_conversation,
    fork_conversation,
    rename_conversation,
    undelete_conversation,
)
from localspec.conversations.records import ASSISTANT, Conversation, spoken
from localspec.conversations.store import Store
from localspec.errors import LocalspecError
from localspec.sanitize import sanitize
from localspec.tui.host import Host
from localspec.tui.widgets.composer import Line
from localspec.tui.widgets.keys import Keys
from localspec.tui.widgets.notice import Notice

Result = TypeVar("Result")
MOST = 500  # conversations that are listed
PREVIEWED = 8  # messages of a preview
LONG = 600  # characters of each
ALONE = 72  # columns of the screen below which the list has no preview beside it, as in tui.tcss


@dataclass(frozen=True, slots=True)
class Row:
    """A conversation, and what of it a search found."""

    conversation: Conversation
    excerpt: str = ""


class Conversations(Screen[str | None]):
    """Gives the id of the conversation to go on with, None to stay."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back", show=True),
        Binding("slash", "search", "search", show=True),
        Binding("f", "fork", "fork", show=True),
        Binding("n", "rename", "rename", show=True),
        Binding("x", "export", "export", show=True),
        Binding("d,delete", "delete", "delete", show=True),
        Binding("u", "undo", "undo", show=True),
    ]

    def __init__(self, host: Host, chat: Chat) -> None:
        super().__init__()
        self._host = host
        self._chat = chat
        self._rows: list[Row] = []

    def compose(self) -> ComposeResult:
        """A line to search in, the list, and beside it the one under the cursor."""
        yield Static(Content.styled(" Conversations", "bold"), classes="title", markup=False)
        yield Line(placeholder="search messages", compact=True, id="search")
        with Horizontal():
            yield DataTable(cursor_type="row", show_header=False)
            with VerticalScroll(id="preview", can_focus=False):
                yield Static(markup=False)
        yield Notice()
        yield Keys()

    async def on_mount(self) -> None:
        """List them, the last used first."""
        self.query_one(DataTable).add_columns("when", "title", "messages")
        await self._list()
        self.query_one(DataTable).focus()

    async def _ask(self, question: Callable[[Store], Result]) -> Result | None:
        """Ask the store; None where that goes wrong, which is said."""
        found: list[Result] = []

        async def ask() -> None:
            found.append(await self._chat.wait(self._chat.state.writer.ask(question)))

        await self._do(ask())
        return found[0] if found else None

    async def _do(self, change: Awaitable[object]) -> bool:
        """Change something as the commands do; return whether it went well, and say if not."""
        try:
            await change
        except LocalspecError as error:
            self._host.say(f"{error.message}{error.advice}", is_wrong=True)
            return False
        return True

    async def _list(self, query: str = "") -> None:
        if query.strip():
            hits = await self._ask(lambda store: store.search(query, limit=200)) or []
            best = {hit.conversation.id: Row(hit.conversation, hit.excerpt) for hit in reversed(hits)}
            self._rows = list(reversed(best.values()))
        else:
            kept = await self._ask(lambda store: store.conversations(MOST)) or []
            self._rows = [Row(each) for each in kept]
        table = self.query_one(DataTable)
        table.clear()
        for row in self._rows:
            kept_one = row.conversation
            title = sanitize(row.excerpt or kept_one.title or "untitled")
            table.add_row(
                Text(_when(kept_one.updated), style="dim"),
                Text(_line(title, self._title_width)),
                Text(f"{kept_one.n_messages}"),
            )
        await self._preview()

    @property
    def _title_width(self) -> int:
        """Cells of a title: beside the preview, where that has room, with the date and the number of messages."""
        return max(8, self.size.width // (1 if self.size.width < ALONE else 2) - 24)

    async def on_resize(self) -> None:
        """Cut the titles to the new width."""
        if self.query_one(DataTable).columns:  # else it was not filled yet
            await self._list(self.query_one("#search", Input).value)

    @property
    def _current(self) -> Conversation | None:
        row = self.query_one(DataTable).cursor_row
        return self._rows[row].conversation if 0 <= row < len(self._rows) else None

    @on(DataTable.RowHighlighted)
    async def _preview(self) -> None:
        preview, current = self.query_one("#preview Static", Static), self._current
        if current is None:
            preview.update(Content.styled("No conversations yet, or none contains these words", "$muted"))
            return
        path = await self._ask(lambda store: store.path(current.leaf)) or []
        parts = [(f"{sanitize(current.title)}\n", "bold"), (f"{sanitize(current.pair)} · {current.id}\n", "$muted")]
        for message in path[-PREVIEWED:]:
            who = ("Assistant", "bold $origin-draft") if message.role == ASSISTANT else ("You", "bold $primary")
            text = sanitize(spoken(message.role, message.text))
            parts += [("\n", ""), who, (f"\n{text[:LONG]}{'…' if len(text) > LONG else ''}\n", "")]
        preview.update(Content.assemble(*parts))

    @on(DataTable.RowSelected)
    def open(self) -> None:
        """Go on with the one under the cursor."""
        if self._current is not None:
            self.dismiss(self._current.id)

    @on(Input.Changed, "#search")
    async def search(self, changed: Input.Changed) -> None:
        """Narrow the list as it is typed."""
        await self._list(changed.value)

    @on(Input.Submitted, "#search")
    def to_list(self) -> None:
        """Go to what was found."""
        self.query_one(DataTable).focus()

    def action_search(self) -> None:
        """Go to the search line."""
        self.query_one("#search", Input).focus()

    async def action_fork(self) -> None:
        """Go on with a copy."""
        current = self._current
        if current is not None and await self._do(fork_conversation(self._chat, current)):
            self.dismiss(None)

    async def action_delete(self) -> None:
        """Delete the one under the cursor; u brings it back."""
        current = self._current
        if current is not None and await self._do(delete_conversation(self._chat, current)):
            await self._list(self.query_one("#search", Input).value)
            self._host.say("Deleted · u restores it")

    async def action_undo(self) -> None:
        """Bring the one that was deleted last back."""
        if await self._do(undelete_conversation(self._chat)):
            await self._list(self.query_one("#search", Input).value)

    async def action_rename(self) -> None:
        """Give the one under the cursor another title."""
        from localspec.tui.screens.dialog import Ask

        current = self._current
        if current is None:
            return

        async def take(title: str | None) -> None:
            if title and title.strip():
                await self._do(rename_conversation(self._chat, current.id, title.strip()))
                await self._list(self.query_one("#search", Input).value)

        self.app.push_screen(Ask("Title", current.title), take)

    def action_export(self) -> None:
        """Write the one under the cursor to a file."""
        if self._current is not None:
            self._host.export(self._current.id)


def _when(at: float) -> str:
    then, now = time.localtime(at), time.localtime()
    if then[:3] == now[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%d %b" if then.tm_year == now.tm_year else "%Y-%m-%d", then)


def _line(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
