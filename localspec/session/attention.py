"""Which kind of attention a target on a processor has, and its price, as `localspec calibrate --attention` found."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.backends.build import build_info
from localspec.backends.context import context_size
from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.model import Model
from localspec.backends.options import LoadOptions
from localspec.control.attention import READING, ROWS, AttentionTimes
from localspec.engine import events
from localspec.engine.protocols import Cancel
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.session.attention_survey import depths_of, differs, time_attention
from localspec.settings.folders import cache_folder
from localspec.settings.sizes import counted

NOTHING = AttentionTimes({})
FREE = "exact rows cost under 3 % here, so each row is computed as if it were alone (--flash-attn off: together)"
NEAR = 0.1  # of the time without: a price that moved by less is not told again


@dataclass(slots=True)
class AttentionPrice:
    """What an answer is told of its kind of attention. `is_reproducible`: --reproducible asked for it."""

    times: AttentionTimes
    kind: str
    is_reproducible: bool = False
    is_default: bool = False  # nobody asked for it
    _told: tuple[float, ...] | None = None

    def line(self, depth: int) -> str:
        """Return the price at `depth` tokens; "" where nobody asked for a kind, or it was told and has not moved."""
        if self.kind not in ("on", "mixed"):
            return ""
        ratios = [self.times.ratio(self.kind, rows, depth) for rows in ROWS]
        now = tuple(one.middle for one in ratios if one is not None)
        if self._told is not None and _are_near(now, self._told):
            return ""
        self._told = now
        if self.is_default:
            return FREE
        what = "--reproducible" if self.is_reproducible else "--flash-attn on"
        if not now:
            doubt = "" if self.is_reproducible else ", and several rows may take far longer deep in a text"
            return f"{what}: its price is not measured{doubt}: localspec calibrate PAIR --attention"
        names = ["reading" if rows == READING else counted(rows, "row") for rows in ROWS]
        told = ", ".join(f"{name} {one:.2f}" for name, one in zip(names, now, strict=True))
        return f"{what}: at {depth} tokens passes take, of the time with --flash-attn off: {told}"


def _are_near(some: Sequence[float], others: Sequence[float]) -> bool:
    return len(some) == len(others) and all(abs(a - b) <= NEAR for a, b in zip(some, others, strict=True))


def settled(model: Model, options: LoadOptions) -> LoadOptions:
    """Return the options with exact rows where nobody asked for a kind and they were measured to cost nothing."""
    if options.flash_attn != "auto" or options.reproducible or not differs(model, options):
        return options
    best = _read(_file(model, options)).best(context_size(model, options))
    return replace(options, flash_attn="mixed") if best == "mixed" else options


def price_of(backend: LlamaBackend, asked: LoadOptions) -> AttentionPrice | None:
    """Return the price of a loaded model's attention, None where there is no choice.

    `asked` are the options before anything was settled.
    """
    kind = backend.options.flash_attn
    if not differs(backend.model, asked):
        return None
    times = _read(_file(backend.model, asked))
    return AttentionPrice(times, kind, asked.reproducible, kind == "mixed" and not asked.reproducible)


def survey_attention(backend: LlamaBackend, cancel: Cancel) -> events.EventsThen[AttentionTimes]:
    """Measure what the kinds cost up to the end of the context, with reading a prompt, and keep it."""
    model, options = backend.model, backend.model.options
    if not differs(model, options):
        return NOTHING
    depths, timed = depths_of(context_size(model, options)), replace(options, threads=backend.threads)
    run = events.Returning(time_attention(model, timed, depths, ROWS, cancel))
    for share in run:
        yield events.Loading("kinds of attention", share)
    if run.result.seconds:
        _write(_file(model, options), run.result)
    return run.result


def _file(model: Model, options: LoadOptions) -> Path:
    """Return where the times are kept: by files, placement, threads, the cache's type and the build of llama.cpp."""
    build = build_info()
    adapters = [(file_fingerprint(Path(path)), scale) for path, scale in options.adapters]
    facts = (file_fingerprint(model.path), adapters, options.threads, options.kv_type, options.placement)
    named = repr((1, *facts, model.is_repacked, build.llama_cpp, build.system_info))
    return cache_folder("attention") / f"{hashlib.sha256(named.encode()).hexdigest()[:24]}.json"


def _read(file: Path) -> AttentionTimes:
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
        return AttentionTimes.from_wire(json.loads(file.read_text(encoding="utf-8")))
    return NOTHING


def _write(file: Path, found: AttentionTimes) -> None:
    part = file.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):  # a read-only cache: it is not known at the next load
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(found.to_wire()), encoding="utf-8")
        part.replace(file)
