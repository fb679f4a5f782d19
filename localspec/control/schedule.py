"""When a pass is plain to measure plain decoding, and which measurements an answer goes on with."""

from dataclasses import KW_ONLY, dataclass, replace

from localspec.engine.acceptance import Acceptance
from localspec.engine.draft import Step
from localspec.engine.protocols import Clock, Controller, DraftBudget, History, Plan
from localspec.tuning import AGAIN, BASELINE, EVERY, MEASURING, NEAR, PATIENCE, RECENT, SPREAD


class Spread:
    """Places of plain passes all over an answer, as many as `MEASURING` of its time pays for. A place loses what its
    passes took beyond the time in which drafting would have brought as many tokens. So a method that is slower than
    plain decoding has many places, and one that is far ahead few. The first place is free."""

    def __init__(self, settles: int, *, is_known: bool) -> None:
        self._settles = settles
        self._length = settles + BASELINE - 1
        self._left = 0 if is_known else self._length  # plain passes of the place that is due
        self._places = int(not is_known)
        self._n = 0  # passes
        self._since = 0  # passes after the last measurement
        self._settling = 0  # passes after a place that its change of width makes slower, on a GPU
        self._elapsed = 0.0  # seconds
        self._seconds = [0.0, 0.0]  # of drafting, and of measuring
        self._tokens = [0, 0]
        self._has_read = False  # whether a pass drafted: in the first the draft model reads the prompt

    def is_due(self) -> bool:
        if self._left == 0 and self._since >= max(SPREAD, self._n // 4) and self._can_pay():
            self._left = self._length
            self._places += 1
        return self._left > 0

    def observe(self, step: Step, seconds: float) -> None:
        is_measuring = self._left > 0 or self._settling > 0
        self._elapsed += seconds
        if self._has_read or not step.drafter:
            self._seconds[is_measuring] += seconds
            self._tokens[is_measuring] += len(step.tokens)
        self._has_read |= bool(step.drafter)
        self._n += 1
        self._since = 0 if step.plan.is_probe else self._since + 1
        self._settling = self._settles if self._left == 1 and self._settles > 1 else max(self._settling - 1, 0)
        self._left = max(self._left - 1, 0)

    def _can_pay(self) -> bool:
        if not self._tokens[0] or not self._places:
            return True
        lost = self._seconds[1] - self._tokens[1] * self._seconds[0] / self._tokens[0]
        return lost * (self._places + 1) / self._places <= MEASURING * self._elapsed


class Seldom:
    """Plain passes at the start, unless the baseline `is_known`, and then every so often: they go by counts alone."""

    def __init__(self, settles: int, *, is_known: bool) -> None:
        self._settles = settles
        self._early = 0 if is_known else BASELINE + settles - 1
        self._n = 0

    def is_due(self) -> bool:
        n, settles = self._n, self._settles
        return n < self._early or 0 <= n - AGAIN <= settles or (n >= EVERY and n % EVERY <= settles)

    def observe(self, step: Step, seconds: float) -> None:
        self._n += 1


@dataclass
class Probing:
    """Another controller's plans, with plain passes that measure plain decoding: `Seldom`, or `Spread` over the answer.

    A plain pass measures plain decoding after `settles` other plain ones: until then llama.cpp lays its graph out anew,
    or a GPU's driver records it. Such a plan says so (`is_probe`). `acceptance`, if there is one, learns from all
    passes, and policies of trees go by it.

    Where tokens are forced, a plain pass is postponed, for `PATIENCE` passes at most: it would lose what these bring
    for certain, and where none is forced it may cost nothing.
    """

    inner: Controller
    acceptance: Acceptance | None = None
    _: KW_ONLY
    settles: int = 1
    is_known: bool = False
    is_spread: bool = False
    _plain: int = 0  # passes, one after the other, up to the last
    _postponed: int = 0  # passes that came before those that are due
    _is_postponed: bool = False

    def __post_init__(self) -> None:
        self._schedule = (Spread if self.is_spread else Seldom)(self.settles, is_known=self.is_known)

    def plan(self, history: History, budget: DraftBudget) -> Plan:
        is_due = self._schedule.is_due()
        self._is_postponed = is_due and bool(budget.forced) and self._postponed < PATIENCE
        self._postponed = self._postponed + self._is_postponed if is_due else 0
        is_due = is_due and not self._is_postponed
        plan = self.inner.plan(history, DraftBudget(0, 0) if is_due else budget)
        if is_due:
            plan = replace(plan, max_nodes=0, max_depth=0, why="measures plain decoding")
        if plan.max_nodes == 0 and self._plain >= self.settles:
            plan = replace(plan, is_probe=True)
        return plan if self.acceptance is None else replace(plan, learned=self.acceptance)

    def observe(self, step: Step, seconds: float) -> None:
        if self.acceptance is not None:
            self.acceptance.observe(step)
        if not self._is_postponed:
            self._schedule.observe(step, seconds)
        self._plain = self._plain + 1 if step.rows == 1 and not step.drafter else 0
        self.inner.observe(step, seconds)


@dataclass(frozen=True, slots=True)
class PlainPass:
    """A plain pass of `ms` milliseconds with `ctx` tokens in the context; `at` is the clock's time in seconds."""

    ms: float
    ctx: int
    at: float


class Baselines:
    def __init__(self, clock: Clock, most: int = 32) -> None:
        self._clock = clock
        self._most = most
        self._kept: list[PlainPass] = []

    def add(self, ms: float, ctx: int) -> None:
        self._kept = [*self._kept[1 - self._most :], PlainPass(ms, ctx, self._clock())]

    def near(self, ctx: int) -> list[PlainPass]:
        """Return those that say what a plain pass costs after `ctx` tokens; fewer than two are none."""
        now, reach = self._clock(), max(NEAR, ctx // 4)
        close = [plain for plain in self._kept if now - plain.at <= RECENT and abs(plain.ctx - ctx) <= reach]
        return close if len(close) > 1 else []
