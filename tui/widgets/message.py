"""One message of the transcript: who said it and when, the text, and below an answer its numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.message import Message
from textual.widgets import Static

from localspec.chat.listing import attached
from localspec.chat.message_commands import code_blocks
from localspec.chat.message_tree import Node
from localspec.conversations.records import USER, ending
from localspec.sanitize import sanitize
from localspec.settings.sizes import counted
from localspec.tui.source_marks import View, legend, marked
from localspec.tui.trace import Trace
from localspec.tui.widgets.reply import ReplyText
from localspec.ui.summary import is_slower, kept_line, stats_line

NEAR = 2  # rows from the end that count as the end
FOLDED = 16  # lines of a user's message that are shown: as many of its beginning as of its end
CUT = 2000  # characters of a line, likewise
LIVE = 8_000  # characters of an answer whose origins are drawn anew with every piece that comes
RARELY = 20  # pieces of a longer one between two drawings


class Spoken(Vertical, can_focus=True):
    """A message that can be focused; j and k go from one to the next."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "want('copy')", "copy"),
        Binding("e", "want('edit')", "edit"),
        Binding("r", "want('again')", "again"),
        Binding("enter", "want('inspect')", "passes"),
        Binding("f", "want('fork')", "fork", show=False),
        Binding("x", "app.open('export')", "export", show=False),
        Binding("left_square_bracket", "want('back')", "branch before", show=False),
        Binding("right_square_bracket", "want('on')", "next branch", show=False),
        Binding("c", "code", "copy the next code block", show=False),
        Binding("d", "reveal", "refused drafts", show=False),
        Binding("t", "unfold", "reasoning, or the middle of a long text", show=False),
        Binding("j,down", "screen.message(1)", "next message", show=False),
        Binding("k,up", "screen.message(-1)", "message before", show=False),
        Binding("tab,i", "screen.write", "write", show=False),
        Binding("g", "screen.top", "first message", show=False),
        Binding("G", "screen.follow", "last message", show=False),
    ]

    @dataclass
    class Wanted(Message):
        """Something is to be done with the message."""

        entry: Node
        what: str

    def __init__(self, entry: Node, branch: tuple[int, int]) -> None:
        super().__init__(classes=entry.role)
        self.entry = entry
        self.branch = branch  # which of how many siblings
        self.doing = ""  # what an answer waits for

    def head(self) -> Content:
        who = "You" if self.entry.role == USER else "Assistant"
        parts = [(who, "bold $primary" if self.entry.role == USER else "bold $origin-draft")]
        parts.append((time.strftime("  %H:%M", time.localtime(self.entry.at)), "$muted"))
        n, count = self.branch
        if count > 1:
            parts.append((f"  ‹ {n}/{count} ›", "$accent"))
        if self.entry.finish is None:
            parts.append((f"  {self.doing or '…'}", "$muted"))
        elif ending(self.entry.finish):
            parts.append((f"  {sanitize(ending(self.entry.finish))}", "$warning"))
        return Content.assemble(*parts)

    def is_written(self, key: Key) -> bool:
        """Whether a key is none of the message's but text for the composer."""
        return key.is_printable and key.key not in self.screen.active_bindings

    def action_want(self, what: str) -> None:
        self.post_message(self.Wanted(self.entry, what))


class UserMessage(Spoken):
    is_unfolded = False

    def compose(self) -> ComposeResult:
        yield Static(self.head(), classes="head", markup=False)
        lines = sanitize(self.entry.text).split("\n")
        half = FOLDED // 2 if len(lines) > FOLDED and not self.is_unfolded else len(lines)
        yield Static(_cut(lines[:half]), classes="text", markup=False)
        if half < len(lines):
            more = f"… {counted(len(lines) - FOLDED, 'more line')} (t shows them) …"
            yield Static(Content(more), classes="note", markup=False)
            yield Static(_cut(lines[-half:]), classes="text", markup=False)
        if self.entry.attachments:
            yield Static(attached([self.entry]), classes="note attached", markup=False)

    async def action_unfold(self) -> None:
        self.is_unfolded = not self.is_unfolded
        await self.recompose()


