"""Drafts are ranked by tokens a pass over price, whatever their vocabulary."""

from __future__ import annotations

import pytest

from localspec.models.candidates import DraftCandidate
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model
from localspec.models.overlap import Overlap
from localspec.models.pairs import PairReport
from localspec.models.plan.machine import Machine, flat
from localspec.models.plan.models import ModelPart, placed
from localspec.models.plan.search import PlacementRequest, best
from tests.cli.harness import PAIR


def candidate(size: int, use: float | None = None, *, kind: str = "", fits: bool = True) -> DraftCandidate:
    shared = None if use is None else Overlap(90, 100, use)
    report = PairReport("t", "d", () if fits else ("no",), (), overlap=shared)
    return DraftCandidate("d", "here", size, report=report, kind=kind)


def test_a_small_one_of_another_vocabulary_can_be_better() -> None:
    assert candidate(10, 0.88).gain(100) > candidate(45).gain(100) > 1.0
    assert candidate(10).gain(100) > candidate(10, 0.88).gain(100)


def test_what_cannot_draft_gains_nothing() -> None:
    for one in (candidate(10, fits=False), candidate(60), candidate(10, kind="mask-tokens")):
        assert one.gain(100) == 0.0
    assert DraftCandidate("d", "hub", None).gain(100) == 0.0


def test_the_gain_is_that_of_the_formula() -> None:
    """One guess of 0.7, the draft half as large: 1.7 tokens for 1.5 passes, two: 2.19 for 2."""
    assert candidate(50).gain(100) == pytest.approx(1.7 / 1.5)


def test_a_share_lowers_what_a_plan_expects() -> None:
    """The same files, half of whose tokens the draft can write: each guess stands half as often."""
    header = read_model(PAIR / "target-q8_0.gguf")
    part = ModelPart.of(header, model_info(header))
    small = read_model(PAIR / "draft-q8_0.gguf")
    draft = ModelPart.of(small, model_info(small))
    machine = Machine(8 << 30, 2, (), flat(1e10, "given"))
    whole, half = (
        best(machine, placed(part, draft, share=share), PlacementRequest(512, needs_draft=True)) for share in (1.0, 0.5)
    )
    assert whole.seconds < half.seconds
