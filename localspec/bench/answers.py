"""Answers as race and verify compare them: tokens, text and account of each, and where two of them fork."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from localspec.engine.events import Committed, Event, Finished, Inspected, Loading
from localspec.settings.jobs import ForkQuestion, Generate, LoadedJob, Question, SurveyRequest
from localspec.settings.request import Request, Speculation
from localspec.settings.sizes import counted
from localspec.ui.stats import Stats

PLAIN = Speculation(method="plain")


class MeasuringWorker(Protocol):
    """The methods of `localspec.worker.client.Worker` that measure a loaded pair."""

    def start(self, job: LoadedJob) -> Iterator[Event]: ...  # ends after Finished or Inspected
    def cancel(self) -> None: ...


@dataclass(slots=True)
class Answer:
    """One answer: its tokens, what each decodes to alone, and its account."""

    request: Request
    stats: Stats = field(default_factory=Stats)
    tokens: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    is_interrupted: bool = False

    @property
    def seed(self) -> int:
        assert self.stats.started is not None
        return self.stats.started.seed

    def observe(self, event: Event) -> None:
        self.stats.observe(event)
        if isinstance(event, Committed):
            self.tokens += [piece.id for piece in event.out]
            self.pieces += [piece.text for piece in event.out]
        elif isinstance(event, Finished):
            self.is_interrupted = event.reason == "interrupted"

    def to_wire(self) -> dict[str, Any]:
        stats = self.stats
        assert stats.started is not None
        assert stats.finished is not None
        return {
            "method": stats.started.method,
            "tree": stats.started.tree,
            "verify": stats.started.verify,
            "seed": stats.started.seed,
            "n_tokens": len(self.tokens),
            "finish_reason": stats.finished.reason,
            "tok_per_s": stats.tok_per_s,
            "ttft_ms": stats.finished.ttft_ms,
            "wall_ms": stats.finished.wall_ms,
            "peak_bytes": stats.finished.peak_memory or None,
            "tokens_per_pass": stats.tokens_per_pass,
            "acceptance": stats.acceptance,
            "edge": stats.ways.wire(),
        }


def ask(worker: MeasuringWorker, request: Request, on_event: Callable[[Answer], None] = lambda answer: None) -> Answer:
    answer = Answer(replace(request, cold=True))
    for event in worker.start(Generate(answer.request)):
        answer.observe(event)
        on_event(answer)
    return answer


def inspect(worker: MeasuringWorker, question: Question) -> dict[str, Any]:
    for event in worker.start(question):
        if isinstance(event, Inspected):
            return event.content
    return {}  # interrupted


@dataclass(frozen=True, slots=True)
class SurveyReport:
    """The result of a survey, as `localspec.session.survey` returns it."""

    content: dict[str, Any]

    @property
    def row_costs(self) -> tuple[tuple[int, float], ...]:
        """Milliseconds of a target pass by rows, at an empty context."""
        return costs_of(self.content["target"]["ms"])

    @property
    def draft_ms(self) -> float:
        """Milliseconds of a draft token, 0 without a draft model."""
        draft = self.content["draft"]
        return 0.0 if draft is None else dict(costs_of(draft["ms"])).get(1, 0.0)

    @property
    def known_costs(self) -> tuple[tuple[int, float], ...]:
        """The same as the pair's profile has it, from a calibration and from real passes, which take their while."""
        return costs_of(self.content["profile"]["ms"])


def costs_of(wire: Sequence[Sequence[float]]) -> tuple[tuple[int, float], ...]:
    return tuple((int(rows), float(ms)) for rows, ms in wire)


def survey(
    worker: MeasuringWorker, asked: SurveyRequest, on_progress: Callable[[str, float], None] = lambda what, share: None
) -> SurveyReport | None:
    """Return the times of the pair's passes, None if that was interrupted."""
    for event in worker.start(asked):
        if isinstance(event, Loading):
            on_progress(event.what, event.fraction)
        elif isinstance(event, Inspected):
            return SurveyReport(event.content)
    return None


@dataclass(frozen=True, slots=True)
class Same:
    """The comparison of two answers. `fork` is None where they are equal, and where the question was interrupted."""

    is_equal: bool
    n_tokens: int  # of the plain answer
    fork: dict[str, Any] | None = None
    plain: str = ""  # the two tokens at the fork, as text
    other: str = ""

    @property
    def is_explained(self) -> bool:
        return self.is_equal or bool(self.fork and self.fork["is_tie"])

    def spelt(self) -> str:
        if self.is_equal:
            return f"identical output, {counted(self.n_tokens, 'token')}"
        if self.fork is None:
            return "the outputs differ"
        what = f"diverged at token {self.fork['index']}: plain {self.plain!r}, speculative {self.other!r}"
        apart = f"{self.fork['margin']:.2g} logits apart"
        within = f"twice what rounding was measured to move such tokens apart ({self.fork['drift']:.2g})"
        if self.fork["is_tie"]:
            return f"{what}: a numerical tie, {apart}, within {within}"
        return f"{what}: NOT a tie, {apart}, beyond {within}"

    def to_wire(self) -> dict[str, Any]:
        fork = None if self.fork is None else {**self.fork, "plain_text": self.plain, "other_text": self.other}
        return {"is_equal": self.is_equal, "is_explained": self.is_explained, "fork": fork}


def compare_answers(worker: MeasuringWorker, plain: Answer, other: Answer) -> Same:
    """Return how the two compare, asking the target about the place where they fork, if they do."""
    if plain.tokens == other.tokens:
        return Same(True, len(plain.tokens))
    question = ForkQuestion(other.request, tuple(plain.tokens), tuple(other.tokens), plain.seed)
    fork = inspect(worker, question).get("fork")
    if fork is None:
        return Same(False, len(plain.tokens))
    index = fork["index"]
    return Same(False, len(plain.tokens), fork, plain.pieces[index], other.pieces[index])
