"""What a race runs, and what it says of its ratio: no more than its interval holds."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from localspec.bench.answers import PLAIN
from localspec.bench.rounds import Race, agreed, answers_alone, factor, judged, race
from localspec.bench.statistics import Interval, median_interval
from localspec.cli.race import figures
from localspec.engine.events import Committed, Event, Finished, Piece, Started, StepMs
from localspec.settings.jobs import Generate, LoadedJob
from localspec.settings.request import Request, Sampling, Speculation
from localspec.speculation.resolve import resolve_axes
from localspec.worker.client import Worker


class Answering:
    """A worker whose answers are their own number, so that no two texts are alike. Questions are not answered."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def generate(self, request: Request) -> Iterator[Event]:
        self.asked.append(request)
        seed = request.sampling.seed
        axes = resolve_axes(request.speculation, has_draft=True, is_seeded=seed is not None)
        method, tree, k = axes.method, axes.tree, axes.shape.depth
        started = Started(method, tree, axes.length, k, axes.verify, seed or 7, seed is not None, 9)
        yield replace(started, is_lossless=axes.verifier.is_lossless)
        for index in range(2):
            piece = Piece(len(self.asked), "x", "plain")
            yield Committed(index, 9 + index, 0, 0, 0, (piece,), "x", StepMs(0.0, 10.0, 0.0, 0.0), False, "")
        yield Finished("length", "", 20.0, 10.0, 1)

    def cancel(self) -> None:
        """Have nothing to stop."""

    def start(self, job: LoadedJob) -> Iterator[Event]:
        match job:
            case Generate(request):
                return self.generate(request)
        return self.inspect(job)

    def inspect(self, question: object) -> Iterator[Event]:
        """Fail: a race whose texts are not compared asks nothing."""
        raise AssertionError("texts of different seeds were compared")


class Inspecting(Answering):
    """One that also answers questions, with nothing."""

    def inspect(self, question: object) -> Iterator[Event]:
        return iter(())


@pytest.mark.parametrize(("is_seeded", "verify"), [(False, "block"), (True, "coupled")])
def test_a_race_without_a_seed_verifies_as_people_without_one(is_seeded: bool, verify: str) -> None:
    worker = Inspecting() if is_seeded else Answering()
    request = Request(prompt="x", sampling=Sampling(temperature=0.8))
    raced = race(cast("Worker", worker), request, 2, lambda: False, lambda what, answer: None, is_seeded=is_seeded)
    assert raced is not None
    assert raced.verify == verify
    assert [one.sampling.seed is not None for one in worker.asked[2:]] == [is_seeded] * 4
    assert (raced.same is not None) == is_seeded


def raced_with(speculation: Speculation, worker: Answering) -> Race:
    request = Request(prompt="x", sampling=Sampling(temperature=0.8), speculation=speculation)
    raced = race(cast("Worker", worker), request, 1, lambda: False, lambda what, answer: None)
    assert raced is not None
    return raced


@pytest.mark.parametrize(
    ("speculation", "words"),
    [
        (Speculation(method="draft-model", verify="block"), "this --verify keeps the distribution"),
        (
            Speculation(method="draft-model", verify="typical", approximate=True),
            "this --verify changes the distribution",
        ),
    ],
)
def test_texts_that_are_not_compared_say_why(speculation: Speculation, words: str) -> None:
    assert words in raced_with(speculation, Answering()).verdict("--repeat 6")[1]


def test_a_fork_that_nobody_looked_into_is_said_to_be_one() -> None:
    """Interrupted while the target is asked about it: the texts differ all the same, and programs are told nothing."""
    stopped = False

    class Cut(Inspecting):
        def inspect(self, question: object) -> Iterator[Event]:
            nonlocal stopped
            stopped = True
            return iter(())

    request = Request(prompt="x", sampling=Sampling(temperature=0.8), speculation=Speculation(method="draft-model"))
    raced = race(cast("Worker", Cut()), request, 1, lambda: stopped, lambda what, answer: None)
    assert raced is not None
    assert raced.verdict("--repeat 6")[1].startswith("the outputs differ; the target was not asked to the end")
    assert raced.to_wire()["output"] is None


