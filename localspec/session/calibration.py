"""What the passes of a loaded pair cost: what earlier runs remember of it, or a survey.

A survey also counts how often the process waited for the disk meanwhile.

The widths of passes that give every row the bits that it has alone. They are measured, since kernels differ.

A width is exact if, at every depth that was tried, its rows equal those of passes of one row, bit for bit; and the rows
that follow do so too, also after a part of the pass was rolled back: then it left the same entries in the cache.
"""

from __future__ import annotations

import resource
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from localspec.backends.build import build_info
from localspec.backends.limits import physical_cores
from localspec.backends.llama_cpp import LlamaBackend
from localspec.control.prices import Prices
from localspec.control.profile import Profile
from localspec.control.timing import DRAFT_SIZES, SHARES, ModelTimes, prices_of, time_model
from localspec.engine import events
from localspec.engine.distribution import Ids
from localspec.engine.protocols import Backend, Cancel, Cancelled, Clock, Logits
from localspec.models.gguf.header import file_fingerprint
from localspec.session.loaded_model import LoadedModel
from localspec.settings.folders import cache_folder
from localspec.settings.jobs import SurveyRequest
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import counted

WIDEST = 16  # rows: the longest chain that is drafted by default fits
DEPTHS = (8, 250, 600)  # tokens before the first row: llama.cpp attends in another way from 257 tokens on
ENOUGH = DEPTHS[-1] + 64  # positions of a context in which all depths are tried
STEPS = (4, WIDEST)  # widths are tried up to the first, and only if all of these are exact up to the next


def exact_widths(backend: Backend, cancel: Cancel) -> Generator[float, None, tuple[int, ...]]:
    """Return the widths 1 to m that are exact, and yield how far the measurement is.

    The cache is empty before and after. Raises Cancelled.
    """
    capabilities = backend.capabilities
    is_kept = capabilities.can_rollback and not capabilities.replays  # or a rejection makes the next pass wider
    widest = min(WIDEST, capabilities.max_rows) if is_kept else 1
    text = np.random.default_rng(0).integers(capabilities.n_vocab, size=ENOUGH, dtype=np.int32)
    depths = [depth for depth in DEPTHS if depth + _rows_for(widest) <= capabilities.n_ctx]
    widest = widest if depths else 1
    try:
        for done, depth in enumerate(depths):
            yield done / len(depths)
            if widest > 1:
                widest = _exact_at(backend, text, depth, widest, cancel)
    finally:
        backend.truncate(0)
    return tuple(range(1, widest + 1))


def _exact_at(backend: Backend, text: Ids, depth: int, widest: int, cancel: Cancel) -> int:
    """Return the widest of the passes 1 to `widest` that are exact after the first `depth` tokens of `text`."""
    backend.truncate(0)  # an inexact pass may have left entries
    backend.prefill(text[:depth], cancel)
    exact = 1
    for step in STEPS:
        alone: list[Logits] = []
        for at in range(depth, depth + _rows_for(min(step, widest))):
            alone += _rows(backend, text[at : at + 1], 1, cancel)
        while exact < min(step, widest):
            backend.truncate(depth)
            if not _is_exact(backend, text[depth:], exact + 1, alone, cancel):
                return exact
            exact += 1
        backend.truncate(depth)
        if exact == widest:
            break
    return exact


def _is_exact(backend: Backend, text: Ids, width: int, alone: Sequence[Logits], cancel: Cancel) -> bool:
    """Whether passes of `width`, each followed by one of one row, give the rows of `alone`.

    Of each pass another share of the rows is kept. The others hold other tokens than `text` has there.
    """
    at = 0
    for kept in _shares(width):
        tokens = np.concatenate((text[at : at + kept], text[len(text) - width + kept :]))
        rows = _rows(backend, tokens, kept, cancel) + _rows(backend, text[at + kept : at + kept + 1], 1, cancel)
        for row in rows:
            if not np.array_equal(row.view(np.uint32), alone[at].view(np.uint32)):
                return False
            at += 1
    return True


def _rows(backend: Backend, tokens: Ids, kept: int, cancel: Cancel) -> list[Logits]:
    """Evaluate `tokens` in one pass, keep the first `kept`, and return their rows."""
    if cancel():
        raise Cancelled
    rows = backend.extend(tokens, range(-1, len(tokens) - 1))
    found = [rows.logits(node).copy() for node in range(kept)]
    backend.keep(tuple(range(kept)))
    return found


