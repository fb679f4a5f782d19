"""Drafting on while a verdict is under way (PEARL's post-verify, arXiv 2408.11850), where it pays.

The draft model reads on as if the whole draft stood. Where it does, the next draft takes fewer passes of it. No pass
is begun that would not be over when the verdict is expected, so that the verdict waits for one pass at most, and
seldom for that.
"""

from collections import deque
from collections.abc import Callable
from typing import ClassVar, Protocol

from localspec.engine.draft import Draft
from localspec.engine.protocols import Clock, RandomSource

RECENT = 8  # rounds by which the next wait is expected
QUARTER = 4  # of the waits of late so many times as many are longer than what is expected
FEW = 8  # rounds before it is judged whether it pays
QUIET = 8  # rounds, of which one is left alone: a verifier on the same processors is faster then
REST = 32  # rounds without, where it does not
NEW = 0.2  # weight of the newest round


class ReadsOn(Protocol):
    """A drafter whose model can read on."""

    def draft_on(self, draft: Draft, rng: RandomSource, goes_on: Callable[[], bool]) -> int:
        """Read on while `draft` is judged and `goes_on` says so before each pass; return the passes."""
        ...

    @property
    def n_ready(self) -> int: ...


class DraftingOn:
    """Uses the waits of one answer. `rng` is the drafts' source, of which nothing is taken."""

    is_on: ClassVar[bool] = True

    def __init__(self, reader: ReadsOn, rng: RandomSource, clock: Clock) -> None:
        self.passes = 0  # during the last wait
        self._reader = reader
        self._rng = rng
        self._clock = clock
        self._waits: deque[tuple[int, float]] = deque(maxlen=RECENT)  # nodes and seconds
        self._pass = 0.0  # seconds of a pass of the draft model
        self._began = self._quiet = 0.0  # when the round was asked, and when its verdict was looked for in vain last
        self._is_late = False  # whether the verdict was there when it was looked for last
        self._gain, self._loss = 0.0, 0.0  # seconds a round
        self._judging: dict[tuple[int, bool], float] = {}  # seconds in the verifier by nodes, and while reading on
        self._slower = 0.0  # seconds that the last verdict took longer than those without
        self._asked = self._rounds = self._rest = 0

    def wait(self, draft: Draft, has_come: Callable[[], bool]) -> None:
        """Let the draft model read on behind `draft`, which was sent just now, until the verdict is there or near."""
        self._began = self._quiet = last = self._clock()
        self.passes, self._is_late = 0, False
        if not self._waits or not self._pays():
            return
        until = self._began + self._expected(len(draft))

        def goes_on() -> bool:
            nonlocal last
            now = self._clock()
            if self.passes:
                self._pass = now - last if not self._pass else self._pass + NEW * (now - last - self._pass)
            if now + self._pass > until or has_come():
                return False
            last = self._quiet = now
            self.passes += 1
            return True

        self._reader.draft_on(draft, self._rng, goes_on)
        self._is_late = has_come()

    def verdict_came(self, draft: Draft, seconds: float) -> None:
        """Note that the verdict is there, which took the verifier so long; found by a look, it came after the last."""
        n, is_busy = len(draft), self.passes > 0
        self._waits.append((n, (self._quiet if self._is_late else self._clock()) - self._began))
        before = self._judging.get((n, is_busy), seconds)
        self._judging[n, is_busy] = before + NEW * (seconds - before)
        self._slower = seconds - self._judging.get((n, False), seconds)

    def judged(self) -> tuple[int, int]:
        """Return the passes of the last wait, and the tokens that can be drafted now without one: the pass is over."""
        n_ready = self._reader.n_ready
        if self.passes:
            self._rounds += 1
            self._gain += NEW * (self._pass * min(n_ready, self.passes) - self._gain)
            self._loss += NEW * (self._pass * self._is_late / 2 + self._slower - self._loss)
            if self._rounds >= FEW and self._gain < self._loss:
                self._rounds, self._rest = 0, REST
        return self.passes, n_ready

    def _pays(self) -> bool:
        self._asked += 1
        self._rest = max(self._rest - 1, 0)
        return self.is_on and not self._rest and self._asked % QUIET > 0

    def _expected(self, nodes: int) -> float:
        """Return the seconds that the verdict on so many nodes will take at least, by the last ones."""
        waits = sorted(seconds for n, seconds in self._waits if n >= nodes) or sorted(each for _, each in self._waits)
        return waits[len(waits) // QUARTER]
