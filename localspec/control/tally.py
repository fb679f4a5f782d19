"""What became of the plans of one answer, and what there is to say of it."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.control.cost import Costs
from localspec.control.ledger import Charge
from localspec.draft import Step


@dataclass
class Drafted:
    """Passes in which somebody drafted, the tokens drafted in them, and those of them that were accepted."""

    passes: int = 0
    tokens: int = 0
    accepted: int = 0

    @property
    def share(self) -> str:
        """Say how much is accepted."""
        return f"{100 * self.accepted / max(self.tokens, 1):.0f} % is accepted"


class Tally:
    """What became of the plans of one answer; `model` is the drafter that has a model, "" where none has.

    `plain` are the seconds that plain passes would have taken by the prices learned: a reason to call drafting parked
    or not, and nothing to be told as a speed-up, which is measured.
    """

    def __init__(self, model: str = "") -> None:
        self.parked = ""  # the last reason not to draft
        self._model = model
        self._passes = 0
        self._seconds = 0.0
        self._plain = 0.0
        self._drafters: dict[str, Drafted] = {}

    def observe(self, step: Step, charge: Charge) -> None:
        """Count a pass."""
        self._plain += len(step.tokens) * charge.price
        self._passes += 1
        self._seconds += charge.seconds
        if len(step.draft):
            drafted = self._drafters.setdefault(step.drafter, Drafted())
            drafted.passes += 1
            drafted.tokens += step.n_drafted
            drafted.accepted += step.n_accepted

    def verdict(self, costs: Costs) -> str:
        """Return the line."""
        if not costs.target.is_known or self._passes == 0 or self._seconds <= 0.0:
            return ""
        if not self._drafters:
            return f"plain: {self.parked.removeprefix('parked: ') or 'nothing drafted'}"
        if 2 * self._all.passes > self._passes or self._plain > 1.02 * self._seconds:
            who = " and ".join(sorted(self._drafters, key=lambda name: -self._drafters[name].passes))
            return f"drafted by {who}; {self._all.share}"
        if self._model not in self._drafters:
            return f"parked: of what was copied from the text {self._all.share}"
        price = f"a draft token costs {costs.draft.of(1) / costs.plain:.2f} of a target pass"
        return f"parked: {price} and {self._drafters[self._model].share}"

    @property
    def _all(self) -> Drafted:
        counts = [(one.passes, one.tokens, one.accepted) for one in self._drafters.values()]
        return Drafted(*map(sum, zip(*counts, strict=True)))
