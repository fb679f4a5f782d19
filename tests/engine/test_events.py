"""Events: a sample of each, which tests/worker/test_codec.py sends through a pipe; errors in them."""

from dataclasses import FrozenInstanceError

import pytest

from localspec.engine.events import (
    Committed,
    Failed,
    Finished,
    Inspected,
    Loaded,
    Loading,
    Logprob,
    ModelFacts,
    Piece,
    Prefilled,
    Probed,
    Reading,
    Scored,
    Started,
    StepMs,
    Waiting,
    Warned,
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
    Scored((Logprob(1, (79,), None), Logprob(2, (), -0.5))),
    Prefilled(9, 4, 3.25),
    COMMITTED,
    Probed(4.5, 21),
    Warned("request", "the draft is \x1b[31mred"),
    Finished("stop", "tail\n", 100.5, 10.25, 1 << 30),
    Inspected({"fork": None}),
    Failed(UsageError("no", hint="--yes", detail={"at": [1, 2]}).to_wire()),
]


def test_a_failure_becomes_its_error_again() -> None:
    error = EVENTS[-1].exception()
    assert isinstance(error, UsageError)
    assert (error.message, error.hint, error.detail) == ("no", "--yes", {"at": [1, 2]})


def test_events_are_frozen() -> None:
    """Everyone reads the same story."""
    with pytest.raises(FrozenInstanceError):
        EVENTS[0].fraction = 1.0
