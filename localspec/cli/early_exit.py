"""`localspec early-exit tune`: which of a model's layers draft best for it, by measured tokens per second.

Every choice is measured against plain decoding of the same prompts, in turns, so that a machine that is busy for a
while slows both; the median decides.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from localspec.bench.answers import ask
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.options import ReportOptions, declared_option, picked, report_options
from localspec.cli.output import write_json
from localspec.cli.pair_engine import PairEngine, open_engine
from localspec.cli.params import Command, CommandGroup, json_option, option
from localspec.errors import IncompatibleError, UsageError
from localspec.models.early_exit import Exits, Layers, Tuned, require_prunable
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model
from localspec.models.store import find_model
from localspec.settings.declaration import Group
from localspec.settings.folders import cache_folder
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.ui.columns import aligned
from localspec.ui.inputs import file_text
from localspec.ui.stats import Stats

OPENINGS = (
    "Once upon a time there was a king",
    '"Come in," said the old woman, "and sit by the fire."',
    "The ship had been three days at sea when",
    "Chapter One\n\n",
    "The first thing he saw in the morning was",
)
MAX_EXITS = 12  # layers: beyond, a few exits stand for all
SIXTEENTHS = (1, 2, 3, 4, 6, 8, 10, 12)
MEASURED = Group("Measurement")
PAIRS = 5  # measurements of a choice, at least: fewer prompts are asked again, with another seed


@click.group(cls=CommandGroup, no_args_is_help=False)  # click's help would come as an error of many lines
def early_exit() -> None:
    """Drafting with some of a model's own layers: see localspec run --method early-exit."""


@dataclass(frozen=True)
class TuneOptions(ReportOptions):
    """Values of the options that are no settings."""

    prompts: str | None
    max_tokens: int
    skips: int
    as_json: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of drafting with `layers`; `ratio` is its speed over that of plain decoding."""

    layers: Layers
    acceptance: float
    tokens_per_pass: float
    ratio: float
    bytes: int


@early_exit.command(cls=Command)
@click.argument("model", shell_complete=pair_names)
@option(
    "--prompts", is_own=True, metavar="FILE", section=MEASURED.title, help="A prompt a line.  [default: story openings]"
)
@declared_option(Request, "max_tokens", group=MEASURED, low=8, default=64, default_help="")
@declared_option(Sampling, "temperature", group=MEASURED)
@option(
    "--skips",
    type=click.IntRange(0, 512),
    default=0,
    metavar="N",
    section=MEASURED.title,
    help="Try also to leave out up to N layers, each time the one that costs least.  [default: 0]",
)
@declared_option(LoadSettings, "threads")
@declared_option(LoadSettings, "gpu")
@json_option
@report_options
@click.pass_obj
def tune(console: Console, /, model: str, temperature: float, threads: int | None, gpu: str, **values: Any) -> int:
    """Measure which layers of MODEL draft fastest, and keep the choice.

    MODEL is a pair's name, a GGUF file or hf:ORG/REPO:QUANT. A draft model is not used. The best choice is kept for
    --method early-exit even if plain decoding is faster; the last line says so. If it is faster than plain decoding,
    --method auto drafts with it where MODEL has no draft model.
    """
    options = picked(TuneOptions, values)
    options.apply(console)
    path = find_model(model).absolute()
    header = read_model(path)
    model_info(header)
    require_prunable(header)
    sampling = Sampling(temperature=temperature)
    texts = OPENINGS if options.prompts is None else read_prompts(options.prompts)
    exits = Exits(header, cache_folder("early-exit"))
    settings = LoadSettings(str(path), name=path.name, threads=threads, gpu=gpu, draft_gpu=gpu)
    made = set[Layers]()
    with _removing(made, exits), open_engine(console, options.log_file) as engine:
        engine.load(settings)
        engine.leave_if_stopped()
        results = Bench(engine, exits, made, texts, options.max_tokens, sampling).measure_all(options.skips)
    best = max(results, key=lambda one: one.ratio)
    stored = exits.store(Tuned(best.layers, best.ratio))
    if options.as_json:
        write_json(_as_json(exits, results, best, texts, stored, options.max_tokens))
    else:
        write_out(_table(exits.n_layers, results, best))
    return 0


@contextmanager
def _removing(made: set[Layers], exits: Exits) -> Iterator[None]:
    """Remove the files of `made` where the block ends early, once the engine is gone, which might make another."""
    try:
        yield
    except BaseException:
        for layers in made:
            exits.discard(layers)
        raise


class Bench:
    """Measures one choice of layers after another.

    Of the files made on the way, which `made` names, only the best one's stays.
    """

    def __init__(
        self,
        engine: PairEngine,
        exits: Exits,
        made: set[Layers],
        prompts: tuple[str, ...],
        n: int,
        sampling: Sampling,
    ) -> None:
        self._engine = engine
        self._exits = exits
        self._made = made
        self._prompts = prompts
        self._n = n
        self._sampling = sampling
        self._results: dict[Layers, Measured] = {}

    def measure_all(self, skips: int) -> list[Measured]:
        """Measure the first E layers for several E, then sets with up to `skips` layers left out."""
        for end in exits_to_try(self._exits.n_layers):
            self._measure(tuple(range(end)))
        self._leave_out(skips)
        return list(self._results.values())

    def _leave_out(self, skips: int) -> None:
        """Drop layers greedily from the whole model, as long as the draft gets faster."""
        kept, before = tuple(range(self._exits.n_layers)), 0.0
        for _ in range(min(skips, len(kept) - 1)):
            tried = [self._measure(tuple(layer for layer in kept if layer != out)) for out in kept]
            best = max(tried, key=lambda one: one.ratio)
            if best.ratio <= before:
                return
            kept, before = best.layers, best.ratio

    def _measure(self, layers: Layers) -> Measured:
        """Return what these layers come to, measured once."""
        if layers not in self._results:
            self._engine.live.status(
                f"measuring {_spelt(layers, self._exits.n_layers)} of {self._exits.n_layers} layers"
            )
            if not os.path.exists(self._exits.path(layers)):  # else it is not ours to remove
                self._made.add(layers)
            self._results[layers] = self._against_plain(layers)
            self._tidy()
        return self._results[layers]

    def _against_plain(self, layers: Layers) -> Measured:
        drafting = Speculation("early-exit", verify="block", options=_options(layers, self._exits.n_layers))
        ratios, acceptances, per_pass, n_bytes = [], [], [], 0
        for seed in range(max(PAIRS, len(self._prompts))):
            prompt = self._prompts[seed % len(self._prompts)]
            plain = self._run(prompt, Speculation("plain"), seed)
            ours = self._run(prompt, drafting, seed)
            assert ours.started is not None
            assert ours.started.derived is not None
            n_bytes = ours.started.derived.bytes
            if plain.ms_per_token and ours.ms_per_token:  # an answer may end with its first token
                ratios.append(plain.ms_per_token / ours.ms_per_token)
                acceptances.append(ours.acceptance or 0.0)
                per_pass.append(ours.tokens_per_pass or 1.0)
        if not ratios:
            raise IncompatibleError(
                "the model ends every answer at once, so nothing can be measured", hint="--prompts FILE"
            )
        return Measured(layers, median(acceptances), median(per_pass), median(ratios), n_bytes)

    def _run(self, prompt: str, speculation: Speculation, seed: int) -> Stats:
        sampling = dataclasses.replace(self._sampling, seed=seed)
        request = Request(prompt=prompt, max_tokens=self._n, sampling=sampling, speculation=speculation)
        stats = ask(self._engine, request).stats
        self._engine.leave_if_stopped()
        return stats

    def _tidy(self) -> None:
        """Remove the files that were made here, but for the best one's."""
        best = max(self._results.values(), key=lambda one: one.ratio)
        for layers in self._made - {best.layers}:
            self._exits.discard(layers)
            self._made.discard(layers)


