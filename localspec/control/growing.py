"""When a chain stops growing: the value of time, asked before every pass of the draft model and before every draw."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.control.outlook import Outlook
from localspec.control.stopping import Worth, at
from localspec.draft import Draft, Step
from localspec.protocols import Growth


@dataclass(slots=True)
class Growing:
    """The stop rule of one chain, and what it was planned by.

    `worth` is what drafts that go on are worth, in tokens; `rows` and `draft` are the seconds of the target's pass and
    of the draft model's by tokens, `value` tokens per second, `caution` by how much more a loss weighs than a gain. A
    trial is of one token, whatever that is worth.
    """

    outlook: Outlook
    worth: Worth
    rows: list[float]
    draft: list[float]
    value: float
    caution: float = 0.0
    is_trial: bool = False
    beliefs: list[float] = field(default_factory=list)  # what every pass of the draft model found
    reach: float = 1.0  # chance that all that is drafted is accepted

    @property
    def gain(self) -> float:
        """Tokens that such a draft promises, net of its time, before anything is known of it."""
        return at(self.worth, 0, 1.0)

    @property
    def looked(self) -> int:
        """Passes of the draft model."""
        return len(self.beliefs)

    def look_on(self, depth: int, chance: float) -> bool:
        """Whether to run the draft model on the last token, in which it believes so much."""
        self.reach *= self.outlook.chance(chance)
        return not self.is_trial and at(self.worth, depth, self.reach) > 0.0

    def go_on(self, growth: Growth) -> bool:
        """Whether to draw a token from the law at hand, which the draft model was run for already."""
        belief = growth.law.belief.probs
        likely = float(belief.max() if growth.law.probs.size == 1 else belief @ belief)
        self.beliefs.append(likely)
        if self.is_trial:
            return True
        k, reach = growth.depth, self.reach * self.outlook.chance(likely)
        price = self.value * (self.rows[k + 1] - self.rows[k]) * (1.0 + self.caution * (1.0 - reach))
        return reach + at(self.worth, k + 1, reach) > price

    def expects(self, draft: Draft) -> tuple[float, float]:
        """Return tokens and seconds of the pass that verifies `draft`."""
        tokens, reach = 1.0, 1.0
        for node in range(1, len(draft) + 1):  # a chain
            reach *= self.outlook.chance(draft.share(node))
            tokens += reach
        return tokens, self.rows[len(draft)] + self.draft[self.looked]

    def observe(self, step: Step) -> None:
        """Let what is expected of drafts follow the pass."""
        self.outlook.see(self.beliefs)
        kept = len(step.verdict.path)
        for node in range(1, min(kept + 1, step.n_drafted) + 1):
            self.outlook.judge(step.draft.share(node), is_accepted=node <= kept)
