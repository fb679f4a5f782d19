"""`localspec calibrate`: what the controller and predictions rest on, measured of a pair or of the machine.

It also measures how fast the devices of this machine read weights, and keeps that: `localspec calibrate --machine`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from localspec.bench.answers import SurveyReport, survey
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.fetch import present_settings
from localspec.cli.live import Live
from localspec.cli.option_sources import typed
from localspec.cli.options import ReportOptions, pair_options, picked, report_options
from localspec.cli.output import lone_stop, write_json
from localspec.cli.pair_engine import open_engine
from localspec.cli.params import Command, Positive, json_option, option
from localspec.cli.settings import PairOptions, promised_settings, rpc_servers
from localspec.cli.staircase import staircase
from localspec.cli.version import ask_engine
from localspec.errors import ResourceError, UsageError
from localspec.models.ollama import spoken
from localspec.models.plan.calibration import Calibration, Figure, store
from localspec.sanitize import one_line
from localspec.settings.folders import cache_folder
from localspec.settings.jobs import SurveyRequest
from localspec.settings.lone_jobs import MeasureBandwidths
from localspec.settings.request import LoadSettings
from localspec.ui.columns import aligned
from localspec.worker.ask import answers

SCHEMA = "localspec.calibration/1"
OUTPUT = "Output"
MACHINE = {"machine", "rpc", "json", "quiet", "color"}  # what goes with --machine
BOTH = "localspec calibrate PAIR, or localspec calibrate --machine"


@dataclass(frozen=True)
class CalibrateOptions(ReportOptions):
    """Values of the options that are no settings."""

    machine: bool
    seconds: float
    as_json: bool


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[PAIR]", shell_complete=pair_names)
@option("--machine", is_flag=True, section="What", help="The memory and arithmetic of each device, without a pair.")
@option("--seconds", type=Positive(86400), default=10.0, metavar="SEC", section="What",
        help="Time for the passes of a pair; loading takes its own.  [default: 10]")  # fmt: skip
@pair_options
@json_option
@report_options
@click.pass_context
def calibrate(ctx: click.Context, /, words: tuple[str, ...], **values: Any) -> int:
    """Measure the cost of passes once, and keep it. Nothing else should run meanwhile.

    PAIR: passes of the target by their rows, and passes of the draft, at an empty context and deep in one. --method
    auto starts from these costs in later runs with the same models, devices, threads and cache. The table shows free
    rows and cliffs.

    --machine: every device multiplies matrices of several types by 1 to 16 columns, which takes about a minute.
    localspec plan and --gpu auto use the result.
    """
    console: Console = ctx.obj
    options = picked(CalibrateOptions, values)
    options.apply(console)
    if options.machine:
        _check_machine(ctx, words)
        return measure_machine(console, rpc_servers(values["rpc"]), as_json=options.as_json)
    if not words:
        raise UsageError("name a pair to calibrate", hint=BOTH)
    if len(words) > 1:
        raise UsageError(f"one pair at a time: {len(words)} were given", hint="localspec calibrate TARGET+DRAFT")
    return _pair(console, present_settings(promised_settings(PairOptions.of(values, words[0])), console), options)


def _check_machine(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Refuse what has no meaning without a pair."""
    if words:
        raise UsageError("--machine measures the machine, without a pair", hint=BOTH)
    for given in typed(ctx):
        if given.key not in MACHINE:
            raise UsageError(f"--machine has no --{given.key}", hint="localspec calibrate --machine")


def _pair(console: Console, settings: LoadSettings, options: CalibrateOptions) -> int:
    asked = SurveyRequest(seconds=options.seconds, is_kept=True)
    with open_engine(console, options.log_file) as engine:

        def progress(what: str, share: float) -> None:
            engine.live.status(f"timing passes of the {what} {share:.0%}")

        found = None if engine.load(settings) is None else survey(engine, asked, progress)
    if found is not None:
        _tell(found, asked, settings, console, as_json=options.as_json)
    elif options.as_json:
        lone_stop(engine.stop.exit_code)
    return engine.stop.exit_code


def _tell(
    found: SurveyReport, asked: SurveyRequest, settings: LoadSettings, console: Console, *, as_json: bool
) -> None:
    profile = found.content["profile"]
    if not profile["is_kept"]:
        console.warn(f"{Path(profile['file']).parent} cannot be written, so these costs are not kept")
    if as_json:
        write_json({"schema": SCHEMA, "pair": settings.name, **found.content})
        return
    draft = "no draft" if settings.draft is None else spoken(settings.draft, briefly=True)
    write_out(f"{spoken(settings.target, briefly=True)}, {draft}\n\n" + staircase(found.content, asked))
    if profile["is_kept"]:
        write_out(f"kept in {one_line(profile['file'])}\n")


def measure_machine(console: Console, endpoints: tuple[str, ...], *, as_json: bool) -> int:
    """Measure every device, those of RPC servers at `endpoints` too; keep and show it."""
    live, figures = Live(console), []
    engine = ask_engine()
    try:
        live.status("measuring this machine")
        for one in answers(MeasureBandwidths(endpoints)):
            figures.append(
                Figure(one["device"], one["description"], one["type"], int(one["rows"]), float(one["bytes_per_s"]))
            )
            live.status(f"{one['device']}, {one['type']}, {one['rows']} rows: {one['bytes_per_s'] / 1e9:.1f} GB/s")
    finally:
        live.erase()
    if not figures:
        raise ResourceError("no device could be measured: each lacked the memory", hint="close other programs")
    measured = datetime.now(UTC).date().isoformat()
    calibration = Calibration(measured, engine.llama_cpp, tuple(figures))
    path = store(cache_folder("machine"), calibration)
    if as_json:
        write_json({**calibration.to_wire(), "stored": str(path)})
    else:
        write_out(_table(calibration) + f"kept in {one_line(str(path))}\n")
    return 0


def _table(calibration: Calibration) -> str:
    rows = sorted({one.rows for one in calibration.figures})
    lines = [("GB/s of weights, by the rows of a pass", *map(str, rows))]
    for device, kind in dict.fromkeys((one.device, one.type) for one in calibration.figures):
        found = {one.rows: one for one in calibration.figures if (one.device, one.type) == (device, kind)}
        cells = (f"{found[n].bytes_per_s / 1e9:.1f}" if n in found else "-" for n in rows)
        lines.append((f"{one_line(device)}, {kind}", *cells))
    return "\n".join(aligned(lines)) + "\n"
