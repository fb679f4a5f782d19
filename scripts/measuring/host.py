"""What localspec itself costs, on random-weight models made on the spot."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.backends.lib import api
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.options import LoadOptions
from localspec.control.lengths import Fixed
from localspec.engine.context import Context, Vocabulary
from localspec.engine.draft import Draw
from localspec.engine.loop import Engine
from localspec.engine.protocols import Drafter, Verifier
from localspec.engine.protocols import Shape as TreeShape
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.methods.draft_model import DraftModel
from localspec.methods.plain import Plain
from localspec.models.store import DEFAULT, parse_pair
from localspec.settings.jobs import Generate, Load, PairJob
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.speculation import registered
from localspec.trees.static import Chain
from localspec.verify.match import MatchVerifier
from localspec.worker.codec import job_line
from localspec.worker.main import JobServer
from measuring.runner import Contender, Contenders, Figures, Options, case
from tests.weights.random_gguf import Shape, write_random_gguf

FILTERED = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
FILTERS = {
    "top-k 40 top-p .95 min-p .05": FILTERED,
    "no filter": Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0),
}
SMALL = Shape(width=64, layers=1, heads=2, kv_heads=1, ff=128, ctx=1024, quant="Q8_0")
ONE_B = Shape(vocab=32_000, width=2048, layers=16, heads=32, kv_heads=8, ff=8192, ctx=1024, quant="Q4_0")
N_PROMPT = 64
K = 4


class DecodeClock:
    """Counts the seconds spent inside llama_decode, the wait for its result included."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the two native functions by timed ones."""
        native = {name: getattr(api, name) for name in ("llama_decode", "llama_synchronize")}
        for name, function in native.items():
            setattr(api, name, self._timed(function))
        try:
            yield
        finally:
            for name, function in native.items():
                setattr(api, name, function)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.seconds += time.perf_counter() - began

        return call


def engine_for(
    target: LlamaBackend, drafter: Drafter, rule: Verifier, k: int, draw: Draw, sampling: Sampling
) -> Engine:
    """Put an engine together as a session does."""
    return Engine.local(
        target,
        {"drafter": drafter},
        rule,
        Fixed("drafter", TreeShape(k, k, 1), draw),
        Sampler(sampling),
        SeededRandom(1),
        time.perf_counter,
        lambda: False,
    )


def context_for(target: LlamaBackend, n_prompt: int, max_tokens: int) -> Context:
    """Return a context of `n_prompt` arbitrary tokens that never ends early."""
    vocabulary = Vocabulary(lambda token: False, target.model.piece)
    prompt = [5 + i % 200 for i in range(n_prompt)]
    return Context(prompt, vocabulary, n_ctx=target.capabilities.n_ctx, max_tokens=max_tokens)


def host_cost(target: LlamaBackend, draft: LlamaBackend, verify: str, sampling: Sampling) -> Figures:
    """Measure passes of a full session's engine over 600 tokens, the first ten dropped."""
    drafter = DraftModel(draft, Sampler(sampling), Chain(), lambda: False)
    draw = Draw.COUPLED if verify == "coupled" else Draw.IID
    engine = engine_for(target, drafter, registered("verify")[verify](), K, draw, sampling)
    clock, costs, accepted = DecodeClock(), [], 0
    with clock.installed():
        lap, inside = time.perf_counter(), 0.0
        for step in engine.generate(context_for(target, 16, 600)):
            now = time.perf_counter()
            if len(step.draft) == K:
                costs.append(1e3 * (now - lap - (clock.seconds - inside)))
                accepted += step.n_accepted
            lap, inside = time.perf_counter(), clock.seconds
    median, p90 = statistics.median(costs[10:]), statistics.quantiles(costs[10:], n=10)[-1]
    return {"ms a pass": median, "90th percentile": p90, "accepted": accepted / (K * len(costs))}


