"""Plain decoding: the draft without nodes. The baseline of every comparison."""

from __future__ import annotations

from typing import ClassVar

from localspec.engine.draft import Draft, Step
from localspec.engine.protocols import History, Plan, RandomSource, Rows
from localspec.methods import DrafterContext, MethodInfo


class Plain:
    """Never drafts."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="plain",
        summary="one token a pass, no draft: the baseline",
        needs="nothing",
        paper="",
        is_lossless=True,
        default_k=0,
    )

    @classmethod
    def build(cls, parts: DrafterContext) -> Plain:
        return cls()

    def begin(self, history: History) -> None:
        """Nothing to prepare."""

    def propose(self, history: History, plan: Plan, rng: RandomSource) -> Draft:
        return Draft.root(history.tokens[-1])

    def observe(self, step: Step, rows: Rows) -> None:
        """Nothing to learn."""
