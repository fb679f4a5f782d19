"""Where the figures of the chat are drawn: beside it, in a strip below it, or in one cell; and the line on top."""

from __future__ import annotations

from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from localspec.tui.chat_engine import ChatEngine
from localspec.tui.host import Host
from localspec.tui.news import News
from localspec.tui.stats_panel import PANE, cell, pane, strip
from localspec.tui.widgets.top_bar import Top, TopBar, resident

PLACES = ("full", "strip", "off")  # F2 goes round: beside the chat, or below it where that is narrow; below; nowhere
WHERE = {"beside": "Figures beside the chat", "below": "Figures below the chat", "": "Figures hidden"}


class Figures:
    def __init__(self, screen: Screen[None], host: Host, engine: ChatEngine, news: News, *, is_shown: bool) -> None:
        self._screen = screen
        self._host = host
        self._engine = engine
        self._news = news
        self._place = "full" if is_shown else "off"
        self._drawn_at = 0.0
        self._shown: dict[Static, tuple[object, ...]] = {}
        screen.set_class(not is_shown, "-figures-off")

    def turn(self) -> None:
        at, before = PLACES.index(self._place), self._where
        for name in (*PLACES[at + 1 :], *PLACES[:at]):
            self._place = name
            if self._where != before:
                break
        else:
            self._place = PLACES[at]
        for name in PLACES:
            self._screen.set_class(name == self._place, f"-figures-{name}")
        self.draw()
        same = "This terminal is too small for the figures"
        self._host.say(same if self._where == before else f"{WHERE[self._where]} · F2 changes that")

    @property
    def _where(self) -> str:
        has = self._screen.has_class
        if self._place == "off" or has("-tiny") or has("-flat") or has("-mini") or has("-low"):
            return ""
        if self._place == "full":
            return "beside" if has("-wide") else "below" if has("-small") else ""
        return "below"

    def draw(self, *, is_due: bool = False) -> None:
        now = self._host.clock()
        if is_due and now - self._drawn_at < self._news.throttle.budget.figures:
            return
        self._drawn_at = now
        trace, loaded = self._engine.trace_of_pair, self._engine.state.loaded
        beside, below, alone = (self._screen.query_one(name, Static) for name in ("#figures", "#strip", "#cell"))
        if beside.display:
            is_loading = self._engine.worker_thread.is_busy
            self._put(beside, pane(trace, loaded, PANE, is_loading=is_loading), layout=False)
        if below.display:
            self._put(below, strip(trace, self._screen.size.width - 2), layout=False)
        if alone.display:
            self._put(alone, cell(trace))
        self._screen.query_one(TopBar).show(self._top(0 if trace is None else trace.stats.context_n))

    def _put(self, place: Static, content: Content, *, layout: bool = True) -> None:
        """Show what is not shown already: an idle screen draws nothing."""
        shown = content.plain, tuple(content.spans)
        if self._shown.get(place) != shown:
            self._shown[place] = shown
            place.update(content, layout=layout)

    def _top(self, used: int) -> Top:
        state, thread = self._engine.state, self._engine.worker_thread
        stopping = "stopping… Esc again ends the engine" if thread.is_deaf else "stopping…"
        doing = stopping if thread.is_stopping else self._news.doing.words
        memory, name = resident(thread.worker.pid), state.settings.name or state.settings.target
        return Top(name, state.loaded, used, memory, doing, "autosaved" if state.writer.is_saved else "not saved")
