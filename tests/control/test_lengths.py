"""The draft-length rules by themselves: what they read, how they move, and that they keep to the shape and the room."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.lengths import Adaptive, Confidence, Fixed
from localspec.engine.distribution import Distribution
from localspec.engine.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.engine.protocols import Controller, DraftBudget, DraftState, Plan, Shape
from localspec.errors import UsageError
from localspec.speculation import registered

CHAIN = Shape(12, 12, 1)
BUDGET = DraftBudget(depth=100, nodes=100)


class Text:
    """A history that only grows."""

    tokens: tuple[int, ...] = (1,)
    position = 1


def passed(drafted: int, accepted: int) -> Step:
    """Return a pass that kept `accepted` of `drafted` tokens."""
    draft = Draft.of([1] * (drafted + 1), range(-1, drafted))
    path = tuple(range(1, accepted + 1))
    return Step(draft, Verdict(path, 2, Source.PLAIN), (2,), (Source.PLAIN,), (0,), 1, Times(), Plan())


def build(spelling: str, shape: Shape = CHAIN) -> Controller:
    name, _, argument = spelling.partition(":")
    controller: Controller = registered("length")[name].build(argument, "d", shape, Draw.IID)
    return controller


def dist(*probs: float) -> Distribution:
    return Distribution.of(np.arange(len(probs), dtype=np.int32), np.array(probs))


def go_on(controller: Controller, of: Distribution, chance: float = 1.0) -> bool:
    return controller.plan(Text(), BUDGET).go_on(DraftState(of, 0, 0, chance))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_fixed_plan_is_its_shape_within_the_room(nodes: int, depth: int, room_depth: int, room_nodes: int) -> None:
    """Never more than asked, never more than fits, and no nodes without levels."""
    plan = Fixed("d", Shape(nodes, depth, 1), Draw.IID).plan(Text(), DraftBudget(room_depth, room_nodes))
    assert plan.max_depth == min(depth, room_depth)
    assert plan.max_nodes == (min(nodes, room_nodes) if plan.max_depth else 0)
    assert (plan.drafter, plan.draw, plan.is_probe) == ("d", Draw.IID, False)
    assert str(nodes) in plan.why


def test_confidence_reads_the_greatest_probability() -> None:
    peaked, flat, sure = dist(0.7, 0.2, 0.1), dist(0.25, 0.25, 0.25, 0.25), Distribution.one_hot(3)
    for spelling, open_for, closed_for in (
        ("confidence:0.7", (peaked, sure), (flat,)),
        ("confidence:0.71", (sure,), (peaked, flat)),
    ):
        assert all(go_on(build(spelling), of) for of in open_for)
        assert not any(go_on(build(spelling), of) for of in closed_for)
    assert Confidence.build("", "d", CHAIN, Draw.IID).limit == 0.4, "the argument may be left out"


def test_adaptive_includes_and_stops() -> None:
    """The first token is always drawn; below one that was improbable nothing more."""
    controller = build("adaptive:0.5")
    assert go_on(controller, dist(1.0))
    assert go_on(controller, dist(0.1, 0.9), chance=0.5)
    assert not go_on(controller, dist(1.0), chance=0.49)


def test_adaptive_moves_its_threshold() -> None:
    """Up a thousandth while less than 0.9 of the drafts is kept, else down; a full draft changes nothing."""
    rule = Adaptive("d", Shape(4, 4, 1), Draw.IID)
    assert rule.limit == 0.8
    rule.observe(passed(2, 0), 0.1)  # matched: 0.45
    assert rule.limit == pytest.approx(0.801)
    rule.observe(passed(2, 2), 0.1)  # 0.725
    rule.observe(passed(2, 2), 0.1)  # 0.8625
    assert rule.limit == pytest.approx(0.803)
    rule.observe(passed(2, 2), 0.1)  # 0.93125
    assert rule.limit == pytest.approx(0.802)
    rule.observe(passed(4, 4), 0.1)
    rule.observe(passed(0, 0), 0.1)
    assert rule.limit == pytest.approx(0.802)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=50), st.floats(0.0, 1.0))
def test_adaptive_never_locks_itself_out(passes: list[tuple[int, int]], threshold: float) -> None:
    """However long it fails, the first token of a draft is still drawn."""
    rule = Adaptive("d", Shape(4, 4, 1), Draw.IID, threshold)
    for drafted, accepted in passes * 20:
        rule.observe(passed(drafted, min(drafted, accepted)), 0.1)
        assert 0.0 <= rule.limit <= 1.0
    assert go_on(rule, dist(0.5, 0.5))


@pytest.mark.parametrize("rule", registered("length"))
@pytest.mark.parametrize("shape", [Shape(0, 0, 1), CHAIN, Shape(15, 3, 6)])
@pytest.mark.parametrize("budget", [DraftBudget(0, 9), DraftBudget(9, 0), DraftBudget(2, 3), BUDGET])
def test_every_rule_keeps_to_shape_and_room(rule: str, shape: Shape, budget: DraftBudget) -> None:
    """No plan exceeds either, and without a level there are no nodes."""
    controller = build(rule, shape)
    for drafted, accepted in ((0, 0), (3, 3), (3, 0), (12, 12)):
        plan = controller.plan(Text(), budget)
        assert plan.max_nodes <= min(shape.nodes, budget.nodes)
        assert plan.max_depth <= min(shape.depth, budget.depth)
        assert plan.max_depth > 0 or plan.max_nodes == 0
        assert (plan.drafter, plan.draw) == ("d", Draw.IID)
        assert plan.why.startswith(rule)
        controller.observe(passed(drafted, accepted), 0.1)


@pytest.mark.parametrize(
    "spelling",
    ["confidence:1.1", "confidence:-0.1", "confidence:x", "confidence:nan", "adaptive:7"],
)
def test_limits_out_of_range(spelling: str) -> None:
    """One line that says the range, with a value that works."""
    with pytest.raises(UsageError, match=f"--length {spelling} is out of range: from 0 to ") as caught:
        build(spelling)
    build(caught.value.hint.removeprefix("--length "))


def test_a_fixed_length_takes_no_argument() -> None:
    with pytest.raises(UsageError, match="takes no argument"):
        build("fixed:5")
