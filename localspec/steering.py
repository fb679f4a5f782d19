"""Which controller plans the passes of a request, and what it may know: the profile of the pair, kept between runs.

Left to itself (`--method auto`) the controller chooses among the draft model's chains, copies of the text itself, and
plain passes. What a person asked for by name is obeyed; a tree under `auto` is parked where it does not pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from localspec import events
from localspec.acceptance import Acceptance
from localspec.axes import Axes
from localspec.control.auto import LONGEST, Auto
from localspec.control.calibrate import READ, Stoppable, Timed, calibrate, calibrate_more, is_worth_more
from localspec.control.cost import Costs
from localspec.control.guard import Guarded
from localspec.control.learning import Learning
from localspec.control.ledger import Ledger
from localspec.control.probe import Probes, Probing
from localspec.control.reading import Reader
from localspec.methods import Parts, registered, resolve
from localspec.options import read_options
from localspec.profiles import Profile
from localspec.protocols import Cancel, Clock, Controller, Drafter, Shape

COPIES = 0.002  # seconds of a plain pass: below, looking for copies costs more than they bring
SUFFIX = "suffix"


class Steering:
    """The controllers of one loaded pair. `profile` is what earlier runs learned of it.

    `can_verify`: the target can take back a rejected draft, so that there may be one.
    """

    def __init__(self, profile: Profile, clock: Clock, *, can_verify: bool = True) -> None:
        self.profile = profile
        self._can_verify = can_verify
        self._clock = clock
        self._copier: Drafter | None = None
        self._auto: Auto | None = None
        self._ledger: Ledger | None = None
        self._is_measured = False  # since it was loaded
        self._is_told = False  # that the profile cannot be kept
        self._probes = Probes(clock)
        self._is_known = False  # what plain decoding costs, from earlier answers

    def must_measure(self, axes: Axes) -> bool:
        """Whether it matters what passes cost, and earlier runs did not find out all of it.

        It does to a controller, and to plain decoding, whose passes may have more rows than one.
        """
        if self._is_measured or not self._can_verify or not (axes.is_guarded or axes.shape.nodes == 0):
            return False
        return not self._is_priced or is_worth_more(self._costs())

    @property
    def lone_rows(self) -> int:
        """How many rows a pass of one token should have."""
        return self._costs().lone

    @property
    def _is_priced(self) -> bool:
        return 1 in self._costs().at(0).measured()

    def measure(self, target: Timed, draft: Timed | None, cancel: Cancel) -> Iterator[events.Event]:
        """Measure what passes cost. Both caches are empty. Raises Cancelled between two passes."""
        yield events.Loading("first measurement", 0.0)
        timed = Stoppable(target, cancel)
        if not self._is_priced:
            drafting = None if draft is None else Stoppable(draft, cancel)
            self.profile.renew(calibrate(timed, drafting, self._clock))
        else:
            calibrate_more(timed, self._costs(), self._clock)
        self._is_measured = True
        self.profile.save()

    def keep(self) -> Iterator[events.Event]:
        """Write the profile down; say so, once, where that is impossible and something was to be kept."""
        if not self.profile.save() and (self._is_measured or self._ledger is not None) and not self._is_told:
            self._is_told = True
            yield events.Warned("profile", f"{self.profile.file.parent} cannot be written: measured anew every time")

    def forget(self) -> None:
        """Drop what was read of texts and measured beside them; what was learned of the pair stays."""
        self._copier = None
        self._probes = Probes(self._clock)

    def recall(self, prompt_n: int) -> Iterator[events.Event]:
        """Tell again what earlier answers measured of plain decoding, where it holds for this one too."""
        found = self._probes.near(prompt_n)
        self._is_known = bool(found)
        for one in found:
            yield events.Probed(one.ms, one.ctx, self._clock() - one.at)

    def prefilled(self, event: events.Prefilled) -> None:
        """Learn from a prompt that was long enough what reading costs the target."""
        n = event.prompt_n - event.cache_n
        if n >= READ:
            self._costs().reading = event.ms / 1e3 / n

    def probed(self, event: events.Probed) -> None:
        """Keep a measurement of plain decoding for the answers that follow."""
        self._probes.add(event.plain_ms, event.ctx)

    def controller(self, axes: Axes, drafters: dict[str, Drafter], acceptance: Acceptance, parts: Parts) -> Controller:
        """Return the controller of a request; the automatic one may add to `drafters`."""
        self._auto = self._ledger = None
        if axes.shape.nodes == 0 and not axes.is_automatic:  # plain decoding needs no pass to measure it
            return axes.controller(axes.shape)
        if axes.must_repeat:  # so nothing that was learned or measured before may decide what is drafted
            return Probing(Learning(axes.controller(axes.shape), Acceptance(axes.draw)))
        if not axes.is_guarded:
            return self._probing(Learning(axes.controller(axes.shape), acceptance))
        if not axes.is_automatic:
            inner = Learning(axes.controller(axes.shape), acceptance)
            guarded = Guarded(inner, self._costs(), _reader(drafters[axes.method]))
            self._ledger = guarded.ledger
            return self._probing(guarded)
        self._auto = self._automatic(axes, drafters, acceptance, parts)
        self._ledger = self._auto.ledger
        return self._probing(self._auto)

    def findings(self) -> dict[str, Any]:
        """Return what the controller of the last request found: fields of `events.Finished`."""
        verdict = "" if self._auto is None else self._auto.verdict()
        return {"verdict": verdict, "overdrawn_ms": None if self._ledger is None else self._ledger.overdrawn_ms}

    def _probing(self, inner: Controller) -> Controller:
        return Probing(inner, is_known=self._is_known)

    def _automatic(self, axes: Axes, drafters: dict[str, Drafter], acceptance: Acceptance, parts: Parts) -> Auto:
        costs = self._costs()
        rows = costs.at(0)
        free: dict[str, Any] = {}
        if self._can_verify and rows.is_known and rows.of(1) >= COPIES:
            if self._copier is None:
                self._copier = _copier(parts)
            drafters[SUFFIX] = free[SUFFIX] = self._copier
        if axes.shape.nodes == 0:
            return Auto(costs, acceptance, Shape(LONGEST, LONGEST, 1), axes.draw, free=free)
        reader = _reader(drafters[axes.method])
        return Auto(costs, acceptance, axes.shape, axes.draw, name=axes.method, reader=reader, free=free)

    def _costs(self) -> Costs:
        """Return what is known of the passes, to be corrected as they are made."""
        return self.profile.costs or Costs()


def _reader(drafter: Any) -> Reader | None:
    """Return a drafter that has a text to read up on; those without a model have none."""
    return drafter if hasattr(drafter, "behind") else None


def _copier(parts: Parts) -> Drafter:
    """Build the drafter that copies from the text, without branches: every rule judges its chains."""
    method = resolve(registered()[SUFFIX])
    options = read_options(method.info.options, (("branch", "off"),), of=f"--method {SUFFIX}")
    drafter: Drafter = method.build(replace(parts, options=options))
    return drafter
