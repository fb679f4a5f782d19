"""A scripted worker: the command line without llama.cpp, with every pass under the test's control.

Run as a program it is `localspec` with this worker, told by the environment what to do; see `from_environment`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from localspec.engine.events import (
    Committed,
    Event,
    Finished,
    Loaded,
    Loading,
    ModelFacts,
    Piece,
    Prefilled,
    Probed,
    Started,
    StepMs,
    Warned,
)
from localspec.engine.text import Marks, ReasoningStream
from localspec.errors import LocalspecError, PromptTooLongError, WorkerDiedError
from localspec.settings.jobs import Generate, LoadedJob
from localspec.settings.request import LoadSettings, Request

K = 4
MARKS = Marks("<think>", "</think>")  # as a template names them


def facts(path: str) -> ModelFacts:
    return ModelFacts(path, 5_000_000, "llama", "Q8_0", 4_700_000, 4096, 8, 2_097_152, ("CPU",))


def committed(index: int, text: str, *, position: int = 0, k: int = K, accepted: int | None = None) -> Committed:
    """Return a pass that released `text`, one token a word, all but the last drafted; with `k` 0 it is one token."""
    split = text.split(" ") if text.count(" ") <= k else [text]
    words = [word if i == 0 else f" {word}" for i, word in enumerate(split)]
    n_accepted = len(words) - 1 if accepted is None else accepted
    last = "plain" if k == 0 else "bonus" if n_accepted == k else "corrected"
    sources = ["accepted"] * n_accepted + [last] * (len(words) - n_accepted)
    pieces = tuple(Piece(100 + i, word, source) for i, (word, source) in enumerate(zip(words, sources, strict=True)))
    ms = StepMs(2.0, 8.0, 0.5, 0.5)
    return Committed(index, 16 + position, k, k, n_accepted, pieces, text, ms, False, "")


def sent(request: Request) -> str:
    said = [f"{each.role}: {each.content!r}" for each in request.messages] or [f"raw: {request.prompt!r}"]
    usual, changed = Request(), {}
    for part, other in ((request, usual), (request.sampling, usual.sampling), (request.speculation, usual.speculation)):
        names = {each.name for each in fields(part)} - {"messages", "sampling", "speculation"}
        changed |= {name: value for name in names if (value := getattr(part, name)) != getattr(other, name)}
    return " | ".join(
        ["sent: " + said[0], *said[1:], *(f"{name} {value!r}" for name, value in sorted(changed.items()))]
    )


@dataclass
class FakeWorker:
    """Answers every request with `passes`; `pause` seconds between them. `fails` maps a pass to an error to raise."""

    passes: list[str] = field(default_factory=lambda: ["Once upon", " a time there", " was a king."])
    pause: float = 0.0
    load_pause: float = 0.0
    fails: dict[int, LocalspecError] = field(default_factory=dict)
    max_messages: int = 1000  # more are a prompt that is too long
    loads: list[LoadSettings] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    pid: int | None = None
    is_cancelled: bool = False
    stays: bool = False
    n_closed: int = 0
    died_idle: WorkerDiedError | None = None  # to be told before the next request

    def load(self, settings: LoadSettings) -> Iterator[Event]:
        self.pid, self.is_cancelled = 4711 + len(self.loads), False
        self.loads.append(settings)
        if "FAKE_SENT" in os.environ:
            print(f"loaded: {settings.name}, draft {settings.draft}, ctx {settings.ctx}", file=sys.stderr)
        if "FAKE_LOADS" in os.environ:
            Path(os.environ["FAKE_LOADS"]).touch()
        for step in range(3):
            yield Loading("target", step / 2)
            self._wait(self.load_pause)
            if self.is_cancelled:
                yield Finished("interrupted", "", 12.0, 0.0, 0)  # as the client does when it ends a load
                return
        versions = {"llama_cpp": "0", "llama_cpp_python": "0"}
        yield Loaded(settings.name, facts(settings.target), None, 1024, 2, 12.0, versions)

    def generate(self, request: Request) -> Iterator[Event]:
        self.is_cancelled = False
        self.requests.append(request)
        if "FAKE_SENT" in os.environ:
            print(sent(request), file=sys.stderr)
        if len(request.messages) > self.max_messages:
            raise PromptTooLongError("the prompt has 2000 tokens and the context holds 1024", hint="--ctx 2048")
        seed = request.sampling.seed
        yield Started("draft-model", "chain", "fixed", K, "block", seed or 7, seed is not None, 16)
        yield Warned("test", "this is a test") if os.environ.get("FAKE_WARN") else Prefilled(16, 0, 10.0)
        position, split = 0, ReasoningStream(MARKS if "<think" in "".join(self.passes) else None)
        passes = [f"answer {len(self.requests)}"] if "FAKE_COUNTED" in os.environ else self.passes
        for index, text in enumerate(passes):
            if index in self.fails:
                error = self.fails.pop(index)
                self.pid = None if isinstance(error, WorkerDiedError) else self.pid
                raise error
            is_plain = bool(os.environ.get("FAKE_PLAIN")) and index % 8 in (1, 2)
            event = committed(index, text, position=position, k=K if index and not is_plain else 0)
            event = replace(event, plain_ms=10.0) if is_plain else replace(event, drafter="draft-model" * (event.k > 0))
            position += len(event.out)
            parts = split.feed(text)
            yield replace(event, text=parts.answer, reasoning=parts.reasoning)
            if index == 1 and not os.environ.get("FAKE_NO_PROBE"):
                yield Probed(10.0, 18)
                yield Probed(10.0, 19)
            self._wait(self.pause)
            if self.is_cancelled:
                yield Finished("interrupted", "", 100.0, 20.0, 1 << 26)
                return
        verdict = os.environ.get("FAKE_VERDICT", "")
        rest, reason = split.finish(""), os.environ.get("FAKE_REASON", "stop")
        yield Finished(reason, rest.answer, 100.0, 20.0, 1 << 26, verdict=verdict, reasoning=rest.reasoning)

    def start(self, job: LoadedJob) -> Iterator[Event]:
        """Answer a request; it is asked nothing else."""
        assert isinstance(job, Generate)
        return self.generate(job.request)

    def prepare(self, *_settings: LoadSettings) -> None:
        """Have nothing to start."""

    def cancel(self) -> None:
        """Stop at the next pass, unless the script is deaf."""
        self.is_cancelled = not os.environ.get("FAKE_DEAF")
        if "FAKE_CANCELS" in os.environ:
            Path(os.environ["FAKE_CANCELS"]).touch()

    def close(self) -> None:
        self.pid = None
        self.n_closed += 1

    def lost(self) -> WorkerDiedError | None:
        """Tell of a death in between, once."""
        died, self.died_idle = self.died_idle, None
        if died is not None:
            self.pid = None
        return died

    def log_tail(self, lines: int = 20) -> str:
        return ""

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.is_cancelled:
            time.sleep(min(0.01, seconds))


def from_environment() -> FakeWorker:
    """FAKE_PASSES (a JSON list), FAKE_PAUSE, FAKE_LOAD_PAUSE (seconds), FAKE_DIES (at a pass), FAKE_DEAF.

    With FAKE_COUNTED each answer is its number. With FAKE_SENT stderr has a line of each request and load.
    FAKE_REASON is why the answer ends. FAKE_PASSES may be @ and a file's name. FAKE_LOADS is a file that is made when a
    load begins, and FAKE_CANCELS one that is made when a stop is asked for. With FAKE_PLAIN two of eight passes are
    plain ones of 10 ms.
    """
    worker = FakeWorker()
    if "FAKE_PASSES" in os.environ:
        passes = os.environ["FAKE_PASSES"]
        worker.passes = json.loads(Path(passes[1:]).read_text() if passes.startswith("@") else passes)
    worker.pause = float(os.environ.get("FAKE_PAUSE", "0"))
    worker.load_pause = float(os.environ.get("FAKE_LOAD_PAUSE", "0"))
    if "FAKE_DIES" in os.environ:
        died = WorkerDiedError("the engine was killed (SIGKILL)", hint="--ctx 512", detail={"signal": "SIGKILL"})
        worker.fails[int(os.environ["FAKE_DIES"])] = died
    return worker


if __name__ == "__main__":
    from localspec.cli import main, settings

    # Before a command imports it: whatever the command line says, the worker is the one that the environment describes.
    vars(settings)["open_worker"] = lambda *_: from_environment()
    main()
