"""The JSON object of a bench (localspec.bench/1): rows, the measurements they come from, and where those come from.

There is a row for each temperature and contender. A prompt's rate is the median of its repeats, its ratio that rate
over plain decoding's on the same prompt; the row has the median over prompts with an interval from resampling them.
Answers that ended with their first token have no rate and are left out; those that stopped early count with the tokens
they have.

The measurements come from a machine, models, versions and options. The sha256 of a model file is kept beside its size
and time, for one of 40 GB takes a minute to read.
"""

import contextlib
import dataclasses
import hashlib
import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from localspec.bench.contenders import PLAIN
from localspec.bench.measurement import Measurement
from localspec.bench.statistics import Interval, median_interval, percentile, ratio_interval
from localspec.bench.whole_text import read_text
from localspec.engine.events import Loaded, ModelFacts
from localspec.errors import NotFoundError, UsageError
from localspec.models.hub.pulled import hash_of
from localspec.settings.stores import read_stored, write_stored
from localspec.settings.text_files import did_you_mean

Key = tuple[float, str]  # temperature and contender
RESOLVED = ("method", "tree", "length", "k", "verify")
PER_POSITION, PARTS_MS = ("tested_per_pos", "accepted_per_pos", "reached_per_pos"), ("draft_ms", "verify_ms", "host_ms")
WHOLE_REASONS = ("length",)  # the reasons of answers that have every token asked for


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """The figures of one contender at one temperature. Times in milliseconds, memory in bytes."""

    contender: str
    temperature: float
    method: str
    tree: str
    length: str
    k: int
    verify: str
    n: int  # answers
    n_stopped: int  # of them, those that ended before the tokens asked for
    ratio: Interval | None  # speed over plain decoding's
    tok_per_s: Interval | None
    prompt_per_s: float | None
    ttft_ms: tuple[float | None, float | None]  # p50, p95
    total_ms: tuple[float | None, float | None]
    tokens_per_pass: float | None
    drafted: int  # tokens
    acceptance: float | None
    tested_per_pos: tuple[int, ...]
    accepted_per_pos: tuple[int, ...]
    reached_per_pos: tuple[int, ...]
    draft_ms: float  # of a pass
    verify_ms: float
    host_ms: float
    peak_memory: int  # resident while it answered, models included: the largest of its answers; 0: not known


def rows(measurements: Sequence[Measurement]) -> list[SummaryRow]:
    groups = grouped(measurements)
    order = sorted(groups, key=lambda key: (key[0], key[1] != PLAIN))
    return [_row(groups[key], rates(groups.get((key[0], PLAIN), []))) for key in order]


def grouped(measurements: Iterable[Measurement]) -> dict[Key, list[Measurement]]:
    groups: dict[Key, list[Measurement]] = {}
    for measurement in measurements:
        groups.setdefault((measurement.cell.temperature, measurement.cell.contender), []).append(measurement)
    return groups


def rates(measurements: Iterable[Measurement]) -> dict[int, float]:
    """Return the rate of each prompt: the median tokens a second of its repeats."""
    by_prompt: dict[int, list[float]] = {}
    for measurement in measurements:
        if measurement.tok_per_s is not None:
            by_prompt.setdefault(measurement.cell.prompt, []).append(measurement.tok_per_s)
    return {prompt: median(values) for prompt, values in by_prompt.items()}


def _row(group: list[Measurement], plain: dict[int, float]) -> SummaryRow:
    first, ours = group[0], rates(group)
    both = [prompt for prompt in ours if prompt in plain]
    passes = sum(run.passes for run in group)
    timed = max(1, sum(run.passes - 1 for run in group))  # the prompt's own is told apart
    sums: dict[str, Any] = {name: _summed([getattr(run, name) for run in group]) for name in PER_POSITION}
    sums |= {name: sum(getattr(run, name) for run in group) / timed for name in PARTS_MS}
    return SummaryRow(
        contender=first.cell.contender,
        temperature=first.cell.temperature,
        **{name: getattr(first, name) for name in RESOLVED},
        n=len(group),
        n_stopped=sum(run.reason not in WHOLE_REASONS for run in group),
        ratio=_against(first, [ours[p] for p in both], [plain[p] for p in both]),
        tok_per_s=median_interval(list(ours.values())),
        prompt_per_s=percentile([1e3 * run.prompt_n / run.prefill_ms for run in group if run.prefill_ms], 0.5),
        ttft_ms=_p50_p95([run.ttft_ms for run in group]),
        total_ms=_p50_p95([run.total_ms for run in group]),
        tokens_per_pass=_ratio(sum(run.tokens for run in group), passes),
        drafted=sum(run.drafted for run in group),
        acceptance=_ratio(sum(run.accepted for run in group), sum(run.drafted for run in group)),
        **sums,
        peak_memory=max(run.peak_memory for run in group),
    )


def _against(first: Measurement, ours: list[float], plain: list[float]) -> Interval | None:
    if first.cell.contender == PLAIN and plain:
        return Interval(1.0, None, None, len(plain))
    return ratio_interval(ours, plain, is_paired=True)


def _p50_p95(values: list[float]) -> tuple[float | None, float | None]:
    return percentile(values, 0.5), percentile(values, 0.95)


