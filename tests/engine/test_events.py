"""Events on the wire: every type survives JSON unchanged, and readers may ignore what they do not know."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import pytest

from localspec.engine.events import (
    TYPES,
    Committed,
    Failed,
    Finished,
    Inspected,
    Loaded,
    Loading,
    ModelFacts,
    Piece,
    Prefilled,
    Probed,
    Reading,
    Started,
    StepMs,
    Waiting,
    Warned,
    event_from_wire,
    to_wire,
)
from localspec.errors import UsageError

FACTS = ModelFacts("/m/t.gguf", 10_000_000, "llama", "Q8_0", 9_000_000, 4096, 8, 1 << 20, ("CPU", "GPU 0"))
COMMITTED = Committed(
    index=3,
    position=17,
    k=4,
    depth=4,
    n_accepted=1,
    out=(Piece(5, " a", "accepted", 0.25), Piece(7, "\ufffd", "corrected")),
    text=" a",
    ms=StepMs(1.5, 2.5, 0.25, 0.0),
    is_probe=False,
    why="fixed 4",
    drafted=(Piece(5, " a", "accepted", 0.25), Piece(6, "b", "rejected", 1e-9)),
    drafter="suffix",
)
EVENTS = [
    Loading("target", 0.5),
    Waiting(2),
    Loaded("storyteller", FACTS, FACTS, 2048, 2, 12.5, {"llama_cpp": "b1"}),
    Loaded("alone", FACTS, None, 2048, 2, 12.5, {}),
    Started("draft-model", "chain", "fixed", 4, "block", 2**63, True, 9),
    Started("draft-model", "chain", "fixed", 2, "coupled", 7, True, 9, widths=(1, 2, 3), left_out=(0, 1)),
    Reading(5),
    Prefilled(9, 4, 3.25),
    COMMITTED,
    Probed(4.5, 21),
    Warned("request", "the draft is \x1b[31mred"),
    Finished("stop", "tail\n", 100.5, 10.25, 1 << 30),
    Inspected({"fork": None}),
    Failed(UsageError("no", hint="--yes", detail={"at": [1, 2]}).to_wire()),
]


def test_no_type_is_left_out() -> None:
    """The samples below cover the register, and the register every type."""
    assert {type(event) for event in EVENTS} == set(TYPES.values())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_round_trip(event) -> None:
    """An event, its JSON line, and the event again."""
    line = json.dumps(to_wire(event))
    assert "\n" not in line
    again = event_from_wire(json.loads(line))
    assert again == event
    assert type(again) is type(event)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_unknown_fields_are_ignored(event) -> None:
    """A newer writer may say more."""
    assert event_from_wire({**json.loads(json.dumps(to_wire(event))), "news": [1]}) == event


def test_unknown_types_are_told() -> None:
    """The reader decides; here it is a KeyError with the name."""
    with pytest.raises(KeyError, match="sung"):
        event_from_wire({"type": "sung"})


def test_an_older_writer_may_leave_out_details() -> None:
    """A field with a default may be missing."""
    wire = json.loads(json.dumps(to_wire(COMMITTED)))
    del wire["drafted"]
    assert event_from_wire(wire).drafted == ()


def test_a_failure_becomes_its_error_again() -> None:
    """Kind, message, hint and detail cross the pipe."""
    error = EVENTS[-1].exception()
    assert isinstance(error, UsageError)
    assert (error.message, error.hint, error.detail) == ("no", "--yes", {"at": [1, 2]})


def test_events_are_frozen() -> None:
    """Everyone reads the same story."""
    with pytest.raises(FrozenInstanceError):
        EVENTS[0].fraction = 1.0
