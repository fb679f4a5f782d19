"""Taking what has come from the engine, twenty times a second while a job runs, and showing it when that is due.

It also limits how often the screen is drawn, so that drawing does not slow the engine down.

The time of a drawing grows with the text on the screen: a word appended to an answer of 60 paragraphs takes twice
as long as to an empty one. So after each drawing the screen rests until it has taken no more than a share of one
processor. Where the engine has a thread on each processor, all threads wait for a drawing: there the screen rests
longer.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from localspec.chat.answer_writer import remark
from localspec.chat.message_tree import Node
from localspec.engine.events import Loaded, Started, Warned
from localspec.sanitize import sanitize
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.host import ChatView, Host
from localspec.tui.widgets.message import Answered
from localspec.tui.widgets.reply import prepare
from localspec.tui.worker_thread import Arrived, Ended
from localspec.ui.doing import Doing

KEEP = 0.7  # seconds after which what has come is kept, though it may not be drawn yet
RATE = 20  # times a second that it is looked whether something has come
PAUSE = 0.2  # seconds between two looks at most, while the screen rests anyway


class News:
    """Looks for news until it is closed. `in_turn` calls something when the screen has dealt with its messages."""

    def __init__(
        self,
        host: Host,
        engine: ChatEngine,
        view: ChatView,
        in_turn: Callable[[Callable[[], Awaitable[None]]], object],
    ) -> None:
        self.doing = Doing()  # the engine's job
        self.throttle = RedrawThrottle()
        self._host = host
        self._engine = engine
        self._view = view
        self._in_turn = in_turn
        self._is_awake = False  # a tick is on its way
        self._is_untold = False  # `doing` is another one than what is shown
        self._taken_at = 0.0
        self._alarm: asyncio.Handle | None = None  # for the next look

    def close(self) -> None:
        self._engine.worker_thread.has_begun = lambda: None
        if self._alarm is not None:
            self._alarm.cancel()

    def look(self) -> None:
        """Look whether something is to be done, again and again until no job runs; the next one that begins wakes this.
        Not by a timer of Textual's, whose turns cost more than all of this."""
        thread = self._engine.worker_thread
        thread.has_begun = self._wake
        is_idle = not (thread.is_busy or self._engine.unseen or self._is_untold or self._is_awake)
        self._alarm = None if is_idle else asyncio.get_running_loop().call_later(self._pause, self.look)
        if not thread.is_busy:
            self.throttle.wake()
        is_late = self._host.clock() - self._taken_at >= KEEP
        has_news = thread.has_news
        is_wanted = (has_news or self._engine.unseen or self._is_untold) if self._is_due else (has_news and is_late)
        if is_wanted and not self._is_awake:
            self._is_awake = True
            self._in_turn(self._tick)

    def _wake(self) -> None:
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_soon(self.look)

    @property
    def _pause(self) -> float:
        until_kept = self._taken_at + KEEP - self._host.clock()
        return min(max(min(self.throttle.left, until_kept), 1 / RATE), PAUSE)

    @property
    def _is_due(self) -> bool:
        """Whether the screen may be drawn; when an answer has ended, the engine has nothing more to lose."""
        return self.throttle.is_due or self._engine.worker_thread.has_ended

    async def _tick(self) -> None:
        self._is_awake = False
        engine, is_due, entry = self._engine, self._is_due, self._engine.state.answering
        away = self._view.away
        if is_due:
            self.throttle.begin()
        items = engine.take()
        self._taken_at = self._host.clock()
        for item in items:
            if isinstance(item, Arrived):
                await self._tell_of(item)
        ended = [item for item in items if isinstance(item, Ended)]
        if not (is_due or ended) or not (items or engine.unseen or self._is_untold):
            return
        self._is_untold = False
        text, widget = engine.unseen, self._view.answer_of(entry)
        if widget is not None:
            engine.unseen = ""
            widget.wait("" if self.doing.words == "answering" else self.doing.words)
            await widget.feed(text)
        if ended and engine.refused is not None:
            await self._view.fail(engine.refused, is_load=True)
            self._host.say(sanitize(f"{engine.state.settings.name} loads again"))
        # While it is busy the next job goes on, as an answer that waited for its pair.
        if ended and not engine.worker_thread.is_busy:
            await self._end(entry, widget, ended[-1])
            if away:
                self._host.say(f"The answer in {away} is there · F8 opens it")
        self._view.show_figures(is_due=bool(text))

    async def _tell_of(self, item: Arrived) -> None:
        self._is_untold |= self.doing.observe(item.at, item.event)
        match item.event:
            case Loaded(threads=threads):
                self.throttle.budget = budget(threads)
                if self._engine.refused is None:  # else the card tells why another pair did not load
                    await self._view.drop_cards()
                self._engine.refused = None
                for line in self._engine.state.take_remarks():
                    await self._view.tell(line)
                self._view.call_after_refresh(prepare)  # else the first answer would wait for it
            case Started():
                self.throttle.wake()  # the messages are drawn, and the first word of the answer must not wait for it
            case Warned(message=message):
                await self._view.tell(message)

    async def _end(self, entry: Node | None, widget: Answered | None, item: Ended) -> None:
        self.doing.words = ""
        if widget is not None:
            await widget.finish()
            line = "" if widget.trace is None else remark(widget.trace.stats)
            if line:
                await self._view.tell(line)
        if item.error is not None:
            await self._view.fail(item.error, is_load=entry is None)
        self._view.show_figures()
        await self._view.go_on(None if entry is None else entry.finish)


class Budget(NamedTuple):
    """The limits of drawing: its share of one processor; the seconds that text may wait at most, and figures at least.
    The figures are a sixth of what a drawing costs, and no one reads thirty numbers at a glance."""

    share: float
    longest: float
    figures: float


ROOMY = Budget(0.15, 0.5, 0.25)  # a processor is left over
TIGHT = Budget(0.03, 0.8, 1.6)  # the engine uses them all


def budget(threads: int) -> Budget:
    # Not cpu_count: a container may have fewer than the machine.
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ROOMY if threads < processors else TIGHT


class RedrawThrottle:
    """Says when the next drawing is due. `clock` counts seconds, `used` those of this process on a processor."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._used = clock, used
        self._before = used()
        self._until = 0.0
        self.budget = ROOMY

    @property
    def left(self) -> float:
        """Seconds that the screen is still to rest; 0 or less if it has rested long enough."""
        return self._until - self._clock()

    @property
    def is_due(self) -> bool:
        return self.left <= 0

    def begin(self) -> None:
        """Note that a drawing begins; what was used since the last one is what that one has cost."""
        now, used = self._clock(), self._used()
        self._until = now + min(self.budget.longest, (used - self._before) / self.budget.share)
        self._before = used

    def wake(self) -> None:
        """Note that work begins after idling: what was used meanwhile was no drawing."""
        self._before, self._until = self._used(), 0.0
