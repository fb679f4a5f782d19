"""What the passes of a loaded pair cost: what earlier runs remember of it, or a survey.

A survey also counts how often the process waited for the disk meanwhile.
"""

from __future__ import annotations

import resource
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from localspec.backends.build import build_info
from localspec.backends.exact_widths import ENOUGH, exact_widths
from localspec.backends.limits import physical_cores
from localspec.backends.llama_cpp import LlamaBackend
from localspec.control.prices import Prices
from localspec.control.profile import Profile
from localspec.control.timing import DRAFT_SIZES, SHARES, ModelTimes, prices_of, time_model
from localspec.engine import events
from localspec.engine.protocols import Cancel, Clock
from localspec.models.gguf.header import file_fingerprint
from localspec.session.loaded_model import LoadedModel
from localspec.settings.folders import cache_folder
from localspec.settings.jobs import SurveyRequest
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import counted

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
