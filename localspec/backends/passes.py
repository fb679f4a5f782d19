"""Answers side by side: each runs in a greenlet, and stands still where it asks for a pass.

So the loop, the drafters and the rules are those of an answer alone, and of one thread; a generator would have to reach
through all of them. An answer that runs alone asks nobody.

A round: drafting passes first, so that all who write stand at the target's; these in one pass; then one chunk of the
prompt that has waited longest, as wide as SLICE allows while others write.

Invariant: when a pass begins, every answer stands still in an ask or a pause, so all rows of the pass before are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from localspec.engine.protocols import Cancel

SLICE = 0.5  # seconds of a pass that reads a prompt while others write
NARROW = 32  # tokens: narrower ones read much slower
MAX_ROWS = 128  # rows of a pass of several lanes; each may have logits


class Asking(Protocol):
    """A lane, as the passes see it: `n_rows` are those of the pass that it asks for."""

    @property
    def n_rows(self) -> int: ...

    @property
    def group(self) -> Group | None:
        """What decodes it together with others, None where nothing can."""

    def decode(self, is_stopped: Cancel | None) -> int:
        """Do its pass alone; return llama.cpp's code."""


class Group(Protocol):
    """Lanes that can be in one pass."""

    def decode(self, lanes: Sequence[Any], is_stopped: Cancel | None) -> int:
        """Do one pass for several of them; return llama.cpp's code."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The pass that a lane wants next; `is_prompt`: a chunk of a prompt, which may take long."""

    lane: Asking
    is_stopped: Cancel | None
    is_prompt: bool


class _Answer:
    """An answer under way. It stands at `ask`; without one it goes on in the next round with the `code` of its pass."""

    def __init__(self, greenlet: Any) -> None:
        self.greenlet = greenlet
        self.ask: Ask | None = None
        self.code = 0
        self.is_paused = False
        self.served = 0  # the round of its last pass

    def go_on(self) -> None:
        self.ask = self.greenlet.switch(self.code)
        self.is_paused = self.ask is None

    def went(self, code: int, served: int) -> None:
        self.ask, self.code, self.served = None, code, served


class Passes:
    """The answers that run, and the passes that they ask for."""

    def __init__(self) -> None:
        from greenlet import getcurrent, greenlet  # late: an answer alone needs none

        self._current, self._greenlet = getcurrent, greenlet
        self._answers: list[_Answer] = []
        self._rounds = 0
        self._row_seconds = 0.0  # of reading a prompt
        self._is_held = False  # an answer waits until it is alone
        self._before: Callable[[], None]  # of the round

    @property
    def n_running(self) -> int:
        return len(self._answers)

    def n_beside(self) -> int:
        """Return how many answers write at the moment, but for the one that asks: others that read are left out."""
        own = self._current()
        asks = [answer.ask for answer in self._answers if answer.greenlet is not own]
        return sum(ask is None or not ask.is_prompt for ask in asks)

    def start(self, work: Callable[[], None]) -> None:
        """Begin an answer: `work` runs within the rounds to come."""
        self._answers.append(_Answer(self._greenlet(lambda _: work())))

    def round(self, before: Callable[[], None] = lambda: None) -> None:
        """Let every answer go on to its next pass, and do the passes that are due, each after a call of `before`."""
        self._rounds += 1
        self._before = before
        paused = [answer for answer in self._answers if answer.is_paused]
        self._go_on()
        for answer in paused:  # all rows are read
            self._go_on_with(answer)
        asking = [(answer, answer.ask) for answer in self._answers if answer.ask is not None]
        writing = [(answer, ask) for answer, ask in asking if not ask.is_prompt]
        alone = [each for each in writing if each[1].lane.group is None]
        together = [each for each in writing if each[1].lane.group is not None]
        for each in alone:
            self._serve([each])
        if alone and together:
            return  # those who draft come to the pass of the others
        while together:
            n = _fitting([ask.lane.n_rows for _, ask in together])
            self._serve(together[:n])
            together = together[n:]
            self._go_on()
        prompts = [(answer, ask) for answer, ask in asking if ask.is_prompt]
        if prompts:
            self._go_on()
            self._serve([min(prompts, key=lambda each: each[0].served)])

    def ask(self, lane: Asking, is_stopped: Cancel | None, *, is_prompt: bool) -> int:
        """Have a lane's pass done; return llama.cpp's code. Others may be in the same one, or come before."""
        hub = self._current().parent
        if hub is None:  # no answer runs: a model is loaded or measured
            return lane.decode(is_stopped)
        code: int = hub.switch(Ask(lane, is_stopped, is_prompt))
        return code

    def pause(self) -> None:
        """Let all others read their rows, and come to their next pass."""
        hub = self._current().parent
        if hub is not None:
            hub.switch(None)

    def wait_alone(self) -> bool:
        """Wait until no other answer runs; False, at once, where another one waits for that already."""
        if self._is_held:
            return False
        self._is_held = True
        try:
            while len(self._answers) > 1:
                self.pause()
        finally:
            self._is_held = False
        return True

    def chunk(self, most: int) -> int:
        """Return how many tokens of a prompt an answer may read at once."""
        if not self.n_beside() or not self._row_seconds:
            return most
        return max(NARROW, min(most, int(SLICE / self._row_seconds) // NARROW * NARROW))

    def _go_on(self) -> None:
        """Let those go on whose pass is over, and those that begin."""
        for answer in [each for each in self._answers if each.ask is None and not each.is_paused]:
            self._go_on_with(answer)

    def _go_on_with(self, answer: _Answer) -> None:
        try:
            answer.go_on()
        finally:
            if answer.greenlet.dead:
                self._answers.remove(answer)

    def _serve(self, asking: Sequence[tuple[_Answer, Ask]]) -> None:
        self._before()
        asks, began = [ask for _, ask in asking], time.perf_counter()
        first, group = asks[0], asks[0].lane.group
        if len(asks) == 1 or group is None:
            code = first.lane.decode(first.is_stopped)
        else:
            stops = [ask.is_stopped for ask in asks if ask.is_stopped is not None]
            is_stopped = (lambda: all(stop() for stop in stops)) if len(stops) == len(asks) else None
            code = group.decode([ask.lane for ask in asks], is_stopped)
        n = first.lane.n_rows
        if first.is_prompt and n >= NARROW and code == 0:
            self._row_seconds = (time.perf_counter() - began) / n
        for answer, _ in asking:
            answer.went(code, self._rounds)


def _fitting(rows: Sequence[int]) -> int:
    """Return how many lanes with so many rows, from the first on, one pass has room for: at least one."""
    total = 0
    for n, own in enumerate(rows):
        total += own
        if n and total > MAX_ROWS:
            return n
    return len(rows)
