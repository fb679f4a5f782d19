"""Plain decoding and speculation on one prompt, one after the other: how much faster, and whether it is one text."""

import dataclasses
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from localspec.bench.answers import PLAIN, Answer, MeasuringWorker, Same, ask, compare_answers
from localspec.bench.statistics import ENOUGH, Interval, median_interval, percentile
from localspec.engine.events import Started
from localspec.settings.request import Request
from localspec.settings.sizes import counted

TOKENS = 128  # of an answer, where the settings name no number
WARM_UP = 8  # tokens
EVEN = 0.02  # an interval as near to 1 shows that there is no difference
APART = 1.3  # times its lower end: with an upper end above that an interval has no middle worth telling
SCHEMA = "localspec.race/1"


@dataclass(frozen=True, slots=True)
class Round:
    """Both answers, with one seed or with none asked for; `same` is None where their texts are not to be compared.

    Nor is there any where they differ and the target was not asked to the end why (`is_cut`).
    """

    plain: Answer
    other: Answer
    same: Same | None
    is_cut: bool = False

    @property
    def ratio(self) -> float | None:
        """Speed of decoding over plain decoding's, None if either ended with its first token."""
        ours, theirs = self.other.stats.tok_per_s, self.plain.stats.tok_per_s
        return ours / theirs if ours and theirs else None


@dataclass(frozen=True, slots=True)
class Race:
    """Every round, and what they come to.

    Where the target is on another machine, `alone` has the answers of the draft model without it, one for each round;
    () where nothing is drafted by a model. None where the target is here.
    """

    rounds: tuple[Round, ...]
    alone: tuple[Answer, ...] | None = None

    @property
    def sides(self) -> dict[str, tuple[Answer, ...]]:
        """The answers of all rounds by who gave them, in the order in which they are told."""
        plain, other = tuple(lap.plain for lap in self.rounds), tuple(lap.other for lap in self.rounds)
        if self.alone is None:
            return {"plain": plain, "speculative": other}
        return {**({"edge alone": self.alone} if self.alone else {}), "verifier alone": plain, "both": other}

    @property
    def ratios(self) -> list[float]:
        return [lap.ratio for lap in self.rounds if lap.ratio is not None]

    @property
    def ratio(self) -> Interval | None:
        """The median of the rounds' ratios, None where nothing was drafted: then both sides decoded plainly."""
        return median_interval(self.ratios) if self.drafted else None

    @property
    def drafted(self) -> int:
        return sum(lap.other.stats.drafted for lap in self.rounds)

    @property
    def verify(self) -> str:
        """The rule that judged what was drafted, "" if nothing was run."""
        started = self._started
        return "" if started is None else started.verify

    @property
    def is_lossless(self) -> bool:
        started = self._started
        return started is None or started.is_lossless

    @property
    def _started(self) -> Started | None:
        return self.rounds[0].other.stats.started if self.rounds else None

    @property
    def same(self) -> Same | None:
        """The comparison of the texts of the first round that differs without a tie, else of one that differs."""
        compared = [lap.same for lap in self.rounds if lap.same is not None]
        unexplained = [same for same in compared if not same.is_explained]
        different = [same for same in compared if not same.is_equal]
        return next(iter([*unexplained, *different, *compared]), None)

    def verdict(self, six: str) -> tuple[str, str]:
        """Return two sentences: how much faster it was, and whether the text is the same.

        `six` is what to type for six rounds.
        """
        ratio, same = self.ratio, self.same
        if not self.drafted:
            finished = self.rounds[-1].other.stats.finished
            why = finished.verdict if finished is not None else ""
            speed = f"there is no speedup, for {why or 'nothing was guessed'}"
        elif ratio is None:
            speed = "the answers are too short to be timed"
        else:
            speed = judged(ratio, six)
        if any(lap.is_cut for lap in self.rounds) and (same is None or same.is_explained):
            return speed, "the outputs differ; the target was not asked to the end whether a tie explains it"
        if same is None:
            exact = "keeps the distribution, --verify coupled the text too"
            why = exact if self.is_lossless else "changes the distribution"
            return speed, f"texts are not compared: this --verify {why}"
        return speed, same.spelt()

    def to_wire(self) -> dict[str, Any]:
        first, alone = self.rounds[0], self.alone or ()
        return {
            "schema": SCHEMA,
            "speedup": None if self.ratio is None else dataclasses.asdict(self.ratio),
            "output": None if self.same is None else self.same.to_wire(),
            "text": first.other.stats.text,
            "plain_text": first.plain.stats.text,
            "sides": {name: spread(answers) for name, answers in self.sides.items()},
            "rounds": [
                {
                    "plain": lap.plain.to_wire(),
                    "speculative": lap.other.to_wire(),
                    "speedup": lap.ratio if lap.other.stats.drafted else None,
                    "output": None if lap.same is None else lap.same.to_wire(),
                    "edge_alone": alone[number].to_wire() if number < len(alone) else None,
                }
                for number, lap in enumerate(self.rounds)
            ],
        }


