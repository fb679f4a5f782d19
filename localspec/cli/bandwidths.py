"""Measures how fast the devices of this machine read weights, and keeps that: `localspec calibrate --machine`."""

from __future__ import annotations

from datetime import UTC, datetime

from localspec.cli.console import Console, write_out
from localspec.cli.live import Live
from localspec.cli.output import write_json
from localspec.cli.version import ask_engine
from localspec.errors import ResourceError
from localspec.models.plan.calibration import Calibration, Figure, store
from localspec.sanitize import one_line
from localspec.settings.folders import cache_folder
from localspec.settings.jobs import MeasureBandwidths
from localspec.worker.ask import answers


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
    lines = ["GB/s of weights, by the rows of a pass".ljust(34) + "".join(f"{n:>8}" for n in rows)]
    for device, kind in dict.fromkeys((one.device, one.type) for one in calibration.figures):
        found = {one.rows: one for one in calibration.figures if (one.device, one.type) == (device, kind)}
        cells = (f"{found[n].bytes_per_s / 1e9:.1f}" if n in found else "-" for n in rows)
        lines.append(f"{one_line(device)}, {kind}".ljust(34) + "".join(f"{cell:>8}" for cell in cells))
    return "\n".join(lines) + "\n"
