"""`auto` beside plain decoding and fixed lengths: on this machine, and on the simulated clock of any machine."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from importlib.resources import files
from pathlib import Path

import gguf
import numpy as np

from localspec.bench.suites import load_suite
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.ui.stats import Stats
from localspec.worker.client import Worker
from measuring.runner import Contender, Contenders, Figures, Options, case, count, numbers
from tests.integration.simulated_clock import SimulatedPair
from tests.weights.scaled import SHAPES, write_scaled

DRAFTS = {"distilled": "draft.gguf", "150M": "draft-150m.gguf", "hostile": "hostile.gguf", "no draft": None}
MAY_LAG, MAY_LOSE = 0.02, 1  # what is promised of one answer: a share of its time, and tokens


def make_models(folder: Path) -> None:
    """Write the target and the three drafts, unless they are there."""
    pair = Path(str(files("localspec.models"))) / "storyteller"
    folder.mkdir(parents=True, exist_ok=True)
    scaled = partial(write_scaled, quant="Q4_0")
    _make(folder / "target.gguf", lambda to: scaled(pair / "target-q8_0.gguf", to, SHAPES["1b"]))
    _make(folder / "draft-150m.gguf", lambda to: scaled(pair / "draft-q8_0.gguf", to, SHAPES["150m"]))
    _make(folder / "draft.gguf", lambda to: shutil.copyfile(pair / "draft-q8_0.gguf", to))
    _make(folder / "hostile.gguf", lambda to: shuffle_tokens(shutil.copyfile(folder / "draft-150m.gguf", to)))


def _make(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file that is not there, whole or not at all: half of one would be taken for it ever after."""
    if not path.exists():
        part = path.with_suffix(".part")
        write(part)
        part.replace(path)


def shuffle_tokens(path: Path) -> None:
    """Give every token the embedding of another; the bundled models write by the same matrix by which they read."""
    reader = gguf.GGUFReader(path, mode="r+")
    rows = next(tensor.data for tensor in reader.tensors if tensor.name == "token_embd.weight")  # one row a token
    rows[:] = rows[np.random.default_rng(7).permutation(len(rows))]
    reader.data.flush()


def _matrix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, required=True, help="where the models are, or are made")
    parser.add_argument("--temp", type=float, default=0.8)
    parser.add_argument("-n", type=count, default=512, help="tokens of an answer")
    parser.add_argument("--threads", type=count, default=len(os.sched_getaffinity(0)))


@case(_matrix, rounds=12)
def matrix(asked: Options) -> Iterator[Contenders]:
    """`auto` over plain decoding with a good, a dear, a hostile and no draft: it is never to be slower.

    The target is the bundled one in a 1B shape (tests/weights/scaled.py). Its drafts: the distilled one that is
    bundled; the same in a 150M shape, as dear as a real draft; that one with its embedding shuffled. In a turn a new
    process answers one prompt with one seed by `auto` and by plain decoding, from empty caches, in alternating order.
    Both share a process, since the place of the weights in memory changes the speed of a process by several percent.
    `time over the promise` is at most 1 where an answer took no longer than 1.02 of the plain one and a token.
    """
    os.environ.setdefault("LOCALSPEC_HOME", str(asked.folder / "home"))
    make_models(asked.folder)
    texts = [prompt.text for prompt in load_suite("stories", is_chat=False).prompts]

    def answer(worker: Worker, n: int, method: str) -> Stats:
        stats, seed = Stats(), 1 + n // len(texts)
        for event in worker.generate(
            Request(
                prompt=texts[n % len(texts)],
                max_tokens=asked.n,
                sampling=Sampling(temperature=asked.temp, seed=seed),
                speculation=Speculation(method=method),
                cold=True,
            )
        ):
            stats.observe(event)
        return stats

    def turn(n: int, draft: str | None) -> Figures:
        path = None if draft is None else str(asked.folder / draft)
        with Worker() as worker:
            for _ in worker.load(
                LoadSettings(str(asked.folder / "target.gguf"), path, ctx=1024, threads=asked.threads)
            ):
                pass
            for _ in worker.generate(Request(prompt="Once", max_tokens=8, cold=True)):  # measures what passes cost
                pass
            methods = ("auto", "plain") if n % 2 else ("plain", "auto")
            stats = {method: answer(worker, n, method) for method in methods}
        auto, plain = stats["auto"], stats["plain"]
        assert auto.finished is not None
        assert plain.finished is not None
        promised = (auto.emitted - 1 + MAY_LOSE) / (1 - MAY_LAG) * (plain.ms_per_token or 0.0)
        return {
            "auto / plain": (auto.tok_per_s or 0.0) / (plain.tok_per_s or 1.0),
            "first token": auto.finished.ttft_ms / plain.finished.ttft_ms,
            "tok/pass": auto.tokens_per_pass or 0.0,
            "overdrawn (ms)": auto.finished.overdrawn_ms or 0.0,
            "time over the promise": auto.decode_ms / promised,
        }

    yield {name: Contender(partial(turn, draft=draft)) for name, draft in DRAFTS.items()}


def _passes(text: str) -> list[float]:
    """Read plain passes by rows."""
    passes = [float(word) for word in text.split(",")]
    if not all(0.0 < one < float("inf") for one in passes):
        raise ValueError(text)
    return passes


def _replay(parser: argparse.ArgumentParser) -> None:
    usual = "1,1.73,2.38,2.4,3.3,3.6,4,4.5"
    parser.add_argument("--rows", type=_passes, default=usual, help="plain passes by rows, from 1 on")
    parser.add_argument("--draft", type=float, default=0.03, help="plain passes that one of the draft model takes")
    parser.add_argument("--lengths", type=numbers, default="1,2,3,4,6,8")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--cold", action="store_true", help="forget before every answer what others taught")
    parser.add_argument("--noise", type=float, default=0.04, help="standard deviation of a pass, of its time")
    parser.add_argument("-n", type=count, default=96, help="tokens of an answer")


@case(_replay, rounds=12)
def replay(asked: Options) -> Iterator[Contenders]:
    """`auto` beside fixed lengths, with the real engine and the simulated clock of any machine.

    The bundled pair drafts and verifies for real, so acceptance is real; only the clock is not. A pass of the target
    takes what --rows says of its width (1, 2, 3, ... rows, in plain passes; beyond, their mean slope), one of the draft
    model --draft, each off by --noise. Each round is a prompt.
    """
    texts = [prompt.text for prompt in load_suite("stories", is_chat=False).prompts]
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(SimulatedPair(asked.rows, asked.draft, Path(folder), noise=asked.noise)) as pair,
    ):

        def turn(n: int, k: int | None) -> Figures:
            if asked.cold:
                pair.unlearn()
            sampling = Sampling(temperature=asked.temp, seed=1 + n // len(texts))
            request = Request(prompt=texts[n % len(texts)], max_tokens=asked.n, sampling=sampling, cold=True)
            return {"x plain": pair.speed(request, k)}

        lengths = {f"k={k}": Contender(partial(turn, k=k)) for k in asked.lengths}
        against = tuple(lengths)
        yield {"auto": Contender(partial(turn, k=None), against), **lengths}
