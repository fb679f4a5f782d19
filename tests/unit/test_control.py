"""Controllers: plans within the room, and measuring passes when they are due. (The loss account: test_guard.py.)"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.control.fixed import Fixed
from localspec.control.probe import EARLY, EVERY, Probing
from localspec.draft import Draft, Draw, Source, Step, Times
from localspec.protocols import Controller, Plan, Room, Shape

ROOMY = Room(depth=99, nodes=99)


class Text:
    """What a controller may see of the text."""

    tokens = (1,)
    position = 1


def observe(controller: Controller, plan: Plan) -> None:
    """Let the controller see a pass that carried out its plan."""
    draft = Draft.of([1] * (plan.max_nodes + 1), range(-1, plan.max_nodes))
    verdict = draft.verdict(0, 2)
    controller.observe(Step(draft, verdict, (2,), (Source.PLAIN,), (0,), 1, Times(), is_probe=plan.is_probe), 0.1)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_fixed_plan_is_its_shape_within_the_room(nodes: int, depth: int, room_depth: int, room_nodes: int) -> None:
    """Never more than asked, never more than fits, and no nodes without levels."""
    plan = Fixed("d", Shape(nodes, depth, 1), Draw.IID).plan(Text(), Room(room_depth, room_nodes))
    assert plan.max_depth == min(depth, room_depth)
    assert plan.max_nodes == (min(nodes, room_nodes) if plan.max_depth else 0)
    assert (plan.drafter, plan.draw, plan.is_probe) == ("d", Draw.IID, False)
    assert str(nodes) in plan.why


def test_measuring_passes_come_early_and_then_every_so_often() -> None:
    """Two passes at once, a few early ones and every 64th are plain and marked; all others are the inner plans."""
    inner = Fixed("d", Shape(4, 4, 1), Draw.COUPLED)
    controller = Probing(inner)
    probes = []
    for index in range(3 * EVERY):
        plan = controller.plan(Text(), ROOMY)
        if plan.is_probe:
            probes.append(index)
            assert (plan.max_nodes, plan.max_depth) == (0, 0)
            assert plan.why
        else:
            assert plan == inner.plan(Text(), ROOMY)
        observe(controller, plan)
    assert probes == [*EARLY, EVERY, 2 * EVERY]
    assert sum(early < 4 for early in EARLY) >= 2  # a short answer has a baseline too


def test_plain_decoding_needs_no_measuring_pass() -> None:
    """Where nothing is drafted every pass is plain already, and none is called a probe."""
    controller = Probing(Fixed("d", Shape(0, 0, 1), Draw.IID))
    for _ in range(2 * EVERY):
        plan = controller.plan(Text(), ROOMY)
        assert not plan.is_probe
        observe(controller, plan)


def test_the_inner_controller_sees_every_pass() -> None:
    """Also the measuring ones."""
    seen = []

    class Inner(Fixed):
        def observe(self, step: Step, seconds: float) -> None:
            seen.append(step.is_probe)

    controller = Probing(Inner("d", Shape(2, 2, 1), Draw.IID))
    for _ in range(4):
        observe(controller, controller.plan(Text(), ROOMY))
    assert seen == [True, True, False, False]
