"""`localspec calibrate`: how fast the devices of this machine read weights, measured and kept."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from localspec.cli.console import Console
from localspec.cli.live import Live
from localspec.cli.options import ReportOptions, declared_option, picked, report_options
from localspec.cli.output import write_result
from localspec.cli.params import Command, json_option, option
from localspec.cli.settings import rpc_servers
from localspec.cli.version import ask_engine
from localspec.errors import ResourceError
from localspec.models.plan.calibration import Calibration, Figure, store
from localspec.sanitize import one_line
from localspec.settings.folders import cache_folder
from localspec.settings.lone_jobs import MeasureBandwidths
from localspec.settings.removed import check_removed
from localspec.settings.request import LoadSettings
from localspec.ui.columns import aligned
from localspec.worker.lone_jobs import answers


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="")
@option("--machine", is_flag=True, section="What", help="Memory and arithmetic of each device: what it always does.")
@declared_option(LoadSettings, "rpc")
@json_option
@report_options
@click.pass_obj
def calibrate(
    console: Console, /, words: tuple[str, ...], machine: bool, rpc: str | None, as_json: bool, **values: Any
) -> int:
    """Measure this machine once, and keep the figures. Nothing else should run meanwhile.

    Every device multiplies matrices of several types by 1 to 16 columns, which takes about a minute. localspec plan and
    --gpu auto use the result. Passes of a pair are timed by localspec plan PAIR --measure.
    """
    picked(ReportOptions, values).apply(console)
    if words:
        check_removed("calibrate PAIR")
    live, figures = Live(console), []
    engine = ask_engine()
    try:
        live.status("measuring this machine")
        for row in answers(MeasureBandwidths(rpc_servers(rpc))):
            figures.append(
                Figure(row["device"], row["description"], row["type"], int(row["rows"]), float(row["bytes_per_s"]))
            )
            live.status(f"{row['device']}, {row['type']}, {row['rows']} rows: {row['bytes_per_s'] / 1e9:.1f} GB/s")
    finally:
        live.erase()
    if not figures:
        raise ResourceError("no device could be measured: each lacked the memory", hint="close other programs")
    measured = datetime.now(UTC).date().isoformat()
    calibration = Calibration(measured, engine.llama_cpp, tuple(figures))
    path = store(cache_folder("machine"), calibration)
    text = _table(calibration) + f"kept in {one_line(str(path))}"
    return write_result({**asdict(calibration), "stored": str(path)}, text, as_json=as_json)


def _table(calibration: Calibration) -> str:
    rows = sorted({each.rows for each in calibration.figures})
    lines = [("GB/s of weights, by the rows of a pass", *map(str, rows))]
    for device, kind in dict.fromkeys((each.device, each.type) for each in calibration.figures):
        figures = {each.rows: each for each in calibration.figures if (each.device, each.type) == (device, kind)}
        cells = (f"{figures[n].bytes_per_s / 1e9:.1f}" if n in figures else "-" for n in rows)
        lines.append((f"{one_line(device)}, {kind}", *cells))
    return "\n".join(aligned(lines)) + "\n"
