"""`localspec doctor PAIR`: measures the pair, names what costs speed, and races it against plain decoding."""

from __future__ import annotations

import dataclasses
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.bench.diagnosis import TEMPERATURE, Evidence, Examination, Templates
from localspec.bench.race import Race, agreed, factor
from localspec.cli.console import Console, wrapped, write_out
from localspec.cli.doctor.case import Case, Finding
from localspec.cli.doctor.causes import DECIDES, MORE_TIME, causes
from localspec.cli.output import lone_stop, write_json
from localspec.cli.pair_engine import open_engine
from localspec.models.candidates import look_at, seen_info
from localspec.models.worth import pair_models, worth
from localspec.sanitize import one_line
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import counted

SCHEMA = "localspec.doctor/1"
CUT = "; answers were cut to end in time (more of it: --seconds)"


def examine_pair(
    console: Console, settings: LoadSettings, seconds: float, log_file: str | None, *, as_json: bool
) -> int:
    """Measure and tell; return the exit code: 0 whatever is found, or that of the stop."""
    target = look_at(Path(settings.target))
    draft = None if settings.draft is None else look_at(Path(settings.draft), may_be_head=True)
    templates = Templates(seen_info(target).chat_template, None if draft is None else seen_info(draft).chat_template)
    began = time.monotonic()
    with open_engine(console, log_file) as engine:
        loaded = engine.load(settings)
        ready = time.monotonic()
        examination = Examination(
            engine,
            templates,
            has_draft=draft is not None,
            n_ctx=2 if loaded is None else loaded.n_ctx,
            seconds=seconds,
            is_stopped=engine.is_stopped,
            on_progress=lambda what: engine.live.status(f"{what} · {_left(ready + seconds)}"),
        )
        evidence = Evidence() if loaded is None else examination.run()
        times = Durations(seconds, ready - began, time.monotonic() - ready)
    stop = engine.stop
    if loaded is None or evidence.first is None:
        if as_json:
            lone_stop(stop.exit_code)
        return stop.exit_code
    value = None if draft is None else worth(*pair_models(target, draft))
    parts = None if draft is None else draft.anatomy
    found = list(causes(Case(loaded, target.anatomy, parts, evidence, value)))
    told = verdict(evidence.race, found, is_cut=evidence.is_cut)
    if as_json:
        wire = _wire(settings, evidence, found, told, is_complete=not stop.is_asked)
        write_json({**wire, "seconds": dataclasses.asdict(times)})
    else:
        write_out(f"{wrapped(one_line(told), sys.stdout)}\n\n")
        for one in found:
            write_out(one.line(console, sys.stdout))
        write_out(f"\n{wrapped(times.told + (CUT if evidence.is_cut else ''), sys.stdout)}\n")
    return stop.exit_code


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds: how long measuring should take, how long loading and measuring took."""

    asked: float
    loading: float
    measuring: float

    @property
    def told(self) -> str:
        return f"measured for {self.measuring:.0f} of {self.asked:.0f} s, after {self.loading:.0f} s of loading"


def _left(end: float) -> str:
    return f"{max(0.0, end - time.monotonic()):.0f} s left"


def verdict(raced: Race | None, found: list[Finding], *, is_cut: bool = False) -> str:
    """Return what the race showed, what was found bad, and, where nothing is gained, what else may be why."""
    bad = ", ".join(one.name for one in found if one.state == "bad")
    noted = ", ".join(one.name for one in found if one.state == "note" and one.is_measured)
    blamed = f"; found bad: {bad}" if bad else "; no problem was found"
    noted = f"; worth a look: {noted}" if noted else ""
    if raced is not None and not raced.drafted:
        return f"auto drafted nothing here, so there is no speedup{blamed}{noted}"
    if raced is None or raced.ratio is None:
        why = "the race did not end" if raced is None else "the answers of the race were too short"
        why = f"the time was up; {MORE_TIME}" if is_cut else why
        return f"speed not measured: {why}{blamed if bad else ''}"
    ratios, found_out = raced.ratios, agreed(raced.ratio)
    rounds = f"{counted(len(ratios), 'round')} at T={TEMPERATURE:g}, one prompt"
    if not found_out:
        do = "does" if len(ratios) == 1 else "do"
        return f"{rounds}, {do} not show whether speculation pays here: {DECIDES} does{blamed}{noted}"
    ends, found_factor = f"{min(ratios):.2f} to {max(ratios):.2f}", factor(raced.ratio)
    told = f"auto is {ends}× plain ({rounds}: too far apart for one factor)"
    if found_factor is not None:
        told = f"auto is {found_factor:.2f}× plain (median of {rounds}, {ends})"
    if found_out == "pays":
        return f"speculation pays here: {told}{blamed if bad else ''}"
    return f"speculation {found_out} here: {told}{blamed}{noted}"


def _wire(
    settings: LoadSettings, evidence: Evidence, found: list[Finding], told: str, *, is_complete: bool
) -> dict[str, Any]:
    assert evidence.first is not None
    raced = evidence.race
    return {
        "schema": SCHEMA,
        "pair": settings.name,
        "is_complete": is_complete,
        "checks": [one.to_wire() for one in found],
        "verdict": told,
        "speedup": None if raced is None or raced.ratio is None else factor(raced.ratio),
        "measured": {
            "passes": evidence.first.content,
            "acceptance": {name: one.to_wire() for name, one in evidence.tried.items()},
            "race": None if raced is None else raced.to_wire(),
        },
    }
