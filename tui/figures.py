"""Where the figures of the chat are drawn: beside it, in a strip below it, or in one cell; and the line on top."""

from __future__ import annotations

from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from localspec.tui.chat_engine import ChatEngine
from localspec.tui.host import Host
from localspec.tui.news import News
from localspec.tui.stats_panel import cell, pane, strip
from localspec.tui.widgets.bars import Top, TopBar, resident

PANE = 35  # columns of the text beside the chat: the 40 of tui.tcss without border and padding
PLACES = ("full", "strip", "off")  # beside the chat, below it, nowhere: F2 goes round


class Figures:
    """Draws the figures of the last answer on the screen of the chat, where there is room for them."""

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
        """Go on to the next of `PLACES`."""
        self._place = PLACES[(PLACES.index(self._place) + 1) % len(PLACES)]
        for name in PLACES:
            self._screen.set_class(name == self._place, f"-figures-{name}")
        self.draw()

    def draw(self, *, is_due: bool = False) -> None:
        """Draw them; with `is_due` only if that is long enough ago."""
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
        """Return the line on top, with so many tokens in the context."""
        state, thread = self._engine.state, self._engine.worker_thread
        stopping = "stopping… Esc again ends the engine" if thread.is_deaf else "stopping…"
        doing = stopping if thread.is_stopping else self._news.doing.words
        memory, name = resident(thread.worker.pid), state.settings.name or state.settings.target
        return Top(name, state.loaded, used, memory, doing, "autosaved" if state.writer.is_saved else "not saved")