def exits_to_try(n_layers: int) -> list[int]:
    """Return the numbers of first layers worth measuring: all of a small model's, a few of a large one's."""
    if n_layers <= MAX_EXITS:
        return list(range(1, n_layers))
    return sorted({max(1, round(n_layers * part / 16)) for part in SIXTEENTHS})


def _options(layers: Layers, n_layers: int) -> tuple[tuple[str, str], ...]:
    """Return the -o of `localspec run` that chooses these layers."""
    if layers == tuple(range(len(layers))):
        return (("exit", str(len(layers))),)
    return (("skip", ",".join(str(layer) for layer in range(n_layers) if layer not in layers)),)


def _spelt(layers: Layers, n_layers: int) -> str:
    """Return these layers as people type them: exit=2, skip=3,5."""
    ((name, value),) = _options(layers, n_layers)
    return f"{name}={value}"


def read_prompts(name: str) -> tuple[str, ...]:
    """Return the prompts of a text file, one a line; raises NotFoundError or UsageError."""
    prompts = tuple(line for line in file_text(name, f"--prompts {name}").splitlines() if line.strip())
    if not prompts:
        raise UsageError(f"--prompts {name}: the file has no prompt", hint="a text file with a prompt a line")
    return prompts


def _rows(n_layers: int, results: list[Measured]) -> Iterator[tuple[str, ...]]:
    yield ("layers", "accepted", "tok/pass", "speed", "draft")
    for one in results:
        yield (
            _spelt(one.layers, n_layers),
            f"{one.acceptance:.0%}",
            f"{one.tokens_per_pass:.2f}",
            f"{one.ratio:.2f}×",
            f"{one.bytes / 1e6:.1f} MB",
        )


def _table(n_layers: int, results: list[Measured], best: Measured) -> str:
    """Return the table for people, the best marked, and what was kept."""
    rows = zip(aligned(list(_rows(n_layers, results))), [None, *results], strict=True)
    lines = [line + ("  best" if one is best else "") for line, one in rows]
    pays = "" if best.ratio > 1 else ": none pays here, plain decoding is faster"
    lines.append(f"kept: -o {_spelt(best.layers, n_layers)} of {n_layers} layers, {best.ratio:.2f}× plain{pays}")
    return "\n".join(lines) + "\n"


def _as_json(
    exits: Exits, results: list[Measured], best: Measured, prompts: tuple[str, ...], stored: Path, n: int
) -> dict[str, Any]:
    def row(one: Measured) -> dict[str, Any]:
        return {"options": dict(_options(one.layers, exits.n_layers)), **dataclasses.asdict(one)}

    return {
        "model": str(exits.header.path),
        "n_layers": exits.n_layers,
        "n_prompts": len(prompts),
        "max_tokens": n,
        "results": [row(one) for one in results],
        "best": row(best),
        "pays": best.ratio > 1,
        "stored": str(stored),
    }
