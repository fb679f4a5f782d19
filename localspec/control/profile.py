"""What was measured of a pair on this machine, kept from one run to the next: costs of passes, acceptance of drafts.

One small JSON file for each pair, device, thread count, cache type and build of llama.cpp, in the cache folder. A file
that cannot be read or written is done without.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from localspec.control.prices import Prices
from localspec.control.trial import Trial
from localspec.engine.acceptance import Acceptance, CopyAcceptance
from localspec.engine.draft import Draw
from localspec.settings.folders import replacing

VERSION = 9
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, msgspec.ValidationError
)  # fmt: skip
Widths = Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]  # 1 to m
EARLIER = 8  # of localspec 0.1.0: its file is read where there is none of this version


@dataclass(slots=True)
class Profile:
    """Prices (None: not measured yet), acceptance by drafter and rule, and by temperature of copies; kept in `file`.

    `exact_widths` are the target's, for --reproducible, `trial` is that of the draft (None: not measured yet).
    `models` are the fingerprints of the files.

    Several processes may keep one. What another wrote meanwhile is taken up where nothing is known here, and all of it
    where somebody calibrated; of what both learned, the last to save tells what holds now.
    """

    file: Path
    prices: Prices | None = None
    acceptance: dict[str, Acceptance] = field(default_factory=dict)
    copies: dict[str, CopyAcceptance] = field(default_factory=dict)
    exact_widths: tuple[int, ...] | None = None
    trial: Trial | None = None
    models: tuple[str, ...] = ()
    _seen: int | None = None  # when the file was written that was last read or written here, in ns; None: there is none
    _calibrated: float = 0.0  # what it said of when somebody calibrated

    @staticmethod
    def of(folder: Path, models: Sequence[str], settings: Sequence[object]) -> Profile:
        facts = [*models, *map(str, settings)]
        profile = Profile(_file_of(folder, [VERSION, *facts]), models=tuple(models))
        profile._read()
        if profile._seen is None:
            earlier = Profile(_file_of(folder, [EARLIER, *facts]))
            earlier._read()
            profile.prices, profile.exact_widths = earlier.prices, earlier.exact_widths
            profile.acceptance, profile.copies = earlier.acceptance, earlier.copies
        return profile

    def accepted(self, key: str, draw: Draw, trial: Trial | None = None, *, is_greedy: bool = False) -> Acceptance:
        """Return the evidence about the drafts called `key`, which are drawn as `draw`: at first, by their `trial`."""
        if key not in self.acceptance:
            is_known = trial is not None and trial.kinds
            first = trial.acceptance(draw, is_greedy=is_greedy) if trial is not None and is_known else Acceptance(draw)
            self.acceptance[key] = first
        return self.acceptance[key]

    def copied(self, key: str) -> CopyAcceptance:
        return self.copies.setdefault(key, CopyAcceptance())

    def measured(self, prices: Prices) -> None:
        if self.trial is not None:
            prices.spell(max(1.0, self.trial.spelled))
        self.renew(prices)

    def renew(self, prices: Prices) -> None:
        if self.prices is None:
            self.prices = prices
        else:
            self.prices.take(prices)

    def learn_widths(self, exact: tuple[int, ...]) -> None:
        self.exact_widths = exact

    def learn_trial(self, trial: Trial | None) -> None:
        self.trial = trial
        if trial is not None and trial.kinds:
            self.acceptance = {key: each for key, each in self.acceptance.items() if each.measured is not None}

    def facts(self) -> dict[str, Any]:
        prices = self.prices or Prices()
        ms = [[rows, 1e3 * seconds] for rows, seconds in prices.measured().items()]
        return {"file": str(self.file), "ms": ms, "lone": prices.decode_rows}

    def save(self) -> bool:
        """Write the file whole or not at all; return whether that was possible."""
        if self._changed() != self._seen:
            self._take_up()
        wire = {
            "prices": None if self.prices is None or not self.prices.is_known else self.prices.to_wire(),
            "acceptance": {key: acceptance.to_wire() for key, acceptance in self.acceptance.items()},
            "copies": {key: acceptance.to_wire() for key, acceptance in self.copies.items()},
            "exact_widths": self.exact_widths,
            "trial": msgspec.to_builtins(self.trial),
            "models": self.models,
        }
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.file) as out:
                out.write(json.dumps(wire).encode())
                out.flush()
                written = os.fstat(out.fileno()).st_mtime_ns  # before another process may write over it
        except OSError:
            return False
        self._seen, self._calibrated = written, 0.0 if self.prices is None else self.prices.calibrated
        return True

    def _changed(self) -> int | None:
        try:
            return self.file.stat().st_mtime_ns
        except OSError:
            return None

    def _take_up(self) -> None:
        other = Profile(self.file)
        other._read()
        if self.prices is None:
            self.prices = other.prices
        elif other.prices is not None and other.prices.calibrated not in (self._calibrated, self.prices.calibrated):
            self.renew(other.prices)  # not by which is later: clocks are set back
        elif other.prices is not None:
            self.prices.complete(other.prices)
        self.exact_widths = self.exact_widths or other.exact_widths
        if self.trial is None or not self.trial.kinds:  # one that was refused says nothing
            self.trial = other.trial or self.trial
        ours = {key: each for key, each in self.acceptance.items() if each.n_passes or key not in other.acceptance}
        self.acceptance = {**other.acceptance, **ours}
        copied = {key: each for key, each in self.copies.items() if each.n_tokens or key not in other.copies}
        self.copies = {**other.copies, **copied}

    def _read(self) -> None:
        self._seen = self._changed()
        with contextlib.suppress(*UNREADABLE):
            wire = json.loads(self.file.read_text(encoding="utf-8"))
            widths = msgspec.convert(wire.get("exact_widths"), Widths | None)
            if widths is not None and widths != tuple(range(1, len(widths) + 1)):
                return
            known = {key: Acceptance.from_wire(acceptance) for key, acceptance in wire["acceptance"].items()}
            copies = {key: CopyAcceptance.from_wire(acceptance) for key, acceptance in wire["copies"].items()}
            trial = msgspec.convert(wire.get("trial"), Trial | None)
            self.prices = None if wire["prices"] is None else Prices.from_wire(wire["prices"])
            self._calibrated = 0.0 if self.prices is None else self.prices.calibrated
            self.acceptance, self.copies, self.exact_widths, self.trial = known, copies, widths, trial
            self.models = self.models or tuple(map(str, wire.get("models", ())))


@dataclass(frozen=True, slots=True)
class Learned:
    """What profiles of a pair measured, each None where none did.

    `accepted` is the chance that a token of the draft is accepted at the usual temperature, `guess` what it costs, in
    plain passes. `rows[k]` are the plain passes that one of the target with 1 + k rows takes, padded as in decoding.
    `plain` are the seconds of a plain pass.
    """

    accepted: float | None = None
    guess: float | None = None
    rows: tuple[float, ...] | None = None
    plain: float | None = None


def learned_of(folder: Path, models: Sequence[str]) -> Learned | None:
    """Return what the latest profiles of these files know, target first; None where there is none."""
    profiles = [
        each for each in _profiles_at(folder, folder.stat().st_mtime_ns) if each.models[:1] == tuple(models[:1])
    ]
    own = [each for each in profiles if each.models == tuple(models)]
    totals = (each.trial.total for each in own if each.trial is not None)
    accepted = next((total.drawn / total.n for total in totals if total.n), None)
    drafting = next((known for each in own if (known := each.prices) and known.is_known and known.draft.value), None)
    alone = [each for each in profiles if len(each.models) <= 2]  # without adapters
    prices = drafting or next((known for each in alone if (known := each.prices) and len(known.measured()) > 1), None)
    rows = None if prices is None else prices.chain()
    guess = None if drafting is None else drafting.draft.value / drafting.plain
    plain = None if prices is None else prices.plain
    return None if accepted is None and rows is None else Learned(accepted, guess, rows, plain)


def profiles_of(folder: Path, models: Sequence[str]) -> list[Profile]:
    return [profile for profile in _all_profiles(folder) if profile.models == tuple(models)]


def _all_profiles(folder: Path) -> list[Profile]:
    profiles = []
    with contextlib.suppress(OSError):
        profiles = [Profile(file) for file in folder.glob("*.json")]
    for profile in profiles:
        profile._read()
    return sorted(profiles, key=lambda profile: profile._seen or 0, reverse=True)


@lru_cache(maxsize=1)
def _profiles_at(folder: Path, _changed: int) -> list[Profile]:
    """Return all profiles, to be read alone: each that is written changes the folder's own time."""
    return _all_profiles(folder)


def _file_of(folder: Path, facts: Sequence[object]) -> Path:
    return folder / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:24]}.json"
