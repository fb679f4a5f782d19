"""`localspec calibrate --machine`: how fast this machine's devices go through weights, measured and kept."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from localspec.cli.ask import ask_lines
from localspec.cli.console import Console, one_line, write_out
from localspec.cli.live import Live
from localspec.cli.output import write_json
from localspec.cli.params import Command, option
from localspec.cli.settings import servers
from localspec.cli.version import ask_engine
from localspec.config import cache_folder
from localspec.errors import ResourceError, UsageError
from localspec.models.plan.calibration import Calibration, Figure, store

_IMPORTS = "import dataclasses\nfrom localspec.backends.bandwidth import measure"


@click.command(cls=Command)
@option("--machine", is_flag=True, section="What", help="The memory and arithmetic of each device.")
@option("--rpc", metavar="HOST:PORT,...", section="What", help="RPC servers whose devices are measured too.")
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@click.pass_obj
def calibrate(console: Console, /, machine: bool, rpc: str | None, as_json: bool) -> int:
    """Measure once what predictions rest on, and keep it: localspec plan and --gpu auto read it from then on.

    Every device multiplies matrices of several types by 1 to 16 columns, larger together than its caches. Nothing else
    should run meanwhile; it takes about a minute.
    """
    if not machine:
        raise UsageError("there is nothing to calibrate", hint="localspec calibrate --machine")
    live, figures = Live(console), []
    imports = f"{_IMPORTS}\nfrom localspec.backends.rpc import add_servers\nadd_servers({servers(rpc)!r})"
    engine = ask_engine()
    try:
        live.status("measuring this machine")
        for one in ask_lines("(dataclasses.asdict(one) for one in measure())", imports):
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
    lines = ["GB/s of weights, by the rows of a pass".ljust(34) + "".join(f"{n:>8}" for n in rows)]
    for device, kind in dict.fromkeys((one.device, one.type) for one in calibration.figures):
        found = {one.rows: one for one in calibration.figures if (one.device, one.type) == (device, kind)}
        cells = (f"{found[n].bytes_per_s / 1e9:.1f}" if n in found else "-" for n in rows)
        lines.append(f"{one_line(device)}, {kind}".ljust(34) + "".join(f"{cell:>8}" for cell in cells))
    return "\n".join(lines) + "\n"
