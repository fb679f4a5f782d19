"""The race: one prompt, plainly and with speculation, never both at once; and whether it came to the same text."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from localspec.bench.rounds import TOKENS
from localspec.chat.message_tree import Node
from localspec.conversations.records import ASSISTANT, spoken
from localspec.sanitize import one_line, sanitize
from localspec.settings.request import Request
from localspec.tui.host import Host
from localspec.tui.race_progress import Running
from localspec.tui.screens.dialog import OverChat
from localspec.tui.widgets.card import card
from localspec.tui.widgets.composer import LineInput, beginning
from localspec.tui.widgets.keys import Keys
from localspec.tui.widgets.notices import NoticeBar
from localspec.tui.worker_thread import Ended
from localspec.ui.summary import accepted, rate_of
from localspec.worker.client import Worker

RATE = 10  # times a second that the lanes are drawn
BAR = 16  # cells
NAMES = {True: "PLAIN", False: "SPECULATIVE"}


class Lane(Vertical):
    def compose(self) -> ComposeResult:
        yield Static(classes="name", markup=False)
        with VerticalScroll(classes="text"):
            yield Static(markup=False)

    def show(self, head: Content, text: Content) -> None:
        self.query_one(".name", Static).update(head)
        scroll = self.query_one(".text", VerticalScroll)
        scroll.query_one(Static).update(text)
        scroll.scroll_end(animate=False)


class RaceScreen(OverChat, Screen[None]):
    """Runs a race when it is opened with a question, and whenever Enter is pressed."""

    CSS_PATH = "race.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "stop, back"),
        Binding("f4", "again(1)", "race again"),
        Binding("f5", "again(6)", "six rounds"),
    ]

    def __init__(self, host: Host, question: str, asked: Node | None = None, rounds: int = 1) -> None:
        """`asked` is the message that `question` is; another question goes without what was said before it."""
        super().__init__()
        self._host = host
        self._engine = host.engine
        self._question = question
        self._asked = asked
        self._rounds = rounds  # of the race that begins at once
        self.running: Running | None = None
        self._drawn = ""
        self._job = 0

    def compose(self) -> ComposeResult:
        shown = one_line(self._question)
        yield Static(id="said", markup=False)
        with Horizontal(id="prompt-line"):
            yield Static("question", markup=False)
            yield LineInput(shown, placeholder="the question for both", compact=True, select_on_focus=False)
        with Horizontal(id="lanes"):
            yield Lane(id="plain")
            yield Lane(id="other")
        yield Static(id="verdict", markup=False)
        yield NoticeBar()
        yield Keys()

    def on_mount(self) -> None:
        self.query_one(LineInput).focus()
        self.set_interval(1 / RATE, self._tick)
        if self._question:
            self.action_again(self._rounds)
        self._draw()

    @on(Input.Submitted)
    def race(self) -> None:
        self.action_again(1)

    def action_again(self, rounds: int) -> None:
        written = self.query_one(LineInput).value
        if not written.strip() or (self.running is not None and not self.running.is_over):
            return
        worker_thread = self._engine.worker_thread
        if worker_thread.is_stopping or self._engine.state.answering is not None:
            self._host.say("the engine is busy")
            return
        if worker_thread.worker.pid is None and not worker_thread.is_busy:  # it died, or was never started
            worker_thread.load(self._engine.state.to_load())
        self.running = running = Running(self._request(written), rounds)
        self._job = worker_thread.run(lambda: running.job(cast(Worker, worker_thread.worker)))

    def action_back(self) -> None:
        if self.running is None or self.running.is_over:
            self.dismiss()
        else:
            self.running.stop()
            self._host.stop_job()
            self._draw()

    def _request(self, written: str) -> Request:
        is_asked = written == one_line(self._question)  # as it came: the line may show less than there is
        state, text = self._engine.state, self._question if is_asked else written.strip()
        request = state.request_for(self._asked) if is_asked and self._asked else state.request_after((), text)
        return replace(request, max_tokens=request.max_tokens or TOKENS, details=False)

    def _tick(self) -> None:
        running = self.running
        if running is None:
            return
        for item in self._engine.worker_thread.take(self._job):
            if isinstance(item, Ended):
                running.end(item.error)
        state = f"{running.doing}{running.is_over}{running.is_stopped}" + "".join(
            f"{side}{lane.last.tokens}{lane.is_over}" for side, lane in running.lanes.items()
        )
        if state != self._drawn:
            self._drawn = state
            self._draw()

    def _draw(self) -> None:
        running = self.running
        self.query_one("#said", Static).update(said(running))
        for side, name in ((True, "#plain"), (False, "#other")):
            self.query_one(name, Lane).show(head(running, side), text(running, side))
        self.query_one("#verdict", Static).update(verdict(running))


def said(running: Running | None) -> Content:
    if running is None:
        return Content("race · Enter runs the question plainly, then with speculation against its ghost")
    if running.is_over:
        words = "stopped" if running.is_stopped else "done"
        return Content(f"race · {words} · Enter again, F5 six rounds, Esc back")
    words = "stopping…" if running.is_stopped else running.doing or "waiting for the engine"
    return Content(f"race · {words}")


def head(running: Running | None, side: bool) -> Content:
    name = Content.styled(NAMES[side], "bold $primary" if not side else "bold")
    if running is None or side not in running.lanes:
        why = (
            ""
            if running is None or running.is_over
            else "waits: one at a time, so that they do not slow each other down"
        )
        return Content.assemble(name, "\n", (why, "$muted"))
    lane, seen = running.lanes[side], running.seen(side)
    is_ghost = lane.is_over and running.live is not None and running.live != side
    speed = rate_of(lane.answer.stats)
    rate = "" if speed is None else f" {speed:.1f} tok/s"
    kind = " (ghost: its text at this moment)" if is_ghost else ""
    limit = running.request.max_tokens or TOKENS
    filled = round(BAR * min(1.0, seen.tokens / limit))
    bar = "━" * filled + "─" * (BAR - filled)
    figures = f" {seen.tokens} tok · {seen.seconds:.2f} s"
    stats = lane.answer.stats
    if not side and stats.drafted:
        figures += f" · accepted {accepted(stats)}"
    style = "$muted" if is_ghost or side else "$primary"
    return Content.assemble(name, rate, (kind, "$muted"), "\n", (bar, style), figures)


def text(running: Running | None, side: bool) -> Content:
    if running is None or side not in running.lanes:
        return Content("")
    shown = spoken(ASSISTANT, running.lanes[side].text[: running.seen(side).characters])
    if not (running.is_over and len(running.lanes) == 2):
        return Content(sanitize(shown))
    other = spoken(ASSISTANT, running.lanes[not side].text)
    same = len(beginning([shown, other]))
    return Content.assemble(sanitize(shown[:same]), (sanitize(shown[same:]), "$accent underline"))


def verdict(running: Running | None) -> Content:
    if running is None or not running.is_over:
        return Content.styled("Plain first, then speculation against its ghost, from empty caches, one seed.", "$muted")
    if running.error is not None:
        return card(running.error)
    if running.found is None:
        return Content("no round was finished")
    speed, same = running.found.verdict("F5")
    compared = running.found.same
    sign, style = (
        ("", "$muted") if compared is None else ("✓ ", "$success") if compared.is_explained else ("✗ ", "$error")
    )
    return Content.assemble((speed, "bold"), "\n", (f"{sign}{sanitize(same)}", style))
