"""What passes teach of acceptance, given to the plans of another controller."""

from __future__ import annotations

from dataclasses import replace

from localspec.acceptance import Acceptance
from localspec.draft import Step
from localspec.protocols import Controller, History, Plan, Room


class Learning:
    """Another controller's plans, with `acceptance` in them."""

    def __init__(self, inner: Controller, acceptance: Acceptance) -> None:
        self._inner = inner
        self._acceptance = acceptance

    def plan(self, history: History, room: Room) -> Plan:
        """Return the inner plan, for policies that go by what past passes accepted."""
        return replace(self._inner.plan(history, room), learned=self._acceptance)

    def observe(self, step: Step, seconds: float) -> None:
        """Learn from the pass and let the inner controller see it."""
        self._acceptance.observe(step)
        self._inner.observe(step, seconds)
