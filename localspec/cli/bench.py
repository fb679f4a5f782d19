"""`localspec bench`: methods against plain decoding on your own pair, and two results against each other."""

import shlex
import sys
from dataclasses import dataclass, replace
from typing import Any

import click

from localspec.bench.compare import compare, require_same_models
from localspec.bench.contenders import PRESETS, parse_contenders, preset
from localspec.bench.result import read_result
from localspec.bench.runner import BenchJob
from localspec.bench.suites import SAMPLES, choose, load_suite
from localspec.cli.bench_outputs import Outputs
from localspec.cli.bench_run import measure, publish
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.fetch import present_settings
from localspec.cli.option_sources import Integer, typed
from localspec.cli.options import ReportOptions, declared_option, model_options, picked, report_options
from localspec.cli.output import lone_error, lone_stop, write_json
from localspec.cli.pair_engine import open_engine
from localspec.cli.params import Command, option
from localspec.cli.settings import PairOptions, promised_settings
from localspec.errors import UsageError
from localspec.sanitize import sanitize
from localspec.settings.declaration import Group
from localspec.settings.folders import typed_path
from localspec.settings.request import Request, Sampling
from localspec.settings.structure import schema_text
from localspec.worker.keep_policy import KeepAlive

MEASURED, OUTPUT = Group("Measurement"), "Output"
COMPARES = ("json", "quiet", "color")
N_PROMPTS, REPEATS, MAX_TOKENS = 8, 2, 128


@dataclass(frozen=True)
class BenchOptions(ReportOptions):
    suite: str
    column: str | None
    prompts: int | None
    is_raw: bool | None
    methods: str | None
    budgets: str | None
    temps: str | None
    max_tokens: int | None
    prompt_tokens: int | None
    schema: str | None
    repeats: int
    warm: bool
    draft_temperature: float | None
    seed: int | None
    preset: str | None
    reproducible: bool
    json_file: str | None
    markdown: str | None
    plots: str | None
    baseline: str | None
    resume: bool


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[PAIR | compare A.json B.json]", shell_complete=pair_names)
@option("--suite", default="stories", metavar="NAME|FILE", section=MEASURED.title,
        help=f"Prompts: {', '.join(SAMPLES)}, or a JSONL file (.gz too).  [default: stories]")  # fmt: skip
@option("--column", metavar="NAME", section=MEASURED.title, help="The field with the prompt.")
@option("--prompts", is_own=True, type=Integer(1, 10**6), metavar="N", section=MEASURED.title,
        help=f"Number of prompts, spread over the suite.  [default: {N_PROMPTS}]")  # fmt: skip
@option("--raw/--chat", "is_raw", default=None, section=MEASURED.title,
        help="Continue the prompts, or use the chat template.  [default: as the suite is made]")  # fmt: skip
@option("--methods", metavar="LIST", section=MEASURED.title,
        help="NAME[:ARGUMENT][:KEY=VALUE], separated by commas: plain, auto, draft-model:k=4, suffix, dyspec:16, "
             "static:3,2,1, draft-model:k=8:verify=coupled.  "
             "[default: plain, auto, and the draft at 4, or suffix]")  # fmt: skip
@option("--budgets", metavar="LIST", section=MEASURED.title,
        help="Values of -k for methods without a size of their own.")  # fmt: skip
@option("--temps", metavar="LIST", section=MEASURED.title, help="Temperatures.  [default: 0,0.8]")
@declared_option(Request, "max_tokens", group=MEASURED, low=2, default_help=str(MAX_TOKENS))
@option("--prompt-tokens", type=Integer(1, 2**31 - 1), metavar="N", section=MEASURED.title,
        help="Cut prompts to their first N tokens.")  # fmt: skip
@declared_option(Request, "schema", group=MEASURED)
@option("-r", "--repeats", type=Integer(1, 1000), default=REPEATS, metavar="N", section=MEASURED.title,
        help=f"Answers of each method to each prompt, in alternating order.  [default: {REPEATS}]")  # fmt: skip
@option("--warm", is_flag=True, section=MEASURED.title,
        help="Measure the engine that is in memory, if it is this pair's: see localspec ps.")  # fmt: skip
@declared_option(Sampling, "draft_temperature", group=MEASURED)
@declared_option(Sampling, "seed", group=MEASURED)
@option("--preset", is_own=True, metavar="NAME", section=MEASURED.title,
        help="; ".join(f"{name}: {preset.about}" for name, preset in PRESETS.items()) + ".")  # fmt: skip
