"""The chat: transcript, figures, and the line to write in."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from localspec.chat.conversation_writer import Unsent
from localspec.chat.message_tree import Node
from localspec.chat.opening import remarks
from localspec.conversations.records import USER
from localspec.errors import LocalspecError, WorkerDiedError
from localspec.models.store import introduction
from localspec.sanitize import one_line, sanitize
from localspec.settings.sizes import count, counted
from localspec.tui.chat_engine import ChatEngine, ReadingAhead
from localspec.tui.figures import Figures
from localspec.tui.host import Host
from localspec.tui.keys_in_turn import in_turn
from localspec.tui.news import News
from localspec.tui.source_marks import View
from localspec.tui.stats_panel import explained
from localspec.tui.turns import ChatTurns
from localspec.tui.widgets.card import ErrorCard, Note, WelcomeCard
from localspec.tui.widgets.composer import Composer, differing
from localspec.tui.widgets.keys import Keys
from localspec.tui.widgets.message import Answered, Spoken, UserMessage
from localspec.tui.widgets.notices import NoticeBar
from localspec.tui.widgets.top_bar import TopBar
from localspec.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from textual.widgets import Markdown


SHOWN = {
    View.OFF: "Origins of tokens hidden",
    View.FULL: "Origins of tokens in colours",
    View.MARKS: "Origins of tokens by marks",
}


class ChatScreen(Screen[None]):
    """Home. `turns` does what is asked of the conversation, `news` brings what has come from the engine."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop", show=True, tooltip="stop the answer, or go back to writing"),
        Binding("f2", "figures", "figures", show=True, tooltip="show the figures beside, below, or not at all"),
        Binding("f3", "origins", "colours", show=True, tooltip="show where each token comes from"),
        Binding("f5", "regenerate", "again", show=True, tooltip="answer the last message again; the old answer stays"),
        Binding("f6", "speculation", "speculation on or off", show=False),
        Binding("f7", "copy", "copy the last answer", show=False),
        Binding("ctrl+t", "thinking", "show or hide reasoning", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("end", "follow", "follow the end", show=False),
        Binding("home", "top", "first message", show=False),
    ]

    def __init__(
        self,
        host: Host,
        engine: ChatEngine,
        *,
        has_tokens: bool = False,
        has_figures: bool = True,
    ) -> None:
        super().__init__()
        self._ahead, self._n_ahead = ReadingAhead(engine), 0
        self.turns = ChatTurns(host, engine, self)
        self._unsent = Unsent(engine.state.writer, lambda: self.turns.unsent, lambda: engine.state.session)
        self._told_choices = False
        self._host = host
        self._engine = engine
        self._news = News(host, engine, self, self.call_later)
        self._view = View.FULL if has_tokens else View.OFF
        self._figures = Figures(self, host, engine, self._news, is_shown=has_figures)

    def compose(self) -> ComposeResult:
        yield TopBar()
        with Horizontal(id="middle"):
            with Vertical(id="left"):
                yield Transcript(id="transcript")
                yield Static(id="chip", markup=False)
            yield Static(id="figures", markup=False)
        yield Static(id="strip", markup=False)
        yield Static(id="attached", markup=False)
        yield NoticeBar()
        with Horizontal(id="ask"):
            yield Static("›", id="prompt", markup=False)
            yield Composer(id="composer")
            yield Static(id="cell", markup=False)
        yield Keys()
        yield Static("terminal too small: Ctrl+Q quits", id="small", markup=False)

    async def on_mount(self) -> None:
        await self.renew()
        for line in remarks(self._engine.state):
            await self.tell(line)
        self.composer.focus()
        self._news.look()
        # A timer calls back in a task of its own; what changes the screen waits its turn among the messages.
        self.set_interval(1.0, lambda: self.call_later(self._second))
        self.show_figures()

    def on_unmount(self) -> None:
        self._news.close()
        self._unsent.keep()

    def on_resize(self) -> None:
        """Other figures may have room now. A message that was hidden has lost the keyboard: the composer gets it."""
        self.call_after_refresh(self.show_figures)
        if self.focused is None:
            self.call_after_refresh(self.composer.focus)

    @cached_property  # asked for twenty times a second
    def composer(self) -> Composer:
        return self.query_one(Composer)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def about(self) -> list[tuple[str, list[tuple[str, str]]]]:
        trace = self.focused.trace if isinstance(self.focused, Answered) else None
        return [] if trace is None else [("This answer", explained(trace))]

    async def renew(self, before: Node | None = None, asked: Node | None = None) -> None:
        """Show the whole path anew, at its end; or with `asked`, which gets the keyboard, at the row of `before`."""
        path = self._engine.state.messages.path()
        row = 0 if before is None else self.transcript.row_of(before)
        with self.app.batch_update():
            await self.transcript.remove_children()
            await self.transcript.mount_all([self._widget(entry) for entry in path] or [WelcomeCard()])
        if asked is None:
            self.transcript.follow()
        else:
            self.transcript.hold(asked, row)
            next(each for each in self.transcript.query(Spoken) if each.entry is asked).focus(scroll_visible=False)
        self.show_attached()
        self.show_figures()

    async def show(self, *entries: Node) -> None:
        await self.transcript.query(WelcomeCard).remove()
        await self.transcript.mount_all([self._widget(entry) for entry in entries])
        self.transcript.follow()
        self.show_attached()

    async def tell(self, text: str) -> None:
        await self.transcript.mount(Note(text))

    async def fail(self, error: LocalspecError, *, is_load: bool = False) -> None:
        await self.transcript.mount(ErrorCard(error, is_of_engine=is_load or isinstance(error, WorkerDiedError)))

    async def drop_cards(self, *, is_of_engine: bool = True) -> None:
        cards = [each for each in self.transcript.query(ErrorCard) if each.is_of_engine == is_of_engine]
        await self.transcript.remove_children(cards)

    def show_attached(self) -> None:
        state = self._engine.state
        names = ", ".join(sanitize(each.name) for each in state.attached)
        n_ahead = self._engine.worker_thread.n_ahead
        waiting = one_line(self.turns.waiting)
        parts = [f"answering in {self.turns.away} (F8)"] if self.turns.away else []
        parts += [f"next, after this answer: {waiting[:60]}{'…' * (len(waiting) > 60)}"] if waiting else []
        parts += [f"+ {names}"] if names else []
        parts += [f"read ahead: {count(n_ahead)} tokens"] if n_ahead else []
        parts += [f"system (^S): {one_line(state.messages.system)}"] if state.messages.system else []
        line = self.query_one("#attached", Static)
        line.display = bool(parts)
        line.update(Content(" · ".join(parts)))
        self._unsent.changed(self.set_timer)

    @property
    def away(self) -> str:
        return self.turns.away

    async def go_on(self, finish: str | None) -> None:
        await self.turns.go_on(finish)

    def _widget(self, entry: Node) -> Spoken:
        state = self._engine.state
        siblings = state.messages.siblings(entry)
        branch = siblings.index(entry) + 1, len(siblings)
        if entry.role == USER:
            return UserMessage(entry, branch)
        if entry is state.answering:
            self._engine.unseen = ""  # the widget begins with all that has come
        return Answered(entry, branch, self._engine.traces.get(entry.id), self._view)

    def answer_of(self, entry: Node | None) -> Answered | None:
        return next((each for each in self.transcript.query(Answered) if each.entry is entry), None)

    async def _second(self) -> None:
        lost = self._engine.worker_thread.lost()
        if lost is not None:
            await self.fail(lost)
        trouble = self._engine.state.writer.trouble()
        if trouble is not None:
            await self.fail(trouble)
        # While an answer comes, the text draws them: it all costs.
        if self._engine.state.answering_here is None or self._engine.worker_thread.is_stopping:
            self.show_figures()
        self._ahead.look(self.composer.message)
        if self._n_ahead != self._engine.worker_thread.n_ahead:
            self._n_ahead = self._engine.worker_thread.n_ahead
            self.show_attached()

    def show_figures(self, *, is_due: bool = False) -> None:
        """Draw the figures, and on an empty page what the pair is; with `is_due` only if that is long enough ago."""
        self._figures.draw(is_due=is_due)
        state = self._engine.state
        if not state.messages.path():
            for page in self.transcript.query(WelcomeCard):
                page.show(introduction(state.settings, state.request.speculation))

    @on(Composer.Sent)
    async def send(self, sent: Composer.Sent) -> None:
        self._host.say("")
        await self.drop_cards(is_of_engine=False)
        await self.turns.send(sent.text)

    @on(Composer.Changed)
    def keep(self) -> None:
        self._unsent.changed(self.set_timer)
        if self._told_choices:
            self._told_choices = False
            self._host.say("")

    @on(Composer.Completed)
    def tell_choices(self, completed: Composer.Completed) -> None:
        self._host.say("  ".join(differing(completed.choices)))
        self._told_choices = True

    @on(Spoken.Wanted)
    async def act(self, wanted: Spoken.Wanted) -> None:
        await self.turns.act(wanted.what, wanted.entry)

    @on(Transcript.Follow)
    def chip(self, follow: Transcript.Follow) -> None:
        chip = self.query_one("#chip", Static)
        chip.display = follow.rows > 0
        chip.update(Content(f" ↓ {counted(follow.rows, 'new line')} (End) "))

    def action_stop(self) -> None:
        if self._engine.worker_thread.is_busy and not self.turns.away:
            self._host.stop_job()
            self.show_figures()
        elif not self.turns.stop_editing():
            self.composer.focus()
            if self.turns.away:
                self._host.say(f"The answer in {self.turns.away} goes on · F8 goes there, where Esc stops it")

    @on(Answered.Copied)
    def copy_block(self, copied: Answered.Copied) -> None:
        self.turns.copy_text(copied.text, f"code block {copied.number} of {copied.of}")

    @in_turn
    async def action_regenerate(self) -> None:
        path = self._engine.state.messages.path()
        if path:
            await self.turns.again(path[-1])
        else:
            self._host.say("There is no answer yet to make again")

    def action_copy(self) -> None:
        answer = self._engine.state.last_answer
        if answer is not None:
            self.turns.copy_text(answer.text, "the answer")
        else:
            self._host.say("There is no answer yet to copy")

    @in_turn
    def action_thinking(self) -> None:
        for widget in self.transcript.query(Answered):
            widget.action_unfold()

    def action_speculation(self) -> None:
        try:
            is_on = self._engine.state.switch_speculation()
        except LocalspecError as error:
            self._host.say(f"{error.message}{error.advice}", is_wrong=True)
            return
        self._host.say(f"Speculation {'on' if is_on else 'off'}, starting with the next answer")

    @in_turn
    async def action_origins(self) -> None:
        self._view = self._view.next()
        answers = list(self.transcript.query(Answered))
        for widget in answers:
            await widget.show(self._view)
        if self._view is not View.OFF and answers and all(each.trace is None for each in answers):
            self._host.say("only the texts of these answers were kept, not the origins of their tokens")
        else:
            self._host.say(f"{SHOWN[self._view]} · F3 changes that")

    def action_figures(self) -> None:
        self._figures.turn()

    def action_message(self, by: int) -> None:
        messages = list(self.transcript.query(Spoken))
        if not messages:
            return
        here = self.focused
        at = messages.index(here) + by if isinstance(here, Spoken) and here in messages else len(messages) - 1
        messages[max(0, min(at, len(messages) - 1))].focus()

    def action_write(self) -> None:
        self.composer.focus()

    def on_markdown_link_clicked(self, clicked: Markdown.LinkClicked) -> None:
        """Copy a link, and open nothing: what it leads to is the model's choice."""
        self.turns.copy_text(clicked.href, "the link")

    def action_follow(self) -> None:
        self.transcript.follow()

    def action_top(self) -> None:
        self.transcript.scroll_home(animate=False)

    def action_page(self, direction: int) -> None:
        if direction < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)
