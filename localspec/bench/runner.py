"""Runs the cells of a schedule on a worker, one after another, and keeps what each came to.

Every answer starts cold (`Request.cold`): no prompt lies in a cache, no drafter remembers the same answer from the
method before. Each contender first gives one short answer that is not counted.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from localspec.bench.answers import MeasuringWorker
from localspec.bench.contenders import PLAIN, Contender
from localspec.bench.measurement import Cell, Measurement, measured, schedule
from localspec.bench.suites import Suite
from localspec.errors import IncompatibleError, NotFoundError, PromptTooLongError, ResourceError, UsageError
from localspec.settings.jobs import Generate
from localspec.settings.request import Message, Request, Sampling
from localspec.ui.stats import Stats

WARM_UP = 8  # tokens
REFUSALS = (IncompatibleError, UsageError, NotFoundError, ResourceError)  # of an engine that goes on


@dataclass(frozen=True, slots=True)
class BenchJob:
    """The measurements to make. `prompt_tokens` cuts longer prompts; `sampling` holds all but temperature and seed.

    With a `schema` all answers are JSON of it.
    """

    suite: Suite
    contenders: tuple[Contender, ...]
    temperatures: tuple[float, ...]
    repeats: int
    max_tokens: int
    prompt_tokens: int | None = None
    seed: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    schema: str | None = None

    def cells(self) -> tuple[Cell, ...]:
        names = [contender.name for contender in self.contenders]
        return schedule(len(self.suite.prompts), self.temperatures, names, self.repeats)

    def request(self, cell: Cell) -> Request:
        """Return the request of a cell; prompt and repeat decide the seed, so that all contenders have the same."""
        contender = next(each for each in self.contenders if each.name == cell.contender)
        text = self.suite.prompts[cell.prompt].text
        draft = contender.draft_temperature
        sampling = replace(
            self.sampling,
            temperature=cell.temperature,
            draft_temperature=self.sampling.draft_temperature if draft is None else draft,
            seed=None if self.seed is None else (self.seed + cell.prompt * self.repeats + cell.repeat) % 2**64,
        )
        return Request(
            messages=(Message("user", text),) if self.suite.is_chat else (),
            prompt=None if self.suite.is_chat else text,
            max_tokens=self.max_tokens,
            sampling=sampling,
            speculation=contender.speculation,
            cold=True,
            prompt_tokens=self.prompt_tokens,
            schema=self.schema,
        )


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """The progress: `done` of `total` answers, `left_s` seconds to go, None before that can be told."""

    done: int
    total: int
    left_s: float | None
    cell: Cell


class Runner:
    """Measures a job, as far as it can be.

    `skipped` are prompts that do not fit the context, by number, and `refused` contenders that this pair cannot give,
    by name, each with the reason.
    """

    def __init__(self, worker: MeasuringWorker, job: BenchJob) -> None:
        self._worker = worker
        self._job = job
        self.skipped: dict[int, str] = {}
        self.refused: dict[str, str] = {}
        self.warnings: list[str] = []

    def run(
        self, is_stopped: Callable[[], bool], on_progress: Callable[[BenchProgress], None]
    ) -> Iterator[Measurement]:
        """Yield a measurement for every cell, until all are there or a stop was asked.

        Raises PromptTooLongError if no prompt fits, and what refused plain decoding if not even that is possible.
        """
        cells = self._job.cells()
        began, warm = time.monotonic(), set[str]()
        for done, cell in enumerate(cells):
            if self._is_left_out(cell):
                continue
            elapsed = time.monotonic() - began
            left = elapsed / done * (len(cells) - done) if done else None
            on_progress(BenchProgress(done, len(cells), left, cell))
            if cell.contender not in warm:
                self._warm_up(cell)
                if not self._is_left_out(cell):
                    warm.add(cell.contender)
            measurement = None if is_stopped() or self._is_left_out(cell) else self._measure(cell)
            if is_stopped():
                return
            if measurement is not None:
                yield measurement

    def _is_left_out(self, cell: Cell) -> bool:
        return cell.prompt in self.skipped or cell.contender in self.refused

    def _warm_up(self, cell: Cell) -> None:
        request = self._job.request(cell)
        self._answer(cell, replace(request, max_tokens=min(WARM_UP, self._job.max_tokens)))

    def _measure(self, cell: Cell) -> Measurement | None:
        stats = self._answer(cell, self._job.request(cell))
        if stats is None or stats.finished is None or stats.prefilled is None:
            return None
        if stats.finished.reason == "interrupted":
            return None
        return measured(cell, stats)

    def _answer(self, cell: Cell, request: Request) -> Stats | None:
        """Return the account of an answer, None where the prompt does not fit or the pair cannot give it."""
        stats = Stats()
        try:
            for event in self._worker.start(Generate(request)):
                stats.observe(event)
        except PromptTooLongError as error:
            self.skipped[cell.prompt] = error.message
            if len(self.skipped) == len(self._job.suite.prompts):
                raise
            return None
        except REFUSALS as error:  # one method that a pair cannot do is no reason to lose the others
            if cell.contender == PLAIN:
                raise
            self.refused[cell.contender] = error.message
            return None
        for warned in stats.warnings:
            if warned.message not in self.warnings:
                self.warnings.append(warned.message)
        return stats
