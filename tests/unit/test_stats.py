"""The identities between the counters, whatever happened."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.events import Committed, Finished, Piece, Prefilled, Probed, Started, StepMs
from localspec.faces.summary import is_slower, plans, speedup_words, verdict
from localspec.stats import Stats


def a_pass(index: int, depth: int, accepted: int, *, nodes: int | None = None, is_cut: bool = False) -> Committed:
    """Return a pass with a draft `depth` levels deep of which `accepted` tokens were committed."""
    last = [] if is_cut else ["plain" if depth == 0 else "bonus" if accepted == depth else "corrected"]
    out = tuple(Piece(i, "w ", source) for i, source in enumerate(["accepted"] * accepted + last))
    ms = StepMs(1.0, 4.0, 0.5, 0.5)
    k = depth if nodes is None else nodes
    return Committed(index, 10 + index, k, depth, accepted, out, "w " * len(out), ms, depth == 0, "")


@st.composite
def runs(draw: st.DrawFn) -> list[Committed]:
    made = [a_pass(0, 0, 0)]
    for index in range(1, draw(st.integers(1, 12))):
        depth = draw(st.integers(0, 5))
        nodes = 0 if depth == 0 else draw(st.integers(depth, 3 * depth))
        made.append(a_pass(index, depth, draw(st.integers(0, depth)), nodes=nodes))
    depth = draw(st.integers(1, 5))
    made.append(a_pass(len(made), depth, draw(st.integers(1, depth)), is_cut=True))
    return made


def folded(events: list[Committed]) -> Stats:
    stats = Stats()
    for event in events:
        stats.observe(event)
    return stats


@given(runs())
def test_identities(events: list[Committed]) -> None:
    stats = folded(events)
    assert stats.emitted == stats.accepted + stats.passes - stats.cut
    assert stats.cut == 1
    assert sum(stats.accepted_per_pos) == stats.accepted
    assert stats.accepted_per_pos == sorted(stats.accepted_per_pos, reverse=True)
    assert stats.tested == sorted(stats.tested, reverse=True)
    assert sum(stats.by_source.values()) == stats.emitted
    assert stats.by_source["accepted"] == stats.accepted
    assert stats.text == "w " * stats.emitted
    for kept, reached, tested in zip(stats.accepted_per_pos, stats.reached, stats.tested, strict=True):
        assert kept <= reached <= tested
    for rate in (stats.acceptance, stats.mean_alpha, stats.accepted_over_k, *stats.conditional):
        assert rate is None or 0 <= rate <= 1
    assert math.isclose(stats.decode_ms, 6.0 * (stats.passes - 1))


@given(runs())
def test_a_position_is_reached_when_all_before_it_were_accepted(events: list[Committed]) -> None:
    stats = folded(events)
    for i, reached in enumerate(stats.reached):
        deep = [event for event in events if event.depth > i and event.n_accepted >= i]
        decided = [event for event in deep if event.n_accepted > i or event.out[-1].source != "accepted"]
        assert reached == len(decided)


def test_numbers_of_a_small_run() -> None:
    stats = folded([a_pass(0, 0, 0), a_pass(1, 4, 2), a_pass(2, 4, 4), a_pass(3, 4, 0), a_pass(4, 0, 0)])
    assert stats.tested == [3, 3, 3, 3]
    assert stats.accepted_per_pos == [2, 2, 1, 1]
    assert stats.reached == [3, 2, 2, 1]
    assert stats.conditional == [pytest.approx(2 / 3), 1.0, 0.5, 1.0]
    assert stats.mean_alpha == pytest.approx(6 / 8)
    assert stats.acceptance == pytest.approx(6 / 12)
    assert stats.accepted_length == pytest.approx(2.0)
    assert stats.accepted_over_k == pytest.approx((0.5 + 1 + 0) / 3)
    assert stats.tokens_per_pass == pytest.approx(11 / 5)
    assert stats.ms_per_token == pytest.approx(24 / 10)  # the prompt's own token is not decoding


def test_what_plans_promised_is_told_beside_what_came() -> None:
    """By drafter, a pass; those that promised nothing, as plain decoding and looks at a draft, count for nobody."""
    promised = {"drafter": "suffix", "expected_tokens": 2.5, "expected_ms": 7.0}
    passes = [
        replace(a_pass(1, 4, 2), rows=5, **promised),
        replace(a_pass(2, 1, 0), rows=2, **promised),
        replace(a_pass(3, 2, 2), rows=3, **{**promised, "drafter": "draft-model"}),
    ]
    told = plans(folded([a_pass(0, 0, 0), *passes, a_pass(4, 0, 0), a_pass(5, 4, 4)]))
    assert told == (
        "suffix in 2 passes of 2 to 5 rows: 2.5 tokens in 7.0 ms planned, 2.0 in 6.0 ms came; "
        "draft-model in 1 pass of 3 rows: 2.5 tokens in 7.0 ms planned, 3.0 in 6.0 ms came"
    )
    assert plans(folded([a_pass(0, 0, 0), a_pass(1, 0, 0)])) == ""


def test_a_tree_counts_every_tested_node_as_drafted() -> None:
    stats = folded([a_pass(0, 0, 0), a_pass(1, 2, 1, nodes=6)])
    assert (stats.drafted, stats.tested, stats.accepted_per_pos) == (6, [1, 1], [1, 0])


def test_no_speedup_without_a_probe() -> None:
    stats = folded([a_pass(0, 0, 0), a_pass(1, 4, 2)])
    assert stats.baseline is None
    assert stats.speedup is None


def test_no_speedup_of_plain_decoding_over_itself() -> None:
    stats = folded([a_pass(0, 0, 0), a_pass(1, 0, 0)])
    for _ in range(2):
        stats.observe(Probed(5.0, 20))
    assert stats.baseline is not None
    assert stats.speedup is None


def test_the_baseline_is_the_lower_quartile_of_the_probes() -> None:
    now = [0.0]
    stats = Stats(clock=lambda: now[0])
    for event in (a_pass(0, 0, 0), a_pass(1, 4, 2)):
        stats.observe(event)
    for ms, ctx in ((10.0, 20), (90.0, 30), (12.0, 35), (14.0, 38), (16.0, 40)):
        stats.observe(Probed(ms, ctx))
    now[0] = 3.0
    assert stats.baseline is not None
    assert (stats.baseline.ms_per_token, stats.baseline.n, stats.baseline.ctx) == (12.0, 5, 40)
    assert stats.baseline.age_s == 3.0
    assert stats.speedup == pytest.approx(12.0 / 2.0)


def test_a_baseline_of_an_earlier_answer_says_how_old_it_is() -> None:
    now = [50.0]
    stats = Stats(clock=lambda: now[0])
    stats.observe(Probed(10.0, 20, age_s=9.0))
    stats.observe(Probed(10.0, 21, age_s=8.0))
    for event in (a_pass(0, 0, 0), a_pass(1, 4, 2)):
        stats.observe(event)
    now[0] = 52.0
    assert stats.baseline is not None
    assert (stats.baseline.age_s, stats.baseline.is_live) == (10.0, False)
    assert "probed 10 s ago" in speedup_words(stats)
    stats.observe(Probed(6.0, 30))
    assert (stats.baseline.age_s, stats.baseline.is_live) == (10.0, False)
    assert stats.baseline.n == 3
    stats.observe(Probed(6.0, 31))
    assert (stats.baseline.age_s, stats.baseline.is_live, stats.baseline.n) == (0.0, True, 2)
    assert stats.baseline.ms_per_token == 6.0, "two passes of this answer say more than those of a slower hour"
    assert "probed live" in speedup_words(stats)


@pytest.mark.parametrize(
    ("speedup", "words", "is_loss"),
    [
        (1.001, "speculation neither pays nor costs: 1.00x; k 4", False),
        (0.998, "speculation neither pays nor costs: 1.00x; k 4", False),
        (1.03, "speculation pays: 1.03x; k 4", False),
        (0.97, "speculation does not pay: 0.97x; k 4", True),
    ],
)
def test_what_is_no_difference_is_not_called_one(speedup: float, words: str, is_loss: bool) -> None:
    stats: Any = SimpleNamespace(finished=SimpleNamespace(verdict="k 4"), speedup=speedup)
    assert (verdict(stats), is_slower(stats)) == (words, is_loss)


def test_one_probe_is_no_baseline_and_of_two_the_faster_counts() -> None:
    """A machine that stutters in a plain pass must not make speculation look good."""
    stats = folded([a_pass(0, 0, 0), a_pass(1, 4, 2)])
    stats.observe(Probed(90.0, 20))
    assert stats.speedup is None
    stats.observe(Probed(10.0, 20))
    assert stats.baseline is not None
    assert stats.baseline.ms_per_token == 10.0


def test_nothing_divides_by_zero() -> None:
    stats = Stats()
    stats.observe(Started("plain", "chain", "fixed", 0, "block", 1, False, 3))
    stats.observe(Prefilled(3, 0, 0.0))
    stats.observe(Finished("interrupted", "", 0.0, 0.0, 0))
    assert stats.tok_per_s is stats.acceptance is stats.mean_alpha is stats.speedup is stats.tokens_per_pass is None


def test_the_tail_belongs_to_the_text() -> None:
    stats = folded([a_pass(0, 0, 0)])
    stats.observe(Finished("length", "tail", 1.0, 1.0, 0))
    assert stats.text == "w tail"
