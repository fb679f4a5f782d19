"""One answer told as events: passes become Committed, tokens pieces of text, seconds milliseconds."""

from __future__ import annotations

import contextlib
import math
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import FORCED, Judged, Step
from localspec.engine.events import Committed, Event, Finished, Logprob, Piece, Prefilled, StepMs
from localspec.engine.loop import Engine
from localspec.engine.text import Marks, Parts, ReasoningStream

RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def stream_events(
    engine: Engine, context: Context, vocabulary: Vocabulary, *, details: bool, began: float, marks: Marks | None = None
) -> Iterator[Event]:
    """Run the engine to the end of the context and tell what happens; `began` is when the request came.

    `marks` are those around the reasoning, if the model writes any.
    """
    reset_peak_memory()
    split = ReasoningStream(marks)
    first: float | None = None
    evaluated = engine.judge.evaluated
    seen = engine.clock()
    prepare_ms = 1e3 * (seen - began)
    for index, step in enumerate(engine.generate(context)):
        if index == 0:
            cached = context.prompt_n - (engine.judge.evaluated - evaluated)
            yield Prefilled(context.prompt_n, cached, 1e3 * step.times.verify, prepare_ms)
            first = engine.clock()
        yield _committed(index, step, split.feed(step.text), vocabulary, details=details)
    assert context.finish is not None
    now, rest = engine.clock(), split.finish(context.tail())
    yield Finished(
        reason=context.finish.value,
        tail=rest.answer,
        wall_ms=1e3 * (now - began),
        ttft_ms=1e3 * ((first or now) - began),
        peak_memory=peak_memory(),
        reasoning=rest.reasoning,
        stopping_word=context.stopping_word,
    )


def _committed(index: int, step: Step, parts: Parts, vocabulary: Vocabulary, *, details: bool) -> Committed:
    """Tell one pass; number 0 is the token from the prompt's own last row, whose pass Prefilled has told."""
    times, plan = step.times, step.plan
    return Committed(
        index=index,
        position=step.position,
        k=step.n_drafted,
        depth=step.depth,
        n_accepted=step.n_accepted,
        n_forced=step.n_forced,
        out=tuple(
            Piece(token, _text(vocabulary, token), source.value)
            for token, source in zip(step.tokens, step.sources, strict=True)
        ),
        text=parts.answer,
        reasoning=parts.reasoning,
        ms=StepMs(
            draft=1e3 * times.draft,
            verify=1e3 * times.verify if index else 0.0,
            sample=1e3 * times.sample,
            other=1e3 * times.other,
        ),
        is_probe=plan.is_probe,
        why=plan.why,
        expected_tokens=None if plan.expects is None else plan.expects[0],
        expected_ms=None if plan.expects is None else 1e3 * plan.expects[1],
        drafted=_drafted(step, vocabulary) if details else (),
        drafter=step.drafter,
        rows=1 + len(step.draft) if index else 0,
        plain_ms=1e3 * (times.total - times.planning) if plan.is_probe else None,
        logprobs=tuple(logprob_of(judged, vocabulary.piece) for judged in step.judged) if step.judged else (),
    )


def logprob_of(judged: Judged, piece: Callable[[int], bytes]) -> Logprob:

    def logprob_of(token: int, logprob: float, top: tuple[Logprob, ...] = ()) -> Logprob:
        is_possible = math.isfinite(logprob)  # JSON has no infinities
        return Logprob(token, tuple(piece(token)), logprob if is_possible else None, top)

    return logprob_of(judged.token, judged.logprob, tuple(logprob_of(*each) for each in judged.top))


def _drafted(step: Step, vocabulary: Vocabulary) -> tuple[Piece, ...]:
    """Return the draft tokens with the probability they were drawn with, marked by their fate.

    Those behind the place where a stop rule cut the run were neither accepted nor rejected: they are "cut".
    """
    draft, path = step.draft, step.verdict.path[: step.n_forced + step.n_accepted]
    cut: set[int] = set()
    is_cut = len(step.tokens) == len(path)
    pieces = []
    for node in (1 + np.flatnonzero(~draft.scratch[1:])).tolist():
        token, dist, parent = int(draft.tokens[node]), draft.dists[node], int(draft.parents[node])
        if is_cut and (parent in cut or parent == path[-1]):
            cut.add(node)
        accepted = FORCED if node <= draft.forced else "accepted"
        fate = accepted if node in path else "cut" if node in cut else "rejected"
        pieces.append(Piece(token, _text(vocabulary, token), fate, None if dist is None else dist.prob(token)))
    return tuple(pieces)


def _text(vocabulary: Vocabulary, token: int) -> str:
    return vocabulary.piece(token).decode("utf-8", "replace")


def reset_peak_memory() -> None:
    """Let the count of the peak begin now (Linux; elsewhere it begins with the process)."""
    with contextlib.suppress(OSError):
        RESET.write_text("5", encoding="ascii")


def peak_memory() -> int:
    """Return the largest resident size of this process in bytes; models that are mapped from files are part of it."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = STATUS.read_text("ascii", "replace").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # macOS counts bytes, Linux kibibytes
