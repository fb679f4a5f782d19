"""The conversations that were kept: search, look, open, fork, export, rename, delete.

What is typed is searched for. Every command has a key that writes nothing, and what was deleted comes back with a key
of the app, which works from everywhere.
"""

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
from textual.timer import Timer
from textual.widgets import Input, Static

from localspec.chat.command import Chat
from localspec.chat.conversation_commands import delete_conversation, fork_conversation, rename_conversation
from localspec.chat.listing import named, renamed
from localspec.conversations.records import ASSISTANT, Conversation, StoredMessage, model_names, spoken
from localspec.conversations.search import excerpt, pattern, place
from localspec.conversations.store import Store
from localspec.errors import LocalspecError
from localspec.sanitize import one_line, sanitize
from localspec.tui.host import Host
from localspec.tui.keys_in_turn import in_turn
from localspec.tui.screens.dialog import OverChat
from localspec.tui.widgets.composer import LineInput
from localspec.tui.widgets.folded import Folded, folded
from localspec.tui.widgets.keys import Keys
from localspec.tui.widgets.listing import Listing
from localspec.tui.widgets.notices import NoticeBar

Result = TypeVar("Result")
MAX_LISTED = 500  # conversations that are listed
MAX_FOUND = 100  # titles and messages of a search
REST = 0.12  # seconds without a key after which the preview follows
PREVIEWED = 8  # messages of a preview
FRAME = 6  # cells of a row beside its texts: one at each end, and two between columns
LONG = 600  # characters of each
BEFORE = 200  # of them before what was found
LEAST = 24  # cells of what was found, beside a title
ABOVE = 3  # lines of the preview above that
MARKED = "reverse bold"  # the words that were searched for


@dataclass(frozen=True, slots=True)
class Row:
    """A conversation, and the message in which a search found the words; None where it found the title."""

    conversation: Conversation
    message: StoredMessage | None = None


