"""A doctor ends within its seconds, however slow the pair is: what is too slow is cut, and said to be."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from localspec.bench.answers import ask
from localspec.bench.diagnosis import CUT, Evidence, Examination, Templates, TimeLimit
from localspec.engine.events import Committed, Event, Finished, Inspected, Piece, Prefilled, Started, StepMs
from localspec.errors import WorkerDiedError
from localspec.settings.jobs import Generate, LoadedJob, SurveyRequest
from localspec.settings.request import Request


@dataclass
class SlowWorker:
    """A worker on a clock of its own, which moves by `prompt` and `token` seconds, and by a survey's budget."""

    prompt: float
    token: float
    now: float = 0.0
    n_asked: int = 0
    is_cancelled: threading.Event = field(default_factory=threading.Event)

    def generate(self, request: Request) -> Iterator[Event]:
        """Read the prompt, then a token a pass until a stop."""
        self.n_asked += 1
        self.is_cancelled.clear()
        method = "plain" if request.speculation.method == "plain" else "draft-model"
        yield Started(method, "chain", "fixed", 4, "token", 1, False, 100)
        self.now += self.prompt
        yield Prefilled(100, 0, 1e3 * self.prompt)
        for index in range(request.max_tokens or 1):
            if self.is_cancelled.is_set():
                yield Finished("interrupted", "", 1.0, 1.0, 1)
                return
            self.now += self.token
            ms = StepMs(0.0, 1e3 * self.token, 0.0, 0.0)
            yield Committed(index, 100 + index, 1, 1, 1, (Piece(1, "x", "accepted"),), "x", ms, False, "")
        yield Finished("length", "", 1.0, 1.0, 1)

    def survey(self, asked: SurveyRequest) -> Iterator[Event]:
        """Take the budget, and at least a pass of each width that is asked for."""
        widths = asked.sizes[: max(asked.least, 1)]
        self.now += max(asked.seconds, 2 * self.token * len(widths))
        times = {"ms": [[rows, 1e3 * self.token] for rows in (1, 4, 5)], "deep_ms": [], "position": 0}
        facts = {
            "can_rollback": True,
            "draft_can_rollback": True,
            "major_faults": 0,
        }
        yield Inspected({"target": times, "draft": times, "swapped_bytes": 0, **facts})

    def start(self, job: LoadedJob) -> Iterator[Event]:
        match job:
            case Generate(request):
                return self.generate(request)
            case SurveyRequest():
                return self.survey(job)
        return iter(())  # it knows nothing

    def cancel(self) -> None:
        """Stop before the next token."""
        self.is_cancelled.set()


LAST = "{{ messages[-1].content }}"  # a template that drops it is refused


def examined(worker: SlowWorker, seconds: float) -> Evidence:
    return Examination(
        worker, Templates(f"a{LAST}", f"b{LAST}"), has_draft=True, n_ctx=4096, seconds=seconds,
        is_stopped=lambda: False, on_progress=lambda what: None, clock=lambda: worker.now,
    ).run()  # fmt: skip


@pytest.mark.parametrize("token", [0.001, 0.02, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("prompt", [0.01, 1.0, 5.0])
def test_a_doctor_ends_within_its_seconds(token: float, prompt: float) -> None:
    """A prompt that is being read is the one thing that the clock of this worker does not cut."""
    worker = SlowWorker(prompt, token)
    found = examined(worker, 60.0)
    assert worker.now <= 1.2 * 60.0
    assert found.first is not None
    assert found.race is not None or found.is_cut


def test_a_quick_pair_is_examined_whole() -> None:
    worker = SlowWorker(0.01, 0.001)
    found = examined(worker, 60.0)
    assert not found.is_cut
    assert set(found.tried) == {"greedy", "sampled", "draft template"}
    assert found.race is not None
    assert len(found.race.rounds) == 6


def test_a_slow_pair_is_asked_a_short_prompt_and_raced_all_the_same() -> None:
    found = examined(SlowWorker(1.0, 0.3), 60.0)
    assert found.is_cut
    assert found.race is not None


def test_an_answer_that_is_cut_counts_with_what_it_has() -> None:
    worker = SlowWorker(0.0, 1.0)
    limit = TimeLimit(worker, lambda: worker.now)
    limit.share(10.0, 2)
    answers = [ask(limit, Request(prompt="x", max_tokens=50)) for _ in range(2)]
    assert [len(one.tokens) for one in answers] == [5, 5]
    assert [one.stats.finished.reason for one in answers if one.stats.finished] == [CUT, CUT]
    assert not any(one.is_interrupted for one in answers)
    assert limit.n_cut == 2
    assert limit.is_over


def test_a_prompt_that_is_being_read_is_stopped_too() -> None:
    """No event comes meanwhile."""

    class Reading(SlowWorker):
        def generate(self, request: Request) -> Iterator[Event]:
            yield Started("plain", "chain", "fixed", 0, "token", 1, False, 100)
            assert self.is_cancelled.wait(60), "nobody stopped it"
            self.now = 1.0
            yield Finished("interrupted", "", 1.0, 0.0, 1)

    worker = Reading(0.0, 0.0)
    limit = TimeLimit(worker, lambda: worker.now)
    limit.share(0.05, 1)
    answer = ask(limit, Request(prompt="x"))
    assert answer.stats.finished is not None
    assert answer.stats.finished.reason == CUT


def test_an_engine_that_dies_is_no_end_of_an_answer() -> None:
    """And the timer of the request that failed stops no other."""

    class Dying(SlowWorker):
        def generate(self, request: Request) -> Iterator[Event]:
            yield Started("plain", "chain", "fixed", 0, "token", 1, False, 100)
            raise WorkerDiedError("the engine died")

    limit = TimeLimit(Dying(0.0, 0.0), time.monotonic)
    limit.share(3600.0, 1)
    before = threading.active_count()
    with pytest.raises(WorkerDiedError):
        ask(limit, Request(prompt="x"))
    assert threading.active_count() == before