class Answered(Spoken):
    """An answer, whole or still coming. `trace` knows its tokens; there is none for one that was loaded."""

    @dataclass
    class Copied(Message):
        """A block of code is to be copied."""

        text: str
        number: int
        of: int

    def __init__(self, entry: Node, branch: tuple[int, int], trace: Trace | None, view: View) -> None:
        super().__init__(entry, branch)
        self.trace = trace
        self.view = view
        self.is_revealed = False
        self.is_unfolded = False
        self._fed = 0  # pieces so far
        self._block = -1  # of code, the last that was copied
        self._shown = sanitize(entry.text) or ("" if trace is None else trace.text)
        self._thought: tuple[str, bool] | None = None  # what is shown of the reasoning, and whether it goes on
        self._reply = ReplyText(self._shown)

    def compose(self) -> ComposeResult:
        yield Static(self.head(), classes="head", markup=False)
        yield Static(classes="thought", markup=False)
        yield self._reply
        yield Static(classes="origins", markup=False)
        yield Static(classes="note", markup=False)

    async def on_mount(self) -> None:
        self._show_thought()
        await self.show(self.view)
        self._show_note()

    def on_resize(self) -> None:
        self._show_note()

    def wait(self, doing: str) -> None:
        if doing != self.doing:
            self.doing = doing
            self.query_one(".head", Static).update(self.head())

    async def feed(self, text: str) -> None:
        """Append what came of the answer, safe to show; what came of the reasoning is in the trace."""
        self._show_thought()
        if not text:
            return
        self._shown += text
        await self._reply.append(text)
        self._fed += 1
        if self.view is not View.OFF and self._reply.display:  # the first token has come
            await self.show(self.view)
        elif self.view is not View.OFF and (len(self._shown) < LIVE or self._fed % RARELY == 0):
            self._show_origins()

    async def finish(self) -> None:
        await self._reply.finish()
        self._show_thought()
        self.query_one(".head", Static).update(self.head())
        self._show_note()
        if self.view is not View.OFF:
            self._show_origins()

    async def show(self, view: View) -> None:
        self.view = view
        has_origins = view is not View.OFF and self.trace is not None and bool(self.trace.origins)
        self._reply.display = not has_origins
        self.query_one(".origins", Static).display = has_origins
        if has_origins:
            self._show_origins()

    def action_unfold(self) -> None:
        self.is_unfolded = not self.is_unfolded
        self._show_thought(is_due=True)

    def action_reveal(self) -> None:
        if self.view is View.OFF:
            self.notify("F3 shows where tokens come from; d then adds the refused drafts")
            return
        self.is_revealed = not self.is_revealed
        self._show_origins()

    def action_code(self) -> None:
        blocks = code_blocks(self.entry.text)
        if blocks:
            self._block = (self._block + 1) % len(blocks)
            self.post_message(self.Copied(blocks[self._block], self._block + 1, len(blocks)))

    def _show_thought(self, *, is_due: bool = False) -> None:
        trace = self.trace
        text = sanitize(self.entry.reasoning) if trace is None else trace.reasoning
        thought = text, trace is not None and trace.is_reasoning
        if not is_due and thought == self._thought:
            return
        self._thought, widget = thought, self.query_one(".thought", Static)
        widget.display = bool(text)
        if text:
            widget.update(_folded(*thought, self.is_unfolded))

    def _show_origins(self) -> None:
        if self.trace is None:
            return
        widget = self.query_one(".origins", Static)
        origins = self.trace.origins
        head = legend(origins, self.view)
        widget.update(Content("\n").join([head, marked(origins, self.view, is_revealed=self.is_revealed)]))

    def _show_note(self) -> None:
        note = self.query_one(".note", Static)
        room = self.content_size.width or None  # none yet before it is laid out
        stats = None if self.trace is None else self.trace.stats
        if stats is not None and stats.finished is not None:
            note.update(Content.styled(stats_line(stats, room), "$warning" if is_slower(stats) else "$muted"))
            note.display = True
        elif stats is None and self.entry.stats is not None:
            line = kept_line(self.entry.stats, room)
            note.update(Content.styled(sanitize(line), "$muted"))
            note.display = bool(line)


def _cut(lines: Sequence[str]) -> Content:
    half = CUT // 2
    return Content("\n".join(line if len(line) <= CUT else f"{line[:half]} … {line[-half:]}" for line in lines))


def _folded(reasoning: str, is_open: bool, is_unfolded: bool) -> Content:
    words = counted(len(reasoning.split()), "word")
    parts = [(f"{'▾' if is_unfolded else '▸'} {'thinking' if is_open else 'thought'}, {words} (t)", "$muted")]
    if is_unfolded:
        parts.append(("\n" + reasoning, "$muted"))
    elif is_open:
        last = reasoning.rstrip().rpartition("\n")[2][-120:]
        parts.append((f"\n  {last}", "$muted"))
    return Content.assemble(*parts)
