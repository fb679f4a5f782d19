"""What became of the plans of one answer, and what there is to say of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.control.cost import Costs
from localspec.control.ledger import Charge
from localspec.draft import Step


@dataclass
class Tally:
    """What became of the plans of one answer.

    `plain` are the seconds that plain passes would have taken by the prices learned: a reason to call drafting parked
    or not, and nothing to be told as a speed-up, which is measured.
    """

    passes: int = 0
    speculative: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    plain: float = 0.0
    drafters: dict[str, int] = field(default_factory=dict)
    parked: str = ""  # the last reason not to draft

    def observe(self, step: Step, charge: Charge) -> None:
        """Count a pass."""
        self.plain += len(step.tokens) * charge.price
        self.passes += 1
        self.seconds += charge.seconds
        if len(step.draft):
            self.speculative += 1
            self.drafted += step.n_drafted
            self.accepted += step.n_accepted
            self.drafters[step.drafter] = self.drafters.get(step.drafter, 0) + 1

    def verdict(self, costs: Costs) -> str:
        """Return the line."""
        if not costs.target.is_known or self.passes == 0 or self.seconds <= 0.0:
            return ""
        if self.speculative == 0:
            return f"plain: {self.parked.removeprefix('parked: ') or 'nothing drafted'}"
        share = f"{100 * self.accepted / max(self.drafted, 1):.0f} % is accepted"
        if 2 * self.speculative > self.passes or self.plain > 1.02 * self.seconds:
            who = " and ".join(sorted(self.drafters, key=lambda name: -self.drafters[name]))
            return f"drafted by {who}; {share}"
        return f"parked: a draft token costs {costs.draft.of(1) / costs.plain:.2f} of a target pass and {share}"
