"""A race on its way: what has come of each side, and what the other side had at the same time.

The two are never run at once, for they would take time from each other. What ran first is recorded with the time of
every pass, by the engine's clock, and is the ghost that the second is seen to run against. Nothing of Textual is here.

The engine's thread writes it and the screen's reads it: lists only grow, and each number is replaced at once.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

from localspec.bench.answers import Answer
from localspec.bench.rounds import Race, race
from localspec.engine.events import Event
from localspec.errors import LocalspecError
from localspec.settings.request import Request
from localspec.ui.stats import Stats
from localspec.worker.client import Worker


@dataclass(frozen=True, slots=True)
class Moment:
    """`seconds` after its request one side had `tokens`, whose text has `characters`."""

    seconds: float
    tokens: int
    characters: int


@dataclass(slots=True)
class RunningAnswer:
    answer: Answer
    moments: list[Moment] = field(default_factory=lambda: [Moment(0.0, 0, 0)])
    text: str = ""
    is_over: bool = False

    def add(self) -> None:
        stats = self.answer.stats
        self.text = stats.text
        self.is_over = stats.finished is not None
        self.moments.append(Moment(_elapsed(stats), len(self.answer.tokens), len(self.text)))

    def at(self, seconds: float) -> Moment:
        return self.moments[bisect.bisect_right(self.moments, seconds, key=lambda moment: moment.seconds) - 1]

    @property
    def last(self) -> Moment:
        return self.moments[-1]


@dataclass(slots=True)
class Running:
    """One race. `lanes` are those of the round that runs: True plain, False speculative."""

    request: Request
    repeats: int
    doing: str = ""
    lanes: dict[bool, RunningAnswer] = field(default_factory=dict)
    found: Race | None = None
    error: LocalspecError | None = None
    is_over: bool = False
    is_stopped: bool = False

    def job(self, worker: Worker) -> Iterator[Event]:
        """Run it; yields nothing, for the lanes hold what there is to show."""
        self.found = race(worker, self.request, self.repeats, lambda: self.is_stopped, self._progress)
        yield from ()

    def stop(self) -> None:
        self.is_stopped = True

    def end(self, error: LocalspecError | None) -> None:
        self.error, self.is_over = error, True

    @property
    def live(self) -> bool | None:
        return next((side for side, lane in self.lanes.items() if not (lane.is_over or self.is_over)), None)

    def seen(self, side: bool) -> Moment:
        """Return what is to be seen of a side: all of it, or, as a ghost, what it had when the other was there."""
        lane, live = self.lanes[side], self.live
        if live is None or live == side or not lane.is_over:
            return lane.last
        return lane.at(self.lanes[live].last.seconds)

    def _progress(self, what: str, answer: Answer | None) -> None:
        self.doing = what
        if answer is None:
            return
        side = what.endswith("plain")
        lane = self.lanes.get(side)
        if lane is None or lane.answer is not answer:
            if len(self.lanes) == 2:  # another round
                self.lanes = {}
            lane = RunningAnswer(answer)
            self.lanes = {**self.lanes, side: lane}
        lane.add()


def _elapsed(stats: Stats) -> float:
    if stats.finished is not None:
        return stats.finished.wall_ms / 1e3
    return 0.0 if stats.prefilled is None else (stats.prefilled.prepare_ms + stats.prefilled.ms + stats.decode_ms) / 1e3
