"""What passes cost, learned from each, and the loss account that is charged by it: the books of one request."""

from __future__ import annotations

import math
from dataclasses import dataclass

from localspec.control.account import LossAccount
from localspec.control.cost import DOUBT, Costs
from localspec.control.row_costs import INTERRUPTED, OUTLIER
from localspec.draft import Step

SCATTER = 0.005  # of the time: so much of what passes took beyond a tenth, and short of that, is put down to chance
PAUSE = 0.02  # seconds that telling a pass may take however short it is otherwise


@dataclass(frozen=True, slots=True)
class Charge:
    """What a plain pass costs where a pass was made, and the seconds that it took itself, pauses left out."""

    price: float
    seconds: float


class Ledger:
    """Keeps `costs` true and the account up to date. All times are in seconds."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self.account = LossAccount()
        self._spared = 0.0  # plain passes put down to chance
        self.follows_plain = False  # the last pass was plain: only then does the next measure plain decoding

    @property
    def room(self) -> float:
        """Seconds that may still be lost."""
        return self.account.room * self._costs.plain

    @property
    def overdrawn_ms(self) -> float | None:
        """Milliseconds by which the bound was exceeded at worst, None where nothing was ever charged."""
        return None if math.isinf(self.account.overdrawn) else 1e3 * self.account.overdrawn

    def observe(self, step: Step, seconds: float, allowed: float = 0.0, *, free: float = 0.0) -> Charge:
        """Learn from a pass and charge it, but for what interrupted it and for what is granted.

        Granted are `allowed` seconds of drafting, and `free` seconds of planning.
        """
        n = len(step.draft)
        on_target = max(step.times.verify, 1e-9)
        free = min(free, step.times.planning)
        planning = step.times.planning - free
        on_host = seconds - step.times.draft - step.times.verify - free
        if n == 0:  # plain decoding does not plan, drafting cannot do without
            on_host -= planning
        on_host = max(on_host, 0.0)
        price = max(self._costs.plain if self._costs.target.is_known else seconds, 1e-9)
        seconds -= self._pause(n, on_host - step.times.sample - (planning if n else 0.0))
        if n == 0 and self.follows_plain:
            self._costs.target.observe(1, on_target)
        if n == 0 and self.follows_plain and not step.drafter:
            self.account.pass_time(seconds - free, planning, price)
            self._costs.host.observe(on_host, is_plain=True)
        else:  # also of a draft that came to nothing
            pardoned = min(allowed, step.times.draft) + free + self._interruption(n, on_target, price)
            self.account.charge(seconds - pardoned, len(step.tokens), price)
        if n > 0:
            self._costs.target.observe(1 + n, on_target)
            self._costs.host.observe(on_host, is_plain=False)
        self.follows_plain = n == 0
        return Charge(price, seconds)

    def _pause(self, n: int, telling: float) -> float:
        """Return the seconds for which nobody took what was told: a stopped terminal, a connection that hangs."""
        host = self._costs.host
        known = host.drafting or host.plain if n else host.plain
        return max(0.0, telling - max(OUTLIER * known, PAUSE)) if known else 0.0

    def _interruption(self, n: int, on_target: float, price: float) -> float:
        """Return the seconds of a pass beyond all that its width explains: taken for another program's, nobody's loss.

        Of a width that was made a few times, or never, at such a length of text, too little is known to tell. Passes
        scatter, and a draft is begun at the price of one that takes a tenth longer: what a few take beyond is spared
        too, and no more, for those that take less are credited in full.
        """
        if not self._costs.target.knows(1 + n):
            return 0.0
        known = self._costs.target.of(1 + n)
        scattered = min(on_target, INTERRUPTED * known) - DOUBT * known
        spared = min(max(scattered, 0.0), max(SCATTER * self.account.elapsed - self._spared, 0.0) * price)
        self._spared += spared / price
        return spared + max(0.0, on_target - INTERRUPTED * known)
