"""Measures that `auto` is never slower: beside plain decoding with a good, a dear, a hostile and no draft.

  matrix.py --folder ~/matrix                make the models there, measure, print the table
  matrix.py --folder ~/matrix --rounds 4     measure four rounds more; a round is one prompt, seed and temperature
  matrix.py --folder ~/matrix --rounds 0     print the table of what was measured before

The target is the bundled one in a 1B shape (make_scaled_pair.py). Its drafts: the distilled one that is bundled; the
same in a 150M shape, as dear as a real draft; that one with its embedding shuffled, so that it reads and writes other
tokens. In a round one prompt is answered with one seed on every draft, in an order that turns from round to round. For
each draft a new process answers by `auto` and by plain decoding, from empty caches, in alternating order. Both share a
process, since the place of the weights in memory changes the speed of a process by several percent. Measurements stay
in the folder, and the next call with the same code, models, threads and sizes continues. With the same seed everywhere
`auto` verifies by coupled noise. The seeds of a prompt count as prompts; at T=0 they give one text in new processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from statistics import median

import gguf
import make_scaled_pair
import numpy as np
from make_scaled_pair import SHAPES, write_scaled
from resume import State

from localspec.bench.measurement import Cell, Measurement, measured
from localspec.bench.result import Hashes, machine, rates
from localspec.bench.statistics import Interval, ratio_interval
from localspec.bench.suites import choose, load_suite
from localspec.bench.table import piped
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.ui.stats import Stats
from localspec.worker.client import Worker

PLAIN = "plain"
DRAFTS = {"distilled": "draft.gguf", "150M": "draft-150m.gguf", "hostile": "hostile.gguf", "no draft": None}
TEMPERATURES = (0.0, 0.8)
MEDIAN, LOWER = 0.98, 0.95  # what is promised of auto / plain, and of its 95 % interval
MAY_LAG, MAY_LOSE = 0.02, 1  # what is promised of one answer: a share of its time, and tokens


def make_models(folder: Path) -> None:
    """Write the target and the three drafts, unless they are there."""
    pair = Path(str(files("localspec.models"))) / "storyteller"
    folder.mkdir(parents=True, exist_ok=True)
    _make(folder / "target.gguf", lambda to: write_scaled(pair / "target-q8_0.gguf", to, SHAPES["1b"], "Q4_0"))
    _make(folder / "draft-150m.gguf", lambda to: write_scaled(pair / "draft-q8_0.gguf", to, SHAPES["150m"], "Q4_0"))
    _make(folder / "draft.gguf", lambda to: shutil.copyfile(pair / "draft-q8_0.gguf", to))
    _make(folder / "hostile.gguf", lambda to: shuffle_tokens(shutil.copyfile(folder / "draft-150m.gguf", to)))


def _make(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file that is not there, whole or not at all: half of one would be taken for it ever after."""
    if path.exists():
        return
    part = path.with_suffix(".part")
    write(part)
    part.replace(path)


def shuffle_tokens(path: Path) -> None:
    """Give every token the embedding of another; the bundled models write by the same matrix by which they read."""
    reader = gguf.GGUFReader(path, mode="r+")
    rows = next(tensor.data for tensor in reader.tensors if tensor.name == "token_embd.weight")  # one row a token
    rows[:] = rows[np.random.default_rng(7).permutation(len(rows))]
    reader.data.flush()


