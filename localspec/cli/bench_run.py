"""A bench on its way: loading, progress, interruption, and what is shown and kept of it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from localspec.bench.answers import MeasuringWorker, survey
from localspec.bench.compare import ResultComparison, compare, require_same_models
from localspec.bench.measurement import Measurement
from localspec.bench.result import BenchResult, Hashes, Wire, provenance
from localspec.bench.runner import BenchJob, BenchProgress, Runner
from localspec.bench.table import text
from localspec.cli.bench_outputs import Outputs, wire
from localspec.cli.console import Console, write_out
from localspec.cli.live import Live
from localspec.cli.output import write_json
from localspec.cli.pair_engine import PairEngine
from localspec.cli.signals import Stop
from localspec.errors import LocalspecError
from localspec.models.exit_files import Exits, Layers
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model
from localspec.sanitize import one_line, sanitize
from localspec.settings.folders import cache_folder
from localspec.settings.jobs import SurveyRequest
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import duration

BAR = 20  # characters
PASSES = SurveyRequest(seconds=1.5, is_deep=False)  # after the answers


@dataclass(frozen=True, slots=True)
class Done:
    """The measurements, and the exit code: that of a signal if one came."""

    result: BenchResult
    exit_code: int
    error: LocalspecError | None = None


class _Stopped(Exception):
    """A stop was asked for while no request was running that could be cancelled."""


def measure(engine: PairEngine, settings: LoadSettings, job: BenchJob, baseline: BenchResult | None) -> Done:
    stop = engine.stop
    try:
        hashes = _hashes(settings, engine.live, engine.console, stop)
    except _Stopped:
        return Done(BenchResult({}, (), is_complete=False), stop.exit_code)
    pair = {"target": {"sha256": hashes[0]}, "draft": hashes[1] and {"sha256": hashes[1]}}
    result = BenchResult({"pair": pair}, (), is_complete=False)  # enough to refuse a baseline of another pair
    if baseline is not None:
        require_same_models(baseline, result)
    loaded = engine.load(settings)
    if loaded is None:
        return Done(result, stop.exit_code)
    result = dataclasses.replace(
        result,
        provenance=provenance(loaded, hashes, _options(job, settings)),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    result, error = _measure(engine, job, result)
    return Done(result, stop.exit_code, error)


def publish(done: Done, outputs: Outputs, console: Console, baseline: BenchResult | None = None) -> None:
    """Write everything that was asked for, nothing if nothing was measured. Files come first, for standard output may
    be gone or full, which is no reason to leave them out; and what a file cannot take is shown all the same."""
    if not done.result.measurements:
        return
    comparison = None if baseline is None else compare(baseline, done.result)
    try:
        outputs.write(done.result, comparison)
    finally:
        _show(done.result, comparison, outputs, console)


def _show(result: BenchResult, comparison: ResultComparison | None, outputs: Outputs, console: Console) -> None:
    if outputs.is_json_alone:
        console.on_error = None  # the one object is the result
        write_json(wire(result, comparison))
        return
    write_out(sanitize(text(result)))
    if comparison is not None:
        write_out("\nagainst the baseline:\n" + sanitize(comparison.text()))


def _measure(engine: PairEngine, job: BenchJob, result: BenchResult) -> tuple[BenchResult, LocalspecError | None]:
    live, console = engine.live, engine.console
    runner, measurements, ended = Runner(engine, job), list[Measurement](), None
    is_ended = False
    try:
        for measurement in runner.run(engine.is_stopped, lambda progress: live.status(_status(progress))):
            measurements.append(measurement)
        is_ended = not engine.is_stopped()
    except LocalspecError as error:
        if not measurements:
            raise
        ended = error
    finally:
        live.erase()
    for warning in (*runner.warnings, *(f"{name} was left out: {why}" for name, why in runner.refused.items())):
        console.warn(warning)
    costs = _row_costs(engine, console) if is_ended else ()
    measured = dataclasses.replace(
        result,
        measurements=tuple(measurements),
        is_complete=is_ended,
        skipped=len(runner.skipped),
        row_costs=costs,
        refused=tuple(runner.refused.items()),
    )
    return measured, ended


def _row_costs(worker: MeasuringWorker, console: Console) -> tuple[tuple[int, float], ...]:
    try:
        surveyed = survey(worker, PASSES)
    except LocalspecError as error:  # the answers are worth more
        console.warn(f"passes were not timed: {error.message}")
        return ()
    return () if surveyed is None else max(surveyed.row_costs, surveyed.known_costs, key=len)


def _hashes(settings: LoadSettings, live: Live, console: Console, stop: Stop) -> tuple[str, str | None]:
    hashes = Hashes(cache_folder("bench") / "sha256.json")

    def hashed(path: str) -> str:
        header = read_model(Path(path))
        model_info(header, may_be_head=True)  # no minute of hashing for a file that is no model, or has no end
        return hashes.of_model(header.files, _telling(live, f"hashing {one_line(Path(path).name)}", stop))

    digests = hashed(settings.target), None if settings.draft is None else hashed(settings.draft)
    if hashes.reason:
        console.warn(f"hashes of models are not kept: {hashes.reason}")
    if stop.is_asked:  # hashes that were kept are read without a word
        raise _Stopped
    return digests


def _telling(live: Live, what: str, stop: Stop) -> Callable[[float], None]:
    def tell(share: float) -> None:
        if stop.is_asked:
            raise _Stopped
        if live.is_due:
            live.status(f"{what} {share:.0%}")

    return tell


def _options(job: BenchJob, settings: LoadSettings) -> Wire:
    held = dataclasses.asdict(settings)
    for name in ("target", "draft", "name", "expected"):
        del held[name]
    layers = _exit_layers(job, settings)
    return {
        **({} if job.schema is None else {"schema": job.schema}),
        **({} if layers is None else {"early_exit": list(layers)}),  # after another tuning it is another method
        "suite": job.suite.name,
        "suite_sha256": job.suite.sha256,
        "n_prompts": len(job.suite.prompts),
        "raw": not job.suite.is_chat,
        "methods": {contender.name: dataclasses.asdict(contender.speculation) for contender in job.contenders},
        "temperatures": list(job.temperatures),
        "repeats": job.repeats,
        "max_tokens": job.max_tokens,
        "prompt_tokens": job.prompt_tokens,
        "seed": job.seed,
        "sampling": dataclasses.asdict(job.sampling),
        "load": held,
    }


def _exit_layers(job: BenchJob, settings: LoadSettings) -> Layers | None:
    methods = {contender.speculation.method for contender in job.contenders}
    is_named, is_offered = "early-exit" in methods, "auto" in methods and settings.draft is None
    if not (is_named or is_offered):
        return None
    exits = Exits(read_model(Path(settings.target)), cache_folder("early-exit"))
    tuned = exits.tuned() if is_named else None
    return exits.paying() if tuned is None else tuned.layers


def _status(progress: BenchProgress) -> str:
    full = BAR * progress.done // max(1, progress.total)
    left = "" if progress.left_s is None else f" · {duration(progress.left_s)} left"
    bar = "█" * full + "░" * (BAR - full)
    return (
        f"{bar} {progress.done}/{progress.total}{left} · {progress.cell.contender} at T={progress.cell.temperature:g}"
    )