def test_a_race_in_which_nothing_was_drafted_finds_nothing() -> None:
    request = Request(prompt="x", sampling=Sampling(temperature=0.0))
    raced = race(cast("Worker", Inspecting()), request, 2, lambda: False, lambda what, answer: None)
    assert raced is not None
    assert raced.verdict("--repeat 6")[0] == "there is no speedup, for nothing was guessed"
    stats = raced.rounds[-1].other.stats
    assert stats.finished is not None
    stats.finished = replace(
        stats.finished, verdict="nothing was guessed: a pass with 1 guess takes 9 ms, a plain pass 4 ms"
    )
    assert raced.verdict("--repeat 6")[0] == f"there is no speedup, for {stats.finished.verdict}"
    told = raced.to_wire()
    assert [told["speedup"], *(one["speedup"] for one in told["rounds"])] == [None] * 3


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ((1.81,), "1 round does not show whether speculation pays; 6 that agree do: F5"),
        ((4.0,) * 5, "5 rounds do not show whether speculation pays; 6 that agree do: F5"),
        ((1.01, 1.03, 1.05, 1.2, 1.25, 1.3), "speculation pays here: 1.12 [1.01, 1.30]× plain, 6 rounds"),
        ((1.01, 1.03, 1.05, 1.2, 1.3, 4.0), "speculation pays here: 1.01 to 4.00× plain, 6 rounds; they lie too far"),
        ((0.31, 0.35, 0.37, 0.4, 0.7, 0.81), "speculation does not pay here: 0.31 to 0.81× plain, 6 rounds; they lie"),
        ((0.99, 4.0, 4.0, 4.0, 4.0, 4.0), "6 rounds do not show whether speculation pays, for they do not agree"),
        ((0.5, 0.6, 0.9, 0.95, 0.97, 0.99), "speculation does not pay here"),
        ((0.99, 1.0, 1.0, 1.01, 1.01, 1.02), "speculation neither pays nor costs here"),
        ((0.8, 0.9, 1.0, 1.1, 1.2, 1.3), "6 rounds do not show whether speculation pays, for they do not agree"),
    ],
)
def test_a_race_is_decided_by_its_rounds(ratios: tuple[float, ...], words: str) -> None:
    interval = median_interval(ratios)
    assert interval is not None
    told = judged(interval, "F5")
    assert told.startswith(words)
    assert ("×" in told) == (" here" in words), "no ratio where the rounds do not decide"
    assert (factor(interval) is None) == ("[" not in told), "a factor where they decide and lie near each other"


@pytest.mark.parametrize(("n", "against"), [(1, -1), (5, -1), (6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (14, 2)])
@pytest.mark.parametrize("much", [1.03, 50.0])
def test_how_many_rounds_may_be_against_a_verdict(n: int, against: int, much: float) -> None:
    """The table of docs/figures.md; how far a round is from 1 does not count. -1: no agreement is enough."""
    for n_against in range(n // 2):
        ratios = [1 / much] * n_against + [much] * (n - n_against)
        turned = [1 / one for one in ratios]
        found = [agreed(interval) for one in (ratios, turned) if (interval := median_interval(one))]
        assert found == (["pays", "does not pay"] if n_against <= against else ["", ""])


def test_an_interval_is_what_decides() -> None:
    assert agreed(Interval(1.03, 0.62, 1.79, 6)) == ""
    assert agreed(Interval(1.03, 1.01, 1.05, 6)) == "pays"
    assert agreed(Interval(0.97, 0.95, 0.99, 6)) == "does not pay"


def test_a_row_is_named_by_what_was_asked() -> None:
    """Of `auto` the method that it would draft with says nothing."""
    request = Request(prompt="x", sampling=Sampling(temperature=0.0))
    for speculation, name in ((Speculation(), "auto"), (Speculation(method="suffix"), "suffix")):
        asked = replace(request, speculation=speculation)
        raced = race(cast("Worker", Inspecting()), asked, 1, lambda: False, lambda what, answer: None)
        assert raced is not None
        assert [line.split()[0] for line in figures(raced, "--repeat 6")[1:3]] == ["plain", name]


def test_the_draft_alone_answers_what_was_raced() -> None:
    """Once for each round, plainly and with the round's seed; its times stand beside the others', with percentiles."""
    asked = Request(prompt="x", sampling=Sampling(temperature=0.0))
    raced = race(cast("Worker", Inspecting()), asked, 3, lambda: False, lambda what, answer: None)
    assert raced is not None
    worker = Answering()
    found = answers_alone(cast("Worker", worker), raced, lambda: False, lambda what, answer: None)
    assert [(one.speculation, one.cold) for one in worker.asked] == [(PLAIN, True)] * 4
    assert [one.sampling.seed for one in worker.asked[1:]] == [one.plain.seed for one in raced.rounds]
    below = figures(found, "--repeat 6")
    assert [line[:14].strip() for line in below[1:4]] == ["edge alone", "verifier alone", "both"]
    assert [line.split() for line in below[11:]][1][:4] == ["edge", "alone", "–", "0.01"]
    told = found.to_wire()
    assert told["sides"]["edge alone"] == {
        "n": 3, "tok_per_s": 100.0, "ttft_ms": {"p50": 10.0, "p95": 10.0}, "total_ms": {"p50": 20.0, "p95": 20.0},
    }  # fmt: skip
    assert [one["edge_alone"]["method"] for one in told["rounds"]] == ["plain"] * 3


def test_the_draft_alone_may_be_stopped() -> None:
    """What was raced stays, and so do the rounds that the draft has answered."""
    asked = Request(prompt="x", sampling=Sampling(temperature=0.0))
    raced = race(cast("Worker", Inspecting()), asked, 3, lambda: False, lambda what, answer: None)
    assert raced is not None
    worker = Answering()
    found = answers_alone(cast("Worker", worker), raced, lambda: len(worker.asked) > 1, lambda what, answer: None)
    assert found.alone is not None
    assert len(found.alone) == 1
    first = [line.split()[0] for line in figures(found, "")[1:8]]
    assert first == ["edge", *["verifier", "both"] * 3]