@case(rounds=1)
def host(_: Options) -> Iterator[Contenders]:
    """Host time of a speculative pass: everything but llama_decode. K=4, T=0.8, the draft is the target."""
    options, contenders = LoadOptions(n_ctx=1024, threads=1), {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for vocab in (4096, 128_000):
            path = write_random_gguf(Path(folder) / f"{vocab}.gguf", replace(SMALL, vocab=vocab))
            models = [stack.enter_context(Model(path, options)) for _ in range(2)]
            both = [stack.enter_context(LlamaBackend(model, options)) for model in models]
            for filters, sampling in FILTERS.items():
                for verify in ("block", "coupled"):
                    contenders[f"V={vocab}, {filters}, {verify}"] = Contender(
                        lambda _, given=(*both, verify, sampling): host_cost(*given)
                    )
        yield contenders


class BareLoop:
    """llama.cpp's own calls alone, on a context of its own: a token at a time, nothing sampled."""

    def __init__(self, backend: LlamaBackend) -> None:
        self._context = backend._growing.context
        self._position = backend.length
        self._batch = api.llama_batch_init(1, 0, 1)

    def token(self) -> float:
        """Decode one token and wait for its logits; return the seconds."""
        batch = self._batch
        began = time.perf_counter()
        batch.n_tokens, batch.token[0], batch.pos[0] = 1, 5 + self._position % 200, self._position
        batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 0, 1
        assert api.llama_decode(self._context, batch) == 0
        api.llama_get_logits_ith(self._context, 0)
        self._position += 1
        return time.perf_counter() - began


def engine_seconds(backend: LlamaBackend, n: int) -> Iterator[float]:
    """Decode `n` tokens plainly with the engine, sampling included; yield the seconds of each."""
    engine = engine_for(backend, Plain(), MatchVerifier(), 0, Draw.IID, FILTERED)
    steps = engine.generate(context_for(backend, N_PROMPT, n + 1))
    next(steps)  # the prompt's own token
    while True:
        began = time.perf_counter()
        next(steps)
        yield time.perf_counter() - began


def _shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", choices=["1b", "small"], default="1b", help="of the model")
    parser.add_argument("--threads", type=int, help="of llama.cpp")


@case(_shape, rounds=120, warm_up=4)
def plain(asked: Options) -> Iterator[Contenders]:
    """Plain decoding against a bare llama_decode loop, token about, on two contexts of the same random weights."""
    options = LoadOptions(n_ctx=1024, threads=asked.threads)
    with tempfile.TemporaryDirectory() as folder:
        path = write_random_gguf(Path(folder) / "plain.gguf", ONE_B if asked.shape == "1b" else SMALL)
        with Model(path, options) as model, LlamaBackend(model, options) as ours, LlamaBackend(model, options) as other:
            other.prefill([5 + i % 200 for i in range(N_PROMPT)], lambda: False)
            bare, seconds = BareLoop(other), engine_seconds(ours, 4 + asked.rounds)
            yield {
                "plain decoding": Contender(lambda _: {"tok/s": 1 / next(seconds)}, ("bare llama_decode",)),
                "bare llama_decode": Contender(lambda _: {"tok/s": 1 / bare.token()}),
            }


# Reads events from stdin, as another program would: one line for each job that ends, with how many passes there were.
COUNTING = """
import json, sys
passes = 0
for line in sys.stdin.buffer:
    event = json.loads(line)
    passes += event["type"] == "committed"
    if event["type"] in ("loaded", "finished", "failed"):
        print(event["seq"], passes, flush=True)
"""


class InProcess:
    """The engine's process within this one: the bundled target with four lanes, its passes timed by `clock`."""

    def __init__(self, clock: DecodeClock) -> None:
        self._clock = clock
        ends, events = os.pipe()
        command = [sys.executable, "-c", COUNTING]
        self._ends = subprocess.Popen(command, stdin=ends, stdout=subprocess.PIPE, text=True).stdout
        self._jobs = JobServer(events)
        self._n = self._passes = 0
        threading.Thread(target=self._jobs.run, daemon=True).start()
        self.does([Load(LoadSettings(str(parse_pair(DEFAULT).target), ctx=1024, threads=1, parallel=4))])

    def does(self, jobs: Sequence[PairJob]) -> int:
        """Wait for all of these; return how many passes they took, without the prompts' own."""
        left, before = set(), self._passes
        for job in jobs:
            self._n += 1
            left.add(self._n)
            self._jobs.take(json.loads(job_line(job, self._n)))
        while left:
            assert self._ends is not None
            number, self._passes = map(int, self._ends.readline().split())
            left.remove(number)
        return self._passes - before

    def host_cost(self, n: int, turn: int) -> Figures:
        """Let `n` answers of 200 tokens be written at once, plainly."""
        plain, greedy = Speculation(method="plain"), Sampling(temperature=0.0)
        words = [f"{turn} {i} Once upon a time there was" for i in range(n)]
        asked = [Generate(Request(prompt=each, max_tokens=200, speculation=plain, sampling=greedy)) for each in words]
        began, inside = time.perf_counter(), self._clock.seconds
        tokens = self.does(asked)
        return {"ms a pass": 1e3 * (time.perf_counter() - began - (self._clock.seconds - inside)) * n / tokens}


@case(rounds=4)
def beside(_: Options) -> Iterator[Contenders]:
    """Host time of a plain pass in which one, two or four answers of the bundled target are (T=0)."""
    clock = DecodeClock()
    with clock.installed():
        engine = InProcess(clock)
        yield {
            f"{n} at once": Contender(lambda turn, n=n: engine.host_cost(n, turn), () if n == 1 else ("1 at once",))
            for n in (1, 2, 4)
        }