class SearchInput(LineInput):
    """The words to search for. Enter opens what the cursor is on; Ctrl+X and Ctrl+E are the screen's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "open", show=True),
        Binding("ctrl+x", "screen.delete", "delete", show=True),
        Binding("ctrl+e", "screen.rename", "rename", show=True),
    ]


class Conversations(OverChat, Screen[str | None]):
    """Gives the id of the conversation to go on with, None to stay."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back", show=True),
        Binding("ctrl+e", "rename", "rename", show=True),
        Binding("f6", "fork", "fork", show=True, tooltip="go on in a copy"),
        Binding("f7", "export", "export", show=True),
        Binding("ctrl+x", "delete", "delete", show=True, tooltip="delete; Ctrl+Y restores it"),
        Binding("up", "move(-1)", "up", show=False),
        Binding("down", "move(1)", "down", show=False),
        Binding("pageup", "move(-10)", "page up", show=False),
        Binding("pagedown", "move(10)", "page down", show=False),
    ]

    def __init__(self, host: Host, chat: Chat) -> None:
        super().__init__()
        self._host = host
        self._chat = chat
        self._rows: list[Row] = []
        self._widths = 0, 0  # of when it was used, and of the number of messages
        self._query = ""  # what they were searched for
        self._rest: Timer | None = None  # for the preview

    def compose(self) -> ComposeResult:
        yield Static(Content.styled(" Conversations", "bold"), classes="title", markup=False)
        yield SearchInput(placeholder="type to search titles and messages", compact=True, id="search")
        with Horizontal(id="both"):
            yield Listing(self._line)
            with VerticalScroll(id="preview", can_focus=False):
                yield Folded()
        yield NoticeBar()
        yield Keys()

    async def on_mount(self) -> None:
        await self.renew()
        await self.renew(self._chat.state.messages.key)  # known by now: what was said is written
        self.query_one("#search", Input).focus()

    async def _ask(self, question: Callable[[Store], Result]) -> Result | None:
        try:
            return await self._chat.wait(self._chat.state.writer.ask(question))
        except LocalspecError as error:
            self._host.say(f"{error.message}{error.advice}", is_wrong=True)
            return None

    async def _do(self, change: Awaitable[object]) -> bool:
        try:
            await change
        except LocalspecError as error:
            self._host.say(f"{error.message}{error.advice}", is_wrong=True)
            return False
        return True

    async def renew(self, chosen: str | None = None) -> None:
        query, listing = self._written, self.query_one(Listing)
        was, at = self._current, listing.cursor_row
        is_new = query != self._query
        self._query = query
        if query.strip():
            hits = await self._ask(lambda store: store.search(query, MAX_FOUND)) or []
            by_id = {hit.conversation.id: Row(hit.conversation, hit.message) for hit in reversed(hits)}
            self._rows = list(reversed(by_id.values()))
        else:
            stored = await self._ask(lambda store: store.conversations(MAX_LISTED)) or []
            self._rows = [Row(each) for each in stored]
        ids = [row.conversation.id for row in self._rows]
        if chosen in ids:
            at = ids.index(chosen)
        elif is_new and query.strip():  # what fits best is on top
            at = 0
        elif was is not None and was.id in ids:  # one key acts on what the last one left
            at = ids.index(was.id)
        shown = [row.conversation for row in self._rows]
        self._widths = (
            max((len(_when(each.updated)) for each in shown), default=0),
            max((len(self._count(each)) for each in shown), default=0),
        )
        listing.fill(len(self._rows), at)
        if is_new:
            self._preview_soon()
        else:
            await self._preview()

    def _count(self, conversation: Conversation) -> str:
        answered = self._chat.state.answered
        is_here = answered is not None and answered.key == conversation.id
        return f"{conversation.n_messages}{' …' * is_here}"

    def _line(self, n: int, width: int) -> Text:
        row, (whens, counts) = self._rows[n], self._widths
        room = max(8, width - whens - counts - FRAME)
        title = _title(row, self._query, room)
        title.pad_right(room - title.cell_len)
        count = f"  {self._count(row.conversation):<{counts}} "
        return Text.assemble((f" {_when(row.conversation.updated):<{whens}}  ", "dim"), title, count)

    @property
    def _written(self) -> str:
        return self.query_one("#search", Input).value

    async def _chosen(self) -> Conversation | None:
        if self._written != self._query:
            await self.renew()
        return self._current

    @property
    def _current(self) -> Conversation | None:
        row = self.query_one(Listing).cursor_row
        return self._rows[row].conversation if 0 <= row < len(self._rows) else None

    @on(Listing.Moved)
    def _preview_soon(self) -> None:
        """Show it when the keys rest: it costs several times what the list costs."""
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(REST, lambda: self.call_later(self._preview))

    async def _preview(self) -> None:
        preview, current, at = self.query_one("#preview Folded", Folded), self._current, 0
        if current is None:
            nothing = "No title or message has these words" if self._query.strip() else "No conversations yet"
            preview.update(Content.styled(nothing, "$muted"))
            return
        matching, query = self._rows[self.query_one(Listing).cursor_row].message, self._query
        path = await self._ask(lambda store: _path(store, current, matching)) or []
        ids = [message.id for message in path]
        if matching is not None and matching.id in ids:
            path = path[max(0, ids.index(matching.id) - 1) :][:PREVIEWED]
        shown = Content.assemble(
            (f"{sanitize(current.title)}\n", "bold"),
            (f"{one_line(model_names(current.pair))} · {current.id}\n", "$muted"),
        )
        for message in path[-PREVIEWED:]:
            who = ("Assistant", "bold $origin-draft") if message.role == ASSISTANT else ("You", "bold $primary")
            text, start = sanitize(spoken(message.role, message.text)), 0
            if matching is not None and message.id == matching.id:
                hit = place(text, query) or 0
                start = 0 if hit < BEFORE else hit - BEFORE
                at = len(shown.plain) + hit - start + len(who[0])
            end = start + LONG
            text = f"{'…' * (start > 0)}{text[start:end]}{'…' * (len(text) > end)}"
            shown += Content.assemble(("\n", ""), who, f"\n{text}\n")
        if query.strip():
            shown = shown.highlight_regex(pattern(query), style=MARKED)
        preview.update(shown)
        width = max(1, preview.content_size.width)
        row = folded(shown[:at], width).get_height({}, width) - ABOVE if at else 0
        self.call_after_refresh(self.query_one("#preview").scroll_to, y=row, animate=False)

    @on(Input.Submitted)
    @on(Listing.Chosen)
    async def open(self) -> None:
        current = await self._chosen()
        if current is not None:
            self.dismiss(current.id)

    @on(Input.Changed, "#search")
    async def search(self) -> None:
        await self._chosen()

    @in_turn
    def action_move(self, rows: int) -> None:
        listing = self.query_one(Listing)
        listing.move_cursor(listing.cursor_row + rows)

    @in_turn
    async def action_fork(self) -> None:
        current = await self._chosen()
        if current is not None and await self._do(fork_conversation(self._chat, current)):
            self.dismiss(None)

    @in_turn
    async def action_delete(self) -> None:
        current = await self._chosen()
        if current is not None and await self._do(delete_conversation(self._chat, current)):
            await self.renew()
            self._host.say(f"Deleted {named(current)} · Ctrl+Y restores it")

    @in_turn
    async def action_rename(self) -> None:
        from localspec.tui.screens.dialog import Ask

        current = await self._chosen()
        if current is None:
            return

        async def take(title: str | None) -> None:
            if title and title.strip() and await self._do(rename_conversation(self._chat, current.id, title.strip())):
                await self.renew()
                after = await self._ask(lambda store: store.get(current.id))
                if after is not None:
                    self._host.say(renamed(after, current))

        self.app.push_screen(Ask(f"Another title for {named(current)}", current.title), take)

    @in_turn
    async def action_export(self) -> None:
        current = await self._chosen()
        if current is not None:
            self._host.export(current.id)


def _when(at: float) -> str:
    then, now = time.localtime(at), time.localtime()
    if then[:3] == now[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%d %b" if then.tm_year == now.tm_year else "%Y-%m-%d", then)


def _path(store: Store, conversation: Conversation, matching: StoredMessage | None) -> list[StoredMessage]:
    path = store.path(conversation.leaf)
    return path if matching is None or matching.id in {each.id for each in path} else store.path(matching.id)


def _title(row: Row, query: str, most: int) -> Text:
    line = Text(one_line(row.conversation.title) or "untitled")
    if row.message is not None and query.strip():
        line.truncate(max(most // 3, most - 2 * LEAST), overflow="ellipsis")
        room = most - line.cell_len - 3
        line.append(" · ", style="dim").append(one_line(excerpt(row.message.text, query, room // 4, room)))
    line.truncate(most, overflow="ellipsis")
    if query.strip():
        line.highlight_regex(pattern(query), MARKED)
    return line