class Matrix:
    """The cells of all rounds. `repeat` of a cell is the number of the draft whose process answers it."""

    def __init__(
        self, folder: Path, prompts: int, seeds: int, n: int, threads: int, temps: Sequence[float] = TEMPERATURES
    ) -> None:
        self._folder, self._n, self._threads = folder, n, threads
        self._texts = [one.text for one in choose(load_suite("stories", is_chat=False), prompts).prompts]
        self._seeds, self._temps = seeds, temps

    def rounds(self) -> list[list[Cell]]:
        """Return the cells by round; `prompt` numbers the pairs of prompt and seed."""
        drafts = list(enumerate(DRAFTS))
        found = []
        for number in range(len(self._texts) * self._seeds):
            order = drafts if number % 2 == 0 else drafts[::-1]
            for temperature in self._temps:
                cells = []
                for i, name in order:
                    both = (Cell(number, temperature, PLAIN, i), Cell(number, temperature, name, i))
                    cells += both if (number + i) % 2 == 0 else both[::-1]
                found.append(cells)
        return found

    def measure_round(self, cells: list[Cell]) -> list[Measurement]:
        """Return what the answers of a round came to."""
        found = []
        for draft, both in groupby(cells, key=lambda cell: cell.repeat):
            with Worker() as worker:
                self._load(worker, list(DRAFTS.values())[draft])
                found += [self._measure(worker, cell) for cell in both]
        return found

    def _measure(self, worker: Worker, cell: Cell) -> Measurement:
        """Return what one answer came to."""
        stats = Stats()
        for event in worker.generate(
            Request(
                prompt=self._texts[cell.prompt % len(self._texts)],
                max_tokens=self._n,
                sampling=Sampling(temperature=cell.temperature, seed=1 + cell.prompt // len(self._texts)),
                speculation=Speculation(method=PLAIN if cell.contender == PLAIN else "auto"),
                cold=True,
            )
        ):
            stats.observe(event)
        return measured(cell, stats)

    def _load(self, worker: Worker, name: str | None) -> None:
        path = None if name is None else str(self._folder / name)
        for _ in worker.load(LoadSettings(str(self._folder / "target.gguf"), path, ctx=1024, threads=self._threads)):
            pass
        for _ in worker.generate(Request(prompt="Once", max_tokens=8, cold=True)):  # measures what passes cost
            pass


def report(measurements: list[Measurement]) -> str:
    """Return the table: ratios to plain decoding by draft and temperature, and how often the account held.

    `ttft` is the time to the first token over plain decoding's in the same process, in the median. `account held` is
    the account's own word, at every moment of an answer, by the price of a plain pass that it learned. `late` asks the
    clock, at the end of an answer: see `is_late`.
    """
    head = ("draft", "T", "auto / plain", "worst", "ttft", "tok/pass", "account held", "late", "as promised")
    lines: list[tuple[str, ...]] = [head]
    for temperature in TEMPERATURES:
        here = [one for one in measurements if one.cell.temperature == temperature]
        for number, name in enumerate(DRAFTS):
            ours = [one for one in here if one.cell.contender == name]
            plain = [one for one in here if one.cell.contender == PLAIN and one.cell.repeat == number]
            if line := _line(ours, plain):
                lines.append((name, f"{temperature:g}", *line))
    return piped(lines)


def _line(ours: list[Measurement], plain: list[Measurement]) -> tuple[str, ...]:
    """Return what a draft came to beside plain decoding by round, nothing where no round has both."""
    speeds, beside = rates(ours), rates(plain)
    both = [number for number in speeds if number in beside]
    interval = ratio_interval([speeds[i] for i in both], [beside[i] for i in both], is_paired=True)
    if interval is None:
        return ()
    theirs = {one.cell.prompt: one for one in plain}
    paired = [(one, theirs[one.cell.prompt]) for one in ours if one.cell.prompt in both]
    first = median(one.ttft_ms / other.ttft_ms for one, other in paired)
    held = sum(one.overdrawn_ms is None or one.overdrawn_ms <= 0.0 for one in ours)
    late = sum(is_late(one, other) for one, other in paired)
    per_pass = sum(one.tokens for one in ours) / sum(one.passes for one in ours)
    worst = min(speeds[i] / beside[i] for i in both)
    return (
        interval.spelt(), f"{worst:.2f}", f"{first:.2f}", f"{per_pass:.2f}", f"{held}/{len(ours)}",
        f"{late}/{len(paired)}", "yes" if is_kept(interval) else "NO",
    )  # fmt: skip


def is_late(one: Measurement, plain: Measurement) -> bool:
    """Whether an answer's decoding took longer than the promise allows by the plain one of the same process.

    The machine's noise is in it, to both sides, and so is all that the draft took to read the prompt, for which the
    promise allows a tenth of the target's time.
    """
    pace = 1e3 / plain.tok_per_s if plain.tok_per_s is not None else math.inf
    return one.decode_ms > pace * (one.decoded + MAY_LOSE) / (1.0 - MAY_LAG)


def is_kept(interval: Interval) -> bool:
    """Whether a ratio keeps what is promised."""
    return interval.median >= MEDIAN and (interval.low is None or interval.low >= LOWER)


def state_of(sources: Sequence[Path], models: Sequence[Path], hashes: Hashes) -> str:
    """Return what tells one state of code and models from another: answers of two are not of one table."""
    parts = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sources]
    parts += [hashes.sha256(path) for path in models]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]


def code() -> list[Path]:
    """Return the files that make and measure: localspec, which in a clone has its models elsewhere, and the scripts."""
    packages = [Path(str(files(name))) for name in ("localspec", "localspec.models")]
    found = {path.resolve() for package in packages for end in ("py", "json") for path in package.rglob(f"*.{end}")}
    scripts = (Path(__file__), Path(make_scaled_pair.__file__))
    return sorted(found | {path.resolve() for path in scripts})


def main() -> None:
    """Make the models, measure what is left, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=10**6, help="to measure in this call")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--temps", type=float, nargs="+", default=TEMPERATURES, choices=TEMPERATURES, metavar="T")
    parser.add_argument("-n", type=int, default=512, help="tokens of an answer")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("LOCALSPEC_HOME", str(options.folder / "home"))
    make_models(options.folder)
    matrix = Matrix(options.folder, options.prompts, options.seeds, options.n, options.threads, options.temps)
    asked = f"{options.prompts}-{options.seeds}-{options.n}-{options.threads}"
    models = sorted({options.folder / name for name in ("target.gguf", *DRAFTS.values()) if name is not None})
    what = state_of(code(), models, Hashes(options.folder / "sha256.json"))
    state = State(options.folder, f"rounds-{asked}-{what}-{version('llama-cpp-python')}")
    state.begin()
    if state.reason:
        print(f"what is measured is not kept: {state.reason}", file=sys.stderr)
    found = state.load()
    left = [cells for cells in matrix.rounds() if any(cell not in {one.cell for one in found} for cell in cells)]
    for number, cells in enumerate(left[: options.rounds]):
        print(f"{len(left) - number} rounds left", file=sys.stderr)
        measured_now = matrix.measure_round(cells)  # a round counts whole or not at all
        for one in measured_now:
            state.append(one)
        found = [one for one in found if one.cell not in cells] + measured_now
    print(report(found))
    if options.json:
        wire = {"machine": machine(), "options": vars(options), "measurements": [one.to_wire() for one in found]}
        options.json.write_text(json.dumps(wire, indent=1, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
