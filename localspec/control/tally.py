"""What became of the plans of one answer, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.control.cost import Costs
from localspec.draft import Step


@dataclass
class Tally:
    """What became of the plans of one answer."""

    passes: int = 0
    speculative: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    plain: float = 0.0  # seconds that plain passes would have taken
    drafters: dict[str, int] = field(default_factory=dict)
    parked: str = ""  # the last reason not to draft

    def observe(self, step: Step, seconds: float, price: float) -> None:
        """Count a pass; `price` is what a plain one cost at that length of the context."""
        self.plain += len(step.tokens) * price
        self.passes += 1
        self.tokens += len(step.tokens)
        self.seconds += seconds
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
        price = costs.plain
        speed = self.plain / self.seconds
        share = f"{100 * self.accepted / max(self.drafted, 1):.0f} % is accepted"
        if 2 * self.speculative > self.passes or speed > 1.02:
            who = " and ".join(sorted(self.drafters, key=lambda name: -self.drafters[name]))
            return f"speculation {'pays' if speed > 1.0 else 'does not pay'}: {speed:.2f}x with {who}; {share}"
        return f"parked: a draft token costs {costs.draft.of(1) / price:.2f} of a target pass and {share}"
