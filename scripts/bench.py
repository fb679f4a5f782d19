"""Measure what localspec itself costs, on random-weight models made on the spot.

  bench.py host    host time of a speculative pass: everything but llama_decode
  bench.py plain   plain decoding against a bare llama_decode loop, interleaved, as a ratio

Ratios and medians of one run; absolute figures hold for the machine that printed them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from make_random_gguf import Shape, write_random_gguf

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
from localspec.settings.request import Sampling
from localspec.speculation import registered
from localspec.trees.static import Chain
from localspec.verify.match import MatchVerifier

FILTERED = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
UNFILTERED = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
SMALL = Shape(width=64, layers=1, heads=2, kv_heads=1, ff=128, ctx=1024, quant="Q8_0")
N_PROMPT = 64
ONE_B = Shape(vocab=32_000, width=2048, layers=16, heads=32, kv_heads=8, ff=8192, ctx=1024, quant="Q4_0")


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


@contextmanager
def opened(path: Path, options: LoadOptions) -> Iterator[LlamaBackend]:
    """Open a model and one context."""
    with Model(path, options) as model:
        backend = LlamaBackend(model, options)
        try:
            yield backend
        finally:
            backend.close()


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


@dataclass(frozen=True)
class HostCost:
    """Milliseconds of a pass outside llama_decode, and what share of the draft was accepted."""

    median: float
    p90: float
    acceptance: float


def host_cost(target: LlamaBackend, draft: LlamaBackend, verify: str, sampling: Sampling, k: int = 4) -> HostCost:
    """Measure passes of a full session's engine over 600 tokens, the first ten dropped."""
    drafter = DraftModel(draft, Sampler(sampling), Chain(), lambda: False)
    draw = Draw.COUPLED if verify == "coupled" else Draw.IID
    engine = engine_for(target, drafter, registered("verify")[verify](), k, draw, sampling)
    context = context_for(target, 16, 600)
    clock, costs, accepted, drafted = DecodeClock(), [], 0, 0
    with clock.installed():
        lap, inside = time.perf_counter(), 0.0
        for step in engine.generate(context):
            now = time.perf_counter()
            if len(step.draft) == k:
                costs.append(1e3 * (now - lap - (clock.seconds - inside)))
                accepted, drafted = accepted + step.n_accepted, drafted + k
            lap, inside = time.perf_counter(), clock.seconds
    costs = costs[10:]
    return HostCost(statistics.median(costs), statistics.quantiles(costs, n=10)[-1], accepted / drafted)


def bench_host(folder: Path) -> None:
    """Print the host time of a pass at two vocabulary sizes, three ways."""
    print("host time of a pass (everything but llama_decode), K=4, T=0.8, draft = target, ms")
    print(f"{'V':>7}  {'filters':<30}{'verify':<9}{'median':>7}{'p90':>7}  accepted")
    for n_vocab in (4096, 128_000):
        path = write_random_gguf(folder / f"v{n_vocab}.gguf", replace(SMALL, vocab=n_vocab))
        options = LoadOptions(n_ctx=1024, threads=1)
        with opened(path, options) as target, opened(path, options) as draft:
            for name, sampling, verify in (
                ("top-k 40 top-p .95 min-p .05", FILTERED, "block"),
                ("top-k 40 top-p .95 min-p .05", FILTERED, "coupled"),
                ("none", UNFILTERED, "block"),
                ("none", UNFILTERED, "coupled"),
            ):
                cost = host_cost(target, draft, verify, sampling)
                print(
                    f"{n_vocab:>7}  {name:<30}{verify:<9}{cost.median:>7.2f}{cost.p90:>7.2f}  {cost.acceptance:.0%}",
                    flush=True,
                )


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
        if next(steps, None) is None:
            return
        yield time.perf_counter() - began


def bench_plain(folder: Path, shape: Shape, pairs: int, threads: int | None) -> None:
    """Print plain decoding against the bare loop: token about, on two contexts of the same weights."""
    path = write_random_gguf(folder / "plain.gguf", shape)
    options = LoadOptions(n_ctx=1024, threads=threads)
    with Model(path, options) as model, LlamaBackend(model, options) as ours, LlamaBackend(model, options) as theirs:
        theirs.prefill([5 + i % 200 for i in range(N_PROMPT)], lambda: False)
        bare = BareLoop(theirs)
        both = [(seconds, bare.token()) for seconds in engine_seconds(ours, pairs)][4:]  # the first ones warm up
    engine, loop = (statistics.median(column) for column in zip(*both, strict=True))
    low, _, high = statistics.quantiles([b / a for a, b in both], n=4)
    print(f"bare llama_decode: {1e3 * loop:.2f} ms a token; plain decoding: {1e3 * engine:.2f} ms (medians of {pairs})")
    print(f"speed of plain decoding against the bare loop: {loop / engine:.3f} (pairs: {low:.3f} to {high:.3f})")


def main() -> None:
    """Read the command line and run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["host", "plain"])
    parser.add_argument("--shape", choices=["1b", "small"], default="1b", help="of the model for `plain`")
    parser.add_argument("--pairs", type=int, default=120, help="of tokens for `plain`")
    parser.add_argument("--threads", type=int, help="of llama.cpp for `plain`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "host":
            bench_host(Path(folder))
        else:
            shape = ONE_B if options.shape == "1b" else SMALL
            bench_plain(Path(folder), shape, options.pairs, options.threads)


if __name__ == "__main__":
    main()