@model_options
@option("--json", "json_file", is_own=True, metavar="FILE|-", section=OUTPUT, help="Everything as one JSON object.")
@option("--markdown", metavar="FILE", section=OUTPUT, help="The table with every column.")
@option("--plots", metavar="FOLDER", section=OUTPUT, help="Figures as PNG and SVG; needs localspec[plots].")
@option("--baseline", metavar="FILE", section=OUTPUT, help="A result of the same models to compare with.")
@option("--resume", is_flag=True, hidden=True, section=OUTPUT)  # of 0.1.0: scripts and config.toml may have it
@report_options
@click.pass_context
def bench(ctx: click.Context, /, words: tuple[str, ...], **values: Any) -> int:
    """Measure the gain of speculation on PAIR, against plain decoding of the same prompts.

    Methods answer each prompt in turn, there and back, each from an empty cache. Figures are medians over prompts with
    bootstrap 95 % intervals; prefill is apart from decoding. An answer that stops early counts with the tokens it has.
    Ctrl-C ends it, and what was measured until then is shown and written.

    localspec bench compare A.json B.json shows the changes between two results. It refuses results of different models
    (exit code 6).
    """
    console: Console = ctx.obj
    options = picked(BenchOptions, values)
    options.apply(console)
    console.on_error = lone_error if options.json_file == "-" else None
    if words[:1] == ("compare",):
        return _compare(ctx, words[1:], options.json_file)
    if len(words) > 1:
        raise UsageError(f"one pair at a time: {len(words)} were given", hint="localspec bench TARGET.gguf+DRAFT.gguf")
    if options.warm and options.log_file is not None:
        raise UsageError("--warm has no log: a warm engine has its own", hint="--warm or --log-file, not both")
    if options.resume:
        console.warn("--resume goes on with nothing any more: all is measured")
    promised = promised_settings(_pair(PairOptions.of(values, words[0] if words else None), options))
    job = _job(options, has_draft=promised.settings.draft is not None)
    outputs = Outputs(options.json_file, options.markdown, options.plots, shlex.join(["localspec", *sys.argv[1:]]))
    outputs.check()
    baseline = None if options.baseline is None else read_result(typed_path(options.baseline))
    settings = present_settings(promised, console)
    with open_engine(console, options.log_file, keep_alive=KeepAlive() if options.warm else None) as engine:
        done = measure(engine, settings, job, baseline)
    try:
        publish(done, outputs, console, baseline)
    except BaseException:
        if done.error is not None:
            console.fail(done.error)  # two things went wrong, and only one is left to be told by others
        raise
    if done.error is not None:
        raise done.error
    if not done.result.measurements and outputs.is_json_alone:
        lone_stop(done.exit_code)
    return done.exit_code


def _compare(ctx: click.Context, names: tuple[str, ...], json_file: str | None) -> int:
    for given in typed(ctx):
        if given.key not in COMPARES:
            raise UsageError(f"bench compare has no --{given.key}", hint="localspec bench compare A B")
    if len(names) != 2:
        raise UsageError(f"bench compare takes two results, not {len(names)}", hint="localspec bench compare A B")
    before, after = (read_result(typed_path(name)) for name in names)
    require_same_models(before, after)
    comparison = compare(before, after)
    if json_file is None:
        write_out(sanitize(comparison.text()))
    elif json_file == "-":
        write_json(comparison.to_wire())
    else:
        raise UsageError("bench compare writes JSON to stdout only", hint="--json -")
    return 0


def _pair(pair: PairOptions, options: BenchOptions) -> PairOptions:
    asked = options.methods or (preset(options.preset).methods if options.preset else "")
    contenders = parse_contenders(asked, has_draft=True) if asked else ()
    must = any(contender.speculation.method == "draft-model" for contender in contenders)
    return replace(pair, takes_draft=must, must_draft=must)


def _job(options: BenchOptions, *, has_draft: bool) -> BenchJob:
    wanted = None if options.preset is None else preset(options.preset)
    is_chat = None if options.is_raw is None else not options.is_raw
    suite = choose(load_suite(options.suite, options.column, is_chat), options.prompts or N_PROMPTS)
    budgets = _numbers("--budgets", options.budgets, int) if options.budgets else ()
    if budgets and min(budgets) < 1:
        raise UsageError(f"--budgets {min(budgets)} is out of range: it must be at least 1", hint="--budgets 4,8,16")
    has_size = bool(budgets) or options.reproducible  # or takes the longest that is reproducible
    drafting = "suffix" if not has_draft else "draft-model" if has_size else "draft-model:k=4"
    methods = options.methods or (wanted.methods if wanted else f"plain,{drafting},auto")
    if options.temps is not None:
        temperatures = _numbers("--temps", options.temps, float)
    else:
        temperatures = wanted.temperatures if wanted else (0.0, 0.8)
    draft = options.draft_temperature
    if draft is None and wanted is not None:
        draft = wanted.draft_temperature
    job = BenchJob(
        suite=suite,
        contenders=parse_contenders(methods, budgets, has_draft=has_draft),
        temperatures=temperatures,
        repeats=options.repeats,
        max_tokens=options.max_tokens or (wanted.max_tokens if wanted else MAX_TOKENS),
        prompt_tokens=options.prompt_tokens or (wanted.prompt_tokens if wanted else None),
        seed=options.seed,
        sampling=Sampling(draft_temperature=draft),
        schema=None if options.schema is None else schema_text(options.schema),
    )
    for cell in job.cells():
        job.request(cell).check()
    return job


def _numbers(name: str, text: str, kind: Any) -> tuple[Any, ...]:
    try:
        numbers = tuple(dict.fromkeys(kind(word) for word in text.replace(",", " ").split()))
    except ValueError:
        numbers = ()
    if not numbers:
        example = "0,0.8" if kind is float else "4,8,16"
        raise UsageError(f"{name} {text!r} is not a list of numbers", hint=f"{name} {example}")
    return numbers