def _shares(width: int) -> tuple[int, int, int]:
    return width, 1, (width + 1) // 2


def _rows_for(width: int) -> int:
    """Return how many rows alone a width is compared with."""
    return sum(_shares(width)) + len(_shares(width))


STATUS = Path("/proc/self/status")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PairTimes:
    """What a survey measured of a pair; `facts` travel as they are."""

    target: ModelTimes
    draft: ModelTimes | None
    facts: dict[str, Any]

    def prices(self, calibrated: float) -> Prices:
        """Return what a profile keeps, `calibrated` seconds after 1970."""
        return prices_of(self.target, self.draft, calibrated)

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object; times in milliseconds."""
        draft = None if self.draft is None else self.draft.to_wire()
        return {"target": self.target.to_wire(), "draft": draft, **self.facts}


def remembered(pair: Sequence[LoadedModel], settings: LoadSettings) -> Profile:
    """Return the profile of what is loaded, target first, with these settings, placed as it is, on this machine."""
    build = build_info()
    facts: list[object] = [settings.gpu, settings.draft_gpu, settings.kv_type, settings.mmap]
    for one in pair:
        backend, model = one.backend, one.model
        facts += [backend.capabilities.devices, backend.threads, backend.options.flash_attn]
        facts += [backend.options.placement, model.n_gpu_layers, model.is_repacked]
    facts += [build.llama_cpp, build.devices, build.system_info]
    if settings.reproducible:
        facts.append(f"reproducible in {min(pair[0].backend.capabilities.n_ctx, ENOUGH)} positions")
    if rollback := pair[0].backend.options.rollback:
        facts.append(f"rolls {counted(rollback, 'token')} back")
    facts += [scale for _, scale in settings.lora]
    files = [*(one.model.path for one in pair), *(Path(path) for path, _ in settings.lora)]
    return Profile.of(cache_folder("profiles"), [file_fingerprint(path) for path in files], facts)


def known_widths(
    profile: Profile, target: LlamaBackend, clock: Clock, cancel: Cancel
) -> events.EventsThen[tuple[int, ...]]:
    """Return the widths of passes that are exact, measured now if no earlier load did. Raises Cancelled."""
    if profile.exact_widths is None:
        profile.learn_widths((yield from _reported("exact widths", exact_widths(target, cancel), clock)))
        profile.save()
    return profile.exact_widths or ()


def survey_pair(
    asked: SurveyRequest, target: LlamaBackend, draft: LlamaBackend | None, clock: Clock, cancel: Cancel
) -> events.EventsThen[PairTimes]:
    """Time both models, reporting how far that is. Both caches must be empty, and are again; raises Cancelled."""
    faults = _major_faults()
    seconds = {name: share * asked.seconds for name, share in SHARES.items()}
    if not asked.is_deep:
        seconds["deep"] = seconds["deep draft"] = 0.0
    found = yield from _reported(
        "target",
        time_model(target, asked.sizes, (seconds["empty"], seconds["deep"]), clock, cancel, asked.least),
        clock,
    )
    drafts = None
    if draft is not None:
        sizes = DRAFT_SIZES if len(asked.sizes) > 1 else asked.sizes
        timing = time_model(draft, sizes, (seconds["draft"], seconds["deep draft"]), clock, cancel)
        drafts = yield from _reported("draft", timing, clock)
    facts = {
        "threads": target.threads,
        "draft_threads": None if draft is None else draft.threads,
        "cores": physical_cores(),
        "can_rollback": target.capabilities.can_rollback,
        "draft_can_rollback": None if draft is None else draft.capabilities.can_rollback,
        "major_faults": _major_faults() - faults,
        "swapped_bytes": _swapped(),
    }
    return PairTimes(found, drafts, facts)


def _reported(what: str, measuring: Generator[float, None, T], clock: Clock) -> events.EventsThen[T]:
    """Measure, and report how far that is, ten times a second at most."""
    last = clock()
    run = events.Returning(measuring)
    for share in run:
        if clock() - last > 0.1:
            last = clock()
            yield events.Loading(what, share)
    return run.result


def _major_faults() -> int:
    """Return how often this process waited for a page from a disk: swapped memory, or a file that was not cached."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _swapped() -> int | None:
    """Return the bytes of this process that are swapped out, None where the system does not say."""
    try:
        lines = STATUS.read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmSwap:")), None)