def spread(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the median rate of answers, in tokens a second, and two percentiles of their times, in milliseconds."""
    rates = [each.stats.tok_per_s for each in answers if each.stats.tok_per_s is not None]
    ends = [each.stats.finished for each in answers if each.stats.finished is not None]
    times = {"ttft_ms": [each.ttft_ms for each in ends], "total_ms": [each.wall_ms for each in ends]}
    both = {name: {"p50": percentile(of, 0.5), "p95": percentile(of, 0.95)} for name, of in times.items()}
    return {"n": len(answers), "tok_per_s": percentile(rates, 0.5), **both}


def agreed(ratio: Interval) -> str:
    """Return what the rounds of a race agree on: that speculation "pays", "does not pay", or neither; "" for nothing.

    The interval of their median decides. That is a sign test at 5 %, however far a round is from 1: six to eight rounds
    must all agree, nine to eleven may have one against them. Fewer than six never decide.
    """
    low, high = ratio.low, ratio.high
    if low is None or high is None:
        return ""
    if low >= 1.0 - EVEN and high <= 1.0 + EVEN:
        return "neither pays nor costs"
    return "pays" if low > 1.0 else "does not pay" if high < 1.0 else ""


def factor(ratio: Interval) -> float | None:
    """Return the median where the rounds decide and lie near each other, as on a machine that keeps its pace."""
    is_near = ratio.low is not None and ratio.high is not None and ratio.high <= APART * ratio.low
    return ratio.median if is_near and agreed(ratio) else None


def judged(ratio: Interval, six: str) -> str:
    """Return in words what the rounds of a race come to, with a factor if they have one; `six` as in `Race.verdict`."""
    rounds, verdict = counted(ratio.n, "round"), agreed(ratio)
    if factor(ratio) is not None:
        return f"speculation {verdict} here: {ratio.spelt()}× plain, {rounds}"
    if verdict:
        between = f"{ratio.low:.2f} to {ratio.high:.2f}× plain"
        return f"speculation {verdict} here: {between}, {rounds}; they lie too far apart for one factor"
    more = f"; {ENOUGH} that agree do: {six}" if ratio.n < ENOUGH else ", for they do not agree"
    return f"{rounds} {'does' if ratio.n == 1 else 'do'} not show whether speculation pays{more}"


def race(
    worker: MeasuringWorker,
    request: Request,
    repeats: int,
    is_stopped: Callable[[], bool],
    on_progress: Callable[[str, Answer | None], None],
    *,
    is_seeded: bool = True,
) -> Race | None:
    """Run `repeats` rounds of `request` and its plain twin, each round with a seed of its own, the order turned.

    Plain goes first in the first round. Returns the rounds that were finished, None for none. Without `is_seeded` no
    seed is asked for: `auto` then verifies as for people who give none, and drawn texts are not compared.
    """
    seed = secrets.randbits(32) if request.sampling.seed is None else request.sampling.seed
    on_progress("warming up", None)
    for speculation in (PLAIN, request.speculation):
        if not is_stopped():
            ask(worker, replace(request, speculation=speculation, max_tokens=WARM_UP))
    rounds: list[Round] = []
    for number in range(repeats):
        sampling = replace(request.sampling, seed=(seed + number) % 2**64 if is_seeded else None)
        answers: dict[bool, Answer] = {}
        for is_plain in (True, False) if number % 2 == 0 else (False, True):
            if is_stopped():
                break
            name = f"{number + 1}/{repeats} {'plain' if is_plain else 'speculative'}"
            speculation = PLAIN if is_plain else request.speculation
            asked = replace(request, sampling=sampling, speculation=speculation)
            answers[is_plain] = ask(worker, asked, partial(on_progress, name))
        if len(answers) < 2 or any(lap.is_interrupted or lap.stats.started is None for lap in answers.values()):
            break
        answer = _round(worker, answers[True], answers[False])
        if is_stopped() and answer.same is not None and answer.same.fork is None and not answer.same.is_equal:
            answer = replace(answer, same=None, is_cut=True)
        rounds.append(answer)
    return Race(tuple(rounds)) if rounds else None


def answers_alone(
    worker: MeasuringWorker,
    raced: Race,
    is_stopped: Callable[[], bool],
    on_progress: Callable[[str, Answer | None], None],
) -> Race:
    """Return the race with the answers of the model that `worker` has now, to the plain request of each round."""
    requests = [lap.plain.request for lap in raced.rounds]
    on_progress("warming up", None)
    ask(worker, replace(requests[0], max_tokens=WARM_UP))
    answers: list[Answer] = []
    for number, request in enumerate(requests):
        if is_stopped():
            break
        answer = ask(worker, request, partial(on_progress, f"{number + 1}/{len(requests)} edge alone"))
        if not answer.is_interrupted and answer.stats.started is not None:
            answers.append(answer)
    return replace(raced, alone=tuple(answers))


def _round(worker: MeasuringWorker, plain: Answer, other: Answer) -> Round:
    started = other.stats.started
    assert started is not None
    is_one_dist = started.verify == "coupled" or started.k == 0
    is_seeded = plain.request.sampling.seed is not None
    is_comparable = plain.request.sampling.temperature == 0.0 or (is_seeded and is_one_dist)
    return Round(plain, other, compare_answers(worker, plain, other) if is_comparable else None)
