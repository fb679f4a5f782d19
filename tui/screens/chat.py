"""The chat: transcript, figures, and the line to write in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Footer, Static

from localspec.conversations.records import USER
from localspec.engine.events import Loaded, Loading, Prefilled, Started, Warned
from localspec.errors import LocalspecError
from localspec.sanitize import sanitize
from localspec.tui import stats_panel as figures
from localspec.tui.chat_state import ChatState
from localspec.tui.memory import resident
from localspec.tui.message_tree import Node
from localspec.tui.provenance import View
from localspec.tui.redraw_throttle import RedrawThrottle, budget
from localspec.tui.screens.turns import Turns
from localspec.tui.talk import in_turn
from localspec.tui.widgets.bars import Top, TopBar
from localspec.tui.widgets.card import ErrorCard, Note, Welcome
from localspec.tui.widgets.composer import Composer
from localspec.tui.widgets.message import Answered, Asked, Spoken
from localspec.tui.widgets.reply import prepare
from localspec.tui.widgets.transcript import Transcript
from localspec.tui.worker_thread import Arrived, Ended

if TYPE_CHECKING:
    from textual.widgets import Markdown

KEEP = 0.7  # seconds after which what has come is kept, though it may not be drawn yet
RATE = 20  # times a second that it is looked whether something has come
PAUSE = 0.2  # seconds between two looks at most, while the screen rests anyway
PANE = 40  # columns of the figures


class ChatScreen(Turns):
    """Home. What has come from the engine is taken here, twenty times a second, while a job runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop", show=True),
        Binding("f2", "figures", "figures", show=True),
        Binding("f3", "origins", "colours", show=True),
        Binding("f5", "regenerate", "again", show=True),
        Binding("f6", "speculation", "speculation on or off", show=False),
        Binding("f7", "copy", "copy the last answer", show=False),
        Binding("ctrl+t", "thinking", "show or hide reasoning", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("end", "follow", "follow the end", show=False),
        Binding("home", "top", "first message", show=False),
    ]

    def __init__(self, chat_state: ChatState, *, has_tokens: bool = False, has_figures: bool = True) -> None:
        super().__init__(chat_state)
        self._view = View.FULL if has_tokens else View.OFF
        self._doing = ""
        self._pane = "full" if has_figures else "off"  # or strip: as F2 says
        self.set_class(not has_figures, "-figures-off")
        self._figures_at = 0.0
        self._is_awake = False  # a tick is on its way
        self._taken_at = 0.0
        self._throttle = RedrawThrottle()
        self._alarm: asyncio.TimerHandle | None = None  # for the next look at what has come

    def compose(self) -> ComposeResult:
        """Top line, transcript beside figures, strip, input, keys."""
        yield TopBar()
        with Horizontal(id="middle"):
            with Vertical(id="left"):
                yield Transcript(id="transcript")
                yield Static(id="chip", markup=False)
            yield Static(id="figures", markup=False)
        yield Static(id="strip", markup=False)
        yield Static(id="attached", markup=False)
        with Horizontal(id="ask"):
            yield Static("›", id="prompt", markup=False)
            yield Composer(id="composer")
            yield Static(id="cell", markup=False)
        yield Footer(compact=True)
        yield Static("terminal too small: Ctrl+Q quits", id="small", markup=False)

    async def on_mount(self) -> None:
        """Begin with what was said, and the keyboard in the composer."""
        await self.renew()
        self.composer.focus()
        self._wake()
        # A timer calls back in a task of its own; what changes the screen waits its turn among the messages.
        self.set_interval(1.0, lambda: self.call_later(self._second))
        self._show_figures()

    def on_unmount(self) -> None:
        """Look for news no more."""
        if self._alarm is not None:
            self._alarm.cancel()

    def on_resize(self) -> None:
        """Other figures may have room now, and the composer, which loses the keyboard where it has none."""
        self.call_after_refresh(self._show_figures)
        if self.focused is None:
            self.call_after_refresh(self.composer.focus)

    @property
    def transcript(self) -> Transcript:
        """The messages."""
        return self.query_one(Transcript)

    async def renew(self) -> None:
        """Show the whole path anew: after a branch was switched, a conversation opened or begun."""
        path = self.chat_state.messages.path()
        self._doing = ""
        with self.app.batch_update():
            await self.transcript.remove_children()
            await self.transcript.mount_all([self._widget(entry) for entry in path] or [Welcome()])
        self.transcript.follow()
        self.show_attached()
        self._show_figures()

    async def show(self, *entries: Node) -> None:
        """Add messages at the end."""
        await self.transcript.query(Welcome).remove()
        await self.transcript.mount_all([self._widget(entry) for entry in entries])
        self.transcript.follow()
        self.show_attached()

    async def tell(self, text: str) -> None:
        """Add a line of the chat's own."""
        await self.transcript.mount(Note(text))

    async def fail(self, error: LocalspecError) -> None:
        """Add a card that tells of an error."""
        await self.transcript.mount(ErrorCard(error))

    def show_attached(self) -> None:
        """Tell above the input what goes with the next message."""
        names = ", ".join(sanitize(each.name) for each in self.chat_state.attached)
        line = self.query_one("#attached", Static)
        line.display = bool(names)
        line.update(Content(f"+ {names}"))

    def _widget(self, entry: Node) -> Spoken:
        siblings = self.chat_state.messages.siblings(entry)
        branch = siblings.index(entry) + 1, len(siblings)
        if entry.role == USER:
            return Asked(entry, branch)
        if entry is self.chat_state.answering:
            self.chat_state.unseen = ""  # the widget begins with all that has come
        return Answered(entry, branch, self.chat_state.traces.get(entry.id), self._view)

    def _wake(self) -> None:
        """Look whether something is to be done; not by a timer of Textual's, whose turns cost more than all of this."""
        self._alarm = asyncio.get_running_loop().call_later(self._pause, self._wake)
        chat_state = self.chat_state
        self.composer.rest(chat_state.worker_thread.is_busy)
        if not chat_state.worker_thread.is_busy:
            self._throttle.wake()
        is_late = self.app.clock() - self._taken_at >= KEEP
        has_news = chat_state.worker_thread.has_news
        is_wanted = (has_news or chat_state.unseen) if self._is_due else (has_news and is_late)
        if is_wanted and not self._is_awake:
            self._is_awake = True
            self.call_later(self._tick)

    @property
    def _pause(self) -> float:
        """Seconds to the next look: while the screen rests there is nothing to do but to keep what has come."""
        until_kept = self._taken_at + KEEP - self.app.clock()
        return min(max(min(self._throttle.left, until_kept), 1 / RATE), PAUSE)

    @property
    def _is_due(self) -> bool:
        """Whether the screen may be drawn; when an answer has ended, the engine has nothing more to lose."""
        return self._throttle.is_due or self.chat_state.worker_thread.has_ended

    async def _tick(self) -> None:
        """Take what has come, and keep it; show it if that is due: one append however many passes."""
        self._is_awake = False
        is_due, entry = self._is_due, self.chat_state.answering
        if is_due:
            self._throttle.begin()
        items = self.chat_state.take()
        self._taken_at = self.app.clock()
        for item in items:
            if isinstance(item, Arrived):
                await self._tell_of(item)
        ended = [item for item in items if isinstance(item, Ended)]
        if not (is_due or ended) or not (items or self.chat_state.unseen):
            return
        text, widget = self.chat_state.unseen, self._answer_of(entry)
        if widget is not None:
            self.chat_state.unseen = ""
            await widget.feed(text)
        # While it is busy the next job goes on, as an answer that waited for its pair.
        if ended and not self.chat_state.worker_thread.is_busy:
            await self._end(widget, ended[-1])
        self._show_figures(is_due=bool(text))

    async def _tell_of(self, item: Arrived) -> None:
        match item.event:
            case Loaded(threads=threads):
                self._throttle.budget = budget(threads)
                self.call_after_refresh(prepare)  # nobody waits now, and an answer would
            case Loading(what, fraction):
                self._doing = f"loading the {what} {fraction:.0%}"
            case Started(prompt_n=n):
                self._doing = f"reading {n} tokens"
                self._throttle.wake()  # the messages are drawn, and the first word of the answer must not wait for it
            case Prefilled():
                self._doing = "answering"
            case Warned(message=message):
                await self.tell(message)

    async def _end(self, widget: Answered | None, item: Ended) -> None:
        self._doing = ""
        if widget is not None:
            await widget.finish()
            finished = None if widget.trace is None else widget.trace.stats.finished
            if finished is not None and finished.reason == "context":
                await self.tell("The context is full: the answer ends here. Ctrl+N begins a new conversation.")
        if item.error is not None:
            await self.fail(item.error)
        self._show_figures()

    def _answer_of(self, entry: Node | None) -> Answered | None:
        if entry is None:
            return None
        return next((each for each in self.transcript.query(Answered) if each.entry is entry), None)

    async def _second(self) -> None:
        lost = self.chat_state.worker_thread.lost()
        if lost is not None:
            await self.fail(lost)
        trouble = self.app.writer.trouble()
        if trouble is not None:
            await self.fail(trouble)
        # While an answer comes, the text draws them: it all costs.
        if self.chat_state.answering is None or self.chat_state.worker_thread.is_stopping:
            self._show_figures()

    def _show_figures(self, *, is_due: bool = False) -> None:
        """Draw the figures; with `is_due` only if that is long enough ago."""
        now = self.app.clock()
        if is_due and now - self._figures_at < self._throttle.budget.figures:
            return
        self._figures_at = now
        trace, loaded = self.chat_state.trace_of_pair, self.chat_state.loaded
        pane = self.query_one("#figures", Static)
        if pane.display:
            pane.update(figures.pane(trace, loaded, PANE - 4), layout=False)
        strip = self.query_one("#strip", Static)
        if strip.display:
            strip.update(figures.strip(trace, self.size.width - 2), layout=False)
        cell = self.query_one("#cell", Static)
        if cell.display:
            cell.update(figures.cell(trace))
        stopping = "stopping… Esc: by force" if self.chat_state.worker_thread.is_deaf else "stopping…"
        state = stopping if self.chat_state.worker_thread.is_stopping else self._doing
        used = trace.stats.context_n if trace is not None else 0
        memory = resident(self.chat_state.worker_thread.worker.pid)
        name = self.chat_state.settings.name or self.chat_state.settings.target
        self.query_one(TopBar).show(
            Top(name, loaded, used, memory, state, "autosaved" if self.app.writer.is_saved else "not saved")
        )

    @on(Transcript.Follow)
    def chip(self, follow: Transcript.Follow) -> None:
        """Tell how much is below the window."""
        chip = self.query_one("#chip", Static)
        chip.display = follow.rows > 0
        lines = f"{follow.rows} new line{'s' * (follow.rows != 1)}"
        chip.update(Content(f" ↓ {lines} (End) "))

    def action_stop(self) -> None:
        """Stop the answer; without one, go back to the composer."""
        if self.chat_state.worker_thread.is_busy:
            self.app.stop_job()
            self._show_figures()
        elif not self.stop_editing():
            self.composer.focus()

    @on(Answered.Copied)
    def copy_block(self, copied: Answered.Copied) -> None:
        """Copy a block of code."""
        self.copy_text(copied.text, f"code block {copied.number} of {copied.of}")

    @in_turn
    def action_thinking(self) -> None:
        """Show or hide the reasoning of all answers."""
        for widget in self.transcript.query(Answered):
            widget.action_unfold()

    def action_speculation(self) -> None:
        """Turn drafting off or on for the answers to come."""
        try:
            is_on = self.chat_state.switch_speculation()
        except LocalspecError as error:
            self.app.say(f"{error.message}; try: {error.hint}", is_wrong=True)
            return
        self.app.say(f"speculation is {'on' if is_on else 'off'} from the next answer")

    @in_turn
    async def action_origins(self) -> None:
        """Show where tokens came from: off, marks, full."""
        self._view = self._view.next()
        for widget in self.transcript.query(Answered):
            await widget.show(self._view)

    def action_figures(self) -> None:
        """Show the figures beside the chat, as a strip below it, or not at all."""
        order = ["full", "strip", "off"]
        self._pane = order[(order.index(self._pane) + 1) % 3]
        for name in order:
            self.set_class(name == self._pane, f"-figures-{name}")
        self._show_figures()

    def action_message(self, by: int) -> None:
        """Go to the next or the message before; from elsewhere to the last one."""
        messages = list(self.transcript.query(Spoken))
        if not messages:
            return
        here = self.focused
        at = messages.index(here) + by if isinstance(here, Spoken) and here in messages else len(messages) - 1
        messages[max(0, min(at, len(messages) - 1))].focus()

    def action_write(self) -> None:
        """Go to the composer."""
        self.composer.focus()

    def on_markdown_link_clicked(self, clicked: Markdown.LinkClicked) -> None:
        """Copy a link, and open nothing: what it leads to is the model's choice."""
        self.copy_text(clicked.href, "the link")

    def action_follow(self) -> None:
        """Go to the end."""
        self.transcript.follow()

    def action_top(self) -> None:
        """Go to the first message."""
        self.transcript.scroll_home(animate=False)

    def action_page(self, direction: int) -> None:
        """Scroll by a page."""
        if direction < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)
