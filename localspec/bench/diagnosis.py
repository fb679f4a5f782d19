"""Measures why speculation pays or not on a pair: times of passes, acceptance in several settings, a race.

Nothing is concluded here; `localspec doctor PAIR` does that. What an interruption left out is None, or not there.

Also here: a worker whose requests end in time. Several of them share some seconds, and what is too slow is cut there.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localspec.bench.answers import Answer, MeasuringWorker, SurveyReport, ask, survey
from localspec.bench.race import Race, race
from localspec.bench.statistics import ENOUGH
from localspec.bench.suites import Prompt, choose, load_suite
from localspec.control.timing import WIDTHS
from localspec.engine.events import Event, Finished
from localspec.errors import IncompatibleError
from localspec.prompt.chat_template import renders_alike
from localspec.settings.jobs import Generate, LoadedJob, SurveyRequest
from localspec.settings.request import Message, Request, Sampling, Speculation

CUT = "timeout"  # the reason of an answer that was cut: what it has counts
TEMPERATURE = 0.8
CHAIN = Speculation(method="draft-model", k=4, verify="token")  # `token`: acceptance as the papers define it
CHAIN_ROWS = 5  # widths of passes that are timed whatever it takes: those that short chains need
PROMPTS = 3
ROUNDS = ENOUGH  # of the race: fewer decide nothing
FEWEST, MOST = 16, 96  # tokens of an answer
MIN_PROMPT = 48  # tokens of a prompt: of a context that holds fewer nothing is to be learned
TIMING, ACCEPTING, RACING = 0.15, 0.3, 0.4  # shares of the time that are planned
ACCEPTANCE_ENDS, RACE_ENDS = 0.55, 0.97  # of the time: what is not over by then is cut
CHARACTERS = 4  # of a prompt's token
CHAIN_PASSES = 24  # passes of one row that timing `CHAIN_ROWS` widths takes the time of, or more
ONE_ROW = SurveyRequest(seconds=0.2, sizes=(1,), is_deep=False)


@dataclass(frozen=True, slots=True)
class Tried:
    """Acceptance in one setting: of the `seen` draft tokens that the verifier looked at, `kept` were accepted.

    `by_prompt` has both numbers of each prompt, where they are known.
    """

    kept: int
    seen: int
    n_prompts: int
    by_prompt: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(answers: Sequence[Answer]) -> Tried:
        """Add up answers, one a prompt."""
        found = tuple((sum(one.stats.accepted_per_pos), sum(one.stats.reached)) for one in answers)
        return Tried(sum(kept for kept, _ in found), sum(seen for _, seen in found), len(found), found)

    @property
    def share(self) -> float:
        return self.kept / self.seen if self.seen else 0.0

    @property
    def error(self) -> float:
        """One standard error of the share: of independent tokens, or, if prompts differ by more, of prompts."""
        of_tokens = max(self.share * (1.0 - self.share), 1.0 / max(self.seen, 1)) / max(self.seen, 1)
        n = len(self.by_prompt)
        if n < 2:
            return math.sqrt(of_tokens)
        apart = sum((kept - self.share * seen) ** 2 for kept, seen in self.by_prompt)
        return math.sqrt(max(of_tokens, apart * n / (n - 1) / max(self.seen, 1) ** 2))

    def differs(self, other: Tried) -> bool:
        """Whether the two differ by more than two standard errors."""
        return abs(self.share - other.share) > 2.0 * math.hypot(self.error, other.error)

    def to_wire(self) -> dict[str, Any]:
        return {"accepted": self.kept, "judged": self.seen, "share": self.share, "prompts": self.n_prompts}


@dataclass(slots=True)
class Evidence:
    """Everything that was measured. `tried` by setting: greedy, sampled, draft template (all but one at T=0).

    `refused` says why a setting could not be tried. `is_cut`: the time did not suffice for every answer. `began_ms` and
    `ended_ms` are the same pass of one row, first of all and last of all.
    """

    first: SurveyReport | None = None
    tried: dict[str, Tried] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False
    race: Race | None = None
    began_ms: float | None = None
    ended_ms: float | None = None
    major_faults: int = 0
    swapped_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Templates:
    """The chat templates of both files, None where a model has none."""

    target: str | None
    draft: str | None


@dataclass(frozen=True, slots=True)
class DiagnosisPlan:
    """The requests: the prompts, and the tokens of an answer, for acceptance and in the race."""

    prompts: tuple[Prompt, ...]
    acceptance: int
    racing: int


class Examination:
    """Measures a pair that is loaded, within `seconds` by the clock: between passes and answers it looks at it."""

    def __init__(
        self,
        worker: MeasuringWorker,
        templates: Templates,
        *,
        has_draft: bool,
        n_ctx: int,
        seconds: float,
        is_stopped: Callable[[], bool],
        on_progress: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = TimeLimit(worker, clock)
        self._templates = templates
        self._has_draft = has_draft
        self._n_ctx = n_ctx
        self._seconds = seconds
        self._is_stopped = is_stopped
        self._on_progress = on_progress
        self._clock = clock
        self._began = clock()

    def run(self) -> Evidence:
        """Return what could be measured before a stop."""
        found = Evidence()
        self._began = self._clock()
        found.began_ms = self._one_row()
        is_slow = found.began_ms is None or CHAIN_PASSES * found.began_ms / 1e3 > 2 * TIMING * self._seconds
        least = WIDTHS if is_slow else CHAIN_ROWS
        found.first = self._survey(SurveyRequest(seconds=TIMING * self._seconds, least=least))
        if found.first is None:
            return found
        found.major_faults = int(found.first.content["major_faults"])
        found.swapped_bytes = found.first.content["swapped_bytes"]
        plan = self._size(found.first)
        if found.first.content["can_rollback"] and found.first.content["draft_can_rollback"]:
            self._try_settings(found, plan.prompts, plan.acceptance)
        found.race = self._race(plan.prompts[0], plan.racing)
        found.is_cut = found.is_cut or self._worker.n_cut > 0 or self._worker.is_over
        found.ended_ms = self._one_row()
        return found

    def _race(self, prompt: Prompt, n_tokens: int) -> Race | None:
        """Race `auto` in the time that is left; None where no round was over by then."""
        self._share(RACE_ENDS, 1)
        if self._is_stopped() or self._worker.is_over:
            return None
        if n_tokens == MOST:  # of a quick pair a share of the time is too short for what `auto` measures at first
            ask(self._worker, Request(prompt="The", max_tokens=1))
        self._share(RACE_ENDS, 2 + 2 * ROUNDS)
        request = self._request(prompt, n_tokens, Sampling(temperature=TEMPERATURE))
        return race(
            self._worker,
            replace(request, speculation=Speculation()),
            ROUNDS,
            lambda: self._is_stopped() or self._worker.is_over,
            lambda what, _answer: self._on_progress(f"race, {what}"),
            is_seeded=False,  # a seed would have `auto` verify by another rule than people run
        )

    def _share(self, part: float, requests: int) -> None:
        """Give the next requests the time up to this part of the whole."""
        self._worker.share(self._began + part * self._seconds, requests)

    def _one_row(self) -> float | None:
        """Return the milliseconds of a pass of one row, timed alone; None after a stop."""
        found = self._survey(ONE_ROW)
        return None if found is None else dict(found.row_costs)[1]

    def _survey(self, asked: SurveyRequest) -> SurveyReport | None:
        if self._is_stopped():
            return None
        return survey(
            self._worker, asked, lambda what, share: self._on_progress(f"timing passes of the {what} {share:.0%}")
        )

    def _size(self, first: SurveyReport) -> DiagnosisPlan:
        """Return the prompts, and tokens of an answer, that the time has room for: of a slow pair one short prompt."""
        costs = dict(first.row_costs)
        widest = max(costs)
        settings = 2 + bool(self._templates.target) if self._has_draft else 0
        pass_s = (costs.get(CHAIN_ROWS, 2 * costs[1]) + 4 * first.draft_ms) / 1e3  # of a chain: about two tokens
        suite = load_suite("spec-bench" if self._templates.target else "stories")
        several = choose(suite, PROMPTS).prompts
        shortest = (min(suite.prompts, key=lambda one: len(one.text)),)
        acceptance, racing = 0, 0
        for prompts in (several, shortest):
            reading = sum(len(one.text) for one in prompts) / len(prompts) / CHARACTERS * costs[widest] / widest / 1e3
            n = max(settings * len(prompts), 1)
            acceptance = int((ACCEPTING * self._seconds / n - reading) / (pass_s / 2))
            racing = int((RACING * self._seconds / (2 + 2 * ROUNDS) - reading) / (costs[1] / 1e3))
            if min(acceptance, racing) >= FEWEST:
                break
        return DiagnosisPlan(prompts, min(max(acceptance, FEWEST), MOST), min(max(racing, FEWEST), MOST))

    def _request(self, prompt: Prompt, n_tokens: int, sampling: Sampling) -> Request:
        """Return the request as a person would make it, through the chat template if there is one.

        A prompt that leaves a short context no room for the answer is cut, down to `MIN_PROMPT` tokens of it.
        """
        is_chat = bool(self._templates.target)
        return Request(
            messages=(Message("user", prompt.text),) if is_chat else (),
            prompt=None if is_chat else prompt.text,
            prompt_tokens=max(self._n_ctx - n_tokens, self._n_ctx // 2, MIN_PROMPT),
            max_tokens=n_tokens,
            sampling=sampling,
            speculation=CHAIN,
        )

    def _try_settings(self, found: Evidence, prompts: tuple[Prompt, ...], n_tokens: int) -> None:
        greedy = Sampling(temperature=0.0)
        settings: dict[str, Callable[[Prompt, int], Request]] = {
            "greedy": lambda prompt, _: self._request(prompt, n_tokens, greedy),
            "sampled": lambda prompt, i: self._request(prompt, n_tokens, Sampling(temperature=TEMPERATURE, seed=i + 1)),
        }
        templates = self._templates
        if templates.target and templates.draft and not renders_alike(templates.target, templates.draft):
            settings["draft template"] = lambda prompt, _: replace(
                self._request(prompt, n_tokens, greedy), template=templates.draft
            )
        self._share(ACCEPTANCE_ENDS, len(settings) * len(prompts))
        for name, request in settings.items():
            answers: list[Answer] = []
            try:
                for i, prompt in enumerate(prompts):
                    self._on_progress(f"acceptance, {name}, prompt {i + 1} of {len(prompts)}")
                    if self._is_stopped():
                        return
                    if self._worker.is_over:
                        found.is_cut = True
                        break
                    answers.append(ask(self._worker, request(prompt, i)))
            except IncompatibleError as error:  # the draft's template may be beyond the sandbox
                found.refused[name] = error.message
                continue
            if answers:
                found.tried[name] = Tried.of(answers)
        found.is_cut = found.is_cut or self._worker.n_cut > 0


class TimeLimit:
    """Passes requests on to a worker. `share` sets the time; each request may take its part of what is left of it."""

    def __init__(self, worker: MeasuringWorker, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker = worker
        self._clock = clock
        self._until = float("inf")
        self._requests = 1
        self.n_cut = 0

    def share(self, until: float, requests: int) -> None:
        """Let the next `requests` end by the time `until` on the clock."""
        self._until, self._requests = until, requests

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self._clock() >= self._until

    def start(self, job: LoadedJob) -> Iterator[Event]:
        """Ask the pair; an answer that is cut ends with the reason `CUT`. Timing passes has its own budget."""
        return self._limited(job) if isinstance(job, Generate) else self._worker.start(job)

    def cancel(self) -> None:
        """Stop the request that is running."""
        self._worker.cancel()

    def _limited(self, job: Generate) -> Iterator[Event]:
        part = max(0.0, (self._until - self._clock()) / max(self._requests, 1))
        self._requests -= 1
        end, is_late = self._clock() + part, False
        # No event comes while a prompt is read, so the clock is not enough.
        timer = threading.Timer(min(part, threading.TIMEOUT_MAX), self._worker.cancel)
        timer.daemon = True
        timer.start()
        try:
            for event in self._worker.start(job):
                if isinstance(event, Finished) and event.reason == "interrupted" and self._clock() >= end:
                    self.n_cut += 1
                    event = replace(event, reason=CUT)
                yield event
                if not is_late and self._clock() >= end:
                    is_late = True
                    self._worker.cancel()
        finally:
            timer.cancel()
            timer.join()  # what it cancels must not be the next request
