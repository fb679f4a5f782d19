"""Controllers: plans within the room, and measuring passes when they are due. (The loss account: test_guard.py.)"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.control.fixed import Fixed
from localspec.control.probe import AGAIN, EVERY, FIRST, KEPT, NEAR, RECENT, Probes, Probing
from localspec.draft import Draft, Draw, Source, Step, Times
from localspec.protocols import Controller, History, Plan, Room, Shape

ROOMY = Room(depth=99, nodes=99)


class Text:
    """What a controller may see of the text."""

    tokens = (1,)
    position = 1


def observe(controller: Controller, plan: Plan) -> None:
    """Let the controller see a pass that carried out its plan."""
    draft = Draft.of([1] * (plan.max_nodes + 1), range(-1, plan.max_nodes))
    verdict = draft.verdict(0, 2)
    controller.observe(Step(draft, verdict, (2,), (Source.PLAIN,), (0,), 1, Times(), plan), 0.1)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_fixed_plan_is_its_shape_within_the_room(nodes: int, depth: int, room_depth: int, room_nodes: int) -> None:
    """Never more than asked, never more than fits, and no nodes without levels."""
    plan = Fixed("d", Shape(nodes, depth, 1), Draw.IID).plan(Text(), Room(room_depth, room_nodes))
    assert plan.max_depth == min(depth, room_depth)
    assert plan.max_nodes == (min(nodes, room_nodes) if plan.max_depth else 0)
    assert (plan.drafter, plan.draw, plan.is_probe) == ("d", Draw.IID, False)
    assert str(nodes) in plan.why


def test_measuring_passes_come_early_and_then_every_so_often() -> None:
    """The plain ones come early and two in every EVERY; only one that follows a plain pass is a measurement."""
    plain, probes = measuring(is_known=False)
    assert plain == [*FIRST, *AGAIN, EVERY, EVERY + 1, 2 * EVERY, 2 * EVERY + 1]
    assert sum(index < 4 for index in probes) >= 2  # a short answer has a baseline too


def test_a_baseline_that_is_known_is_only_renewed() -> None:
    plain, _ = measuring(is_known=True)
    assert plain == [*AGAIN, EVERY, EVERY + 1, 2 * EVERY, 2 * EVERY + 1]


def measuring(*, is_known: bool) -> tuple[list[int], list[int]]:
    """Return which passes were left plain, and which of them were measurements."""
    inner = Fixed("d", Shape(4, 4, 1), Draw.COUPLED)
    controller = Probing(inner, is_known=is_known)
    plain, probes = [], []
    for index in range(3 * EVERY):
        plan = controller.plan(Text(), ROOMY)
        if plan.max_nodes == 0:
            plain.append(index)
            assert plan.max_depth == 0
            assert plan.why
        else:
            assert plan == inner.plan(Text(), ROOMY)
        if plan.is_probe:
            probes.append(index)
        observe(controller, plan)
    assert probes == [index for index in plain if index - 1 in plain]
    return plain, probes


def test_probes_are_kept_for_answers_that_follow_soon_at_about_their_depth() -> None:
    now = [0.0]
    probes = Probes(lambda: now[0])
    probes.add(60.0, 200)
    assert probes.near(200) == []  # one is no baseline
    probes.add(61.0, 201)
    assert [one.ms for one in probes.near(200)] == [60.0, 61.0]
    assert probes.near(201 + NEAR + 1) == probes.near(200 - NEAR - 2) == []
    for n in range(KEPT):
        probes.add(float(n), 1000)
    assert probes.near(200) == []
    assert len(probes.near(1250)) == KEPT
    now[0] = RECENT + 1
    assert probes.near(1000) == []


def test_nothing_is_thought_of_in_a_measuring_pass() -> None:
    """A trial that is due would be forgone, and the next one put off."""
    rooms = []

    class Inner(Fixed):
        def plan(self, history: History, room: Room) -> Plan:
            rooms.append(room)
            return super().plan(history, room)

    controller = Probing(Inner("d", Shape(2, 2, 1), Draw.IID))
    for _ in range(EVERY + 3):
        observe(controller, controller.plan(Text(), ROOMY))
    assert [n for n, room in enumerate(rooms) if room == Room(0, 0)] == [*FIRST, *AGAIN, EVERY, EVERY + 1]
    assert {*rooms} == {Room(0, 0), ROOMY}


def test_the_inner_controller_sees_every_pass() -> None:
    """Also the measuring ones."""
    seen = []

    class Inner(Fixed):
        def observe(self, step: Step, seconds: float) -> None:
            seen.append(step.plan.is_probe)

    controller = Probing(Inner("d", Shape(2, 2, 1), Draw.IID))
    for _ in range(4):
        observe(controller, controller.plan(Text(), ROOMY))
    assert seen == [False, True, True, False]