def _summed(counts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    longest = max(map(len, counts), default=0)
    return tuple(sum(counted[i] for counted in counts if i < len(counted)) for i in range(longest))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


SCHEMA = "localspec.bench/1"
HINT = "a file that localspec bench --json FILE wrote"
Wire = dict[str, Any]


@dataclass(frozen=True)  # no slots: the rows are kept
class BenchResult:
    """A bench as it was written; `row_costs` are milliseconds of a target pass by rows, timed after the answers.

    `skipped` counts prompts that did not fit, and `refused` are the contenders that the pair cannot give, with why.
    """

    provenance: Wire
    measurements: tuple[Measurement, ...]
    is_complete: bool
    skipped: int = 0
    row_costs: tuple[tuple[int, float], ...] = ()
    created: str = ""
    refused: tuple[tuple[str, str], ...] = ()

    @cached_property
    def rows(self) -> list[SummaryRow]:
        return rows(self.measurements)

    @property
    def hashes(self) -> tuple[str | None, str | None]:
        """Return the sha256 of target and draft, None for no draft."""
        pair = self.provenance["pair"]
        return pair["target"]["sha256"], (pair["draft"] or {}).get("sha256")

    def to_wire(self) -> Wire:
        return {
            "schema": SCHEMA,
            "created": self.created,
            "is_complete": self.is_complete,
            "provenance": self.provenance,
            "skipped_prompts": self.skipped,
            "refused": dict(self.refused),
            "results": msgspec.to_builtins(self.rows),
            "row_costs": msgspec.to_builtins(self.row_costs),
            "measurements": msgspec.to_builtins(self.measurements),
        }


def read_result(path: Path) -> BenchResult:
    """Read a file that `to_wire` described. Raises NotFoundError, or UsageError for a file that is something else."""
    text = read_text(path, said=str(path), hint=HINT)
    try:
        wire = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise UsageError(f"{path} is not JSON", hint=HINT) from None
    if not isinstance(wire, dict) or wire.get("schema") != SCHEMA:
        raise UsageError(f"{path} is no result of localspec bench", hint=HINT)
    try:
        result = BenchResult(
            provenance=wire["provenance"],
            measurements=msgspec.convert(wire["measurements"], tuple[Measurement, ...]),
            is_complete=bool(wire["is_complete"]),
            skipped=int(wire.get("skipped_prompts", 0)),
            row_costs=msgspec.convert(wire.get("row_costs") or [], tuple[tuple[int, float], ...]),
            created=str(wire.get("created", "")),
            refused=tuple((str(name), str(why)) for name, why in (wire.get("refused") or {}).items()),
        )
        _ = result.hashes, result.rows, result.provenance["options"].keys()
    except (msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise UsageError(f"{path} is a damaged result of localspec bench", hint=HINT) from None
    return result


CPUINFO = Path("/proc/cpuinfo")


def machine() -> Wire:
    """Return what is known of this machine without asking anything that could fail."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "arch": platform.machine(),
        "processor": _processor() or platform.processor() or "unknown",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _main_memory(),
        "python": platform.python_version(),
    }


def provenance(loaded: Loaded, hashes: tuple[str, str | None], options: Wire) -> Wire:
    """Return everything that must be the same for two results to be of one thing, and what may explain a difference.

    `hashes`: the sha256 of target and draft.
    """
    return {
        "machine": machine(),
        "pair": {
            "name": loaded.name,
            "target": _model_facts(loaded.target, hashes[0]),
            "draft": None if loaded.draft is None else _model_facts(loaded.draft, hashes[1]),
        },
        "versions": dict(loaded.versions),
        "n_ctx": loaded.n_ctx,
        "threads": loaded.threads,
        "options": options,
    }


def _model_facts(facts: ModelFacts, sha256: str | None) -> Wire:
    return {**dataclasses.asdict(facts), "devices": list(facts.devices), "sha256": sha256}


def _main_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _processor() -> str:
    with contextlib.suppress(OSError):
        name = re.search(r"^model name\s*:(.*)", CPUINFO.read_text(errors="replace"), re.MULTILINE)
        return name[1].strip() if name else ""
    return ""


class Hashes:
    """Looks up or computes; `reason` says why nothing could be kept, "" where it was."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.reason = ""

    def sha256(self, path: Path, on_progress: Callable[[float], None] = lambda share: None) -> str:
        """Return the file's hash. Raises NotFoundError where it cannot be read."""
        try:
            status = path.stat()
            key = f"{path}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}"
            known = self.stored()
            if key in known:
                return known[key]
            digest = hash_of(path, lambda done: on_progress(done / max(1, status.st_size)))
        except OSError as error:
            hint = did_you_mean(str(path), "Check the path.")
            raise NotFoundError(f"cannot read {path}: {error.strerror}", hint=hint) from None
        try:
            write_stored(self._file, {**known, key: digest})
        except OSError as error:
            self.reason = error.strerror or str(error)
        return digest

    def of_model(self, parts: Sequence[Path], on_progress: Callable[[float], None] = lambda share: None) -> str:
        """Return the hash of a model: its file's, or that of its parts' hashes. Raises NotFoundError."""
        hashes = [self.sha256(part, on_progress) for part in parts]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()

    def stored(self) -> dict[str, str]:
        """Return the hashes that earlier benches kept, by what tells the files."""
        return read_stored(self._file, dict[str, str]) or {}
