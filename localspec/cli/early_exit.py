"""`localspec early-exit tune`: which of a model's layers draft best for it, by measured tokens per second."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from localspec.bench.answers import ask
from localspec.bench.exit_survey import ExitSurvey, MeasuredExit, layer_options, spelt_layers
from localspec.cli.complete import pair_names
from localspec.cli.console import Console
from localspec.cli.option_sources import Integer
from localspec.cli.options import ReportOptions, declared_option, picked, report_options
from localspec.cli.output import write_result
from localspec.cli.pair_engine import open_engine
from localspec.cli.params import Command, CommandGroup, json_option, option
from localspec.errors import UsageError
from localspec.models.exit_files import Exits, Layers, Tuned, require_prunable
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model
from localspec.models.store import find_model
from localspec.settings.declaration import Group
from localspec.settings.folders import cache_folder
from localspec.settings.request import LoadSettings, Request, Sampling
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
MEASURED = Group("Measurement")


@click.group(cls=CommandGroup, no_args_is_help=False)  # click's help would come as an error of many lines
def early_exit() -> None:
    """Drafting with some of a model's own layers: see localspec run --method early-exit."""


@dataclass(frozen=True)
class TuneOptions(ReportOptions):
    prompts: str | None
    max_tokens: int
    skips: int
    as_json: bool


@early_exit.command(cls=Command)
@click.argument("model", shell_complete=pair_names)
@option("--prompts", is_own=True, metavar="FILE", section=MEASURED.title,
        help="A prompt a line.  [default: story openings]")  # fmt: skip
@declared_option(Request, "max_tokens", group=MEASURED, low=8, default=64, default_help="")
@declared_option(Sampling, "temperature", group=MEASURED)
@option("--skips", type=Integer(0, 512), default=0, metavar="N", section=MEASURED.title,
        help="Try also to leave out up to N layers, each time the one that costs least.  [default: 0]")  # fmt: skip
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
    texts = OPENINGS if options.prompts is None else read_prompts(options.prompts)
    exits = Exits(header, cache_folder("early-exit"))
    settings = LoadSettings(str(path), name=path.name, threads=threads, gpu=gpu, draft_gpu=gpu)
    made = set[Layers]()
    with _removing(made, exits), open_engine(console, options.log_file) as engine:
        engine.load(settings)
        engine.leave_if_stopped()

        def answer(request: Request) -> Stats:
            stats = ask(engine, request).stats
            engine.leave_if_stopped()
            return stats

        def say(layers: str) -> None:
            engine.live.status(f"measuring {layers} of {exits.n_layers} layers")

        sampling = Sampling(temperature=temperature)
        asked = tuple(Request(prompt=text, max_tokens=options.max_tokens, sampling=sampling) for text in texts)
        results = ExitSurvey(answer, exits, made, asked, say).measure_all(options.skips)
    best = max(results, key=lambda measured: measured.ratio)
    stored = exits.store(Tuned(best.layers, best.ratio))
    wire = _as_json(exits, results, best, texts, stored, options.max_tokens)
    return write_result(wire, _table(exits.n_layers, results, best), as_json=options.as_json)


@contextmanager
def _removing(made: set[Layers], exits: Exits) -> Iterator[None]:
    """Remove the files of `made` where the block ends early, once the engine is gone, which might make another."""
    try:
        yield
    except BaseException:
        for layers in made:
            exits.discard(layers)
        raise


def read_prompts(name: str) -> tuple[str, ...]:
    prompts = tuple(line for line in file_text(name, f"--prompts {name}").splitlines() if line.strip())
    if not prompts:
        raise UsageError(f"--prompts {name}: the file has no prompt", hint="a text file with a prompt a line")
    return prompts


def _table(n_layers: int, results: list[MeasuredExit], best: MeasuredExit) -> str:
    rows = [("layers", "accepted", "tok/pass", "speed", "draft")]
    for each in results:
        layers, n_bytes = spelt_layers(each.layers, n_layers), f"{each.bytes / 1e6:.1f} MB"
        rows.append((layers, f"{each.acceptance:.0%}", f"{each.tokens_per_pass:.2f}", f"{each.ratio:.2f}×", n_bytes))
    lines = aligned(rows)
    lines[1 + results.index(best)] += "  best"
    pays = "" if best.ratio > 1 else ": none pays here, plain decoding is faster"
    lines.append(f"kept: -o {spelt_layers(best.layers, n_layers)} of {n_layers} layers, {best.ratio:.2f}× plain{pays}")
    return "\n".join(lines)


def _as_json(
    exits: Exits, results: list[MeasuredExit], best: MeasuredExit, prompts: tuple[str, ...], stored: Path, n: int
) -> dict[str, Any]:
    def row(measured: MeasuredExit) -> dict[str, Any]:
        return {"options": dict(layer_options(measured.layers, exits.n_layers)), **dataclasses.asdict(measured)}

    return {
        "model": str(exits.header.path),
        "n_layers": exits.n_layers,
        "n_prompts": len(prompts),
        "max_tokens": n,
        "results": [row(measured) for measured in results],
        "best": row(best),
        "pays": best.ratio > 1,
        "stored": str(stored),
    }
