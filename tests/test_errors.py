"""The error tree: one sentence, a hint, an exit code, and the same again behind the pipe."""

import json
import re
from pathlib import Path

import pytest

from localspec.errors import (
    ENDS,
    KINDS,
    TERMINATED,
    InternalError,
    LocalspecError,
    WorkerDiedError,
    exit_codes,
    from_wire,
    refused_with,
)
from localspec.ui import glossary


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: str) -> None:
    """Class, message, hint and detail survive JSON; the code is the class's own."""
    error = KINDS[kind]("what and why", hint="localspec run", detail={"id": 3})
    again = from_wire(json.loads(json.dumps(error.to_wire())))
    assert type(again) is KINDS[kind]
    assert (again.message, again.hint, again.detail) == ("what and why", "localspec run", {"id": 3})
    assert error.to_wire()["code"] == again.exit_code
    assert str(again) == "what and why"


def test_every_kind_has_its_own_code() -> None:
    """Scripts tell them apart; no code is one a shell or a signal uses (124 and up) but SIGTERM's, none is success."""
    codes = [cls.exit_code for cls in KINDS.values()]
    assert len(set(codes)) == len(codes)
    assert all(0 < code < 64 or code == TERMINATED for code in codes)
    assert set(KINDS.values()) == {*LocalspecError.__subclasses__(), *WorkerDiedError.__subclasses__()}
    assert WorkerDiedError.exit_code == 9


def test_codes_are_told() -> None:
    """Every code has a meaning of its own, in docs/cli.md by `scripts/docs` and in `localspec explain exit-code`."""
    told = exit_codes()
    assert list(told) == sorted({*ENDS, *(cls.exit_code for cls in KINDS.values())})
    assert len(told) == len(ENDS) + len(KINDS)
    meanings = [meaning for _, meaning in told.values()]
    assert all(meaning.endswith(".") for meaning in meanings)
    assert len(set(meanings)) == len(meanings)
    term = glossary.find("exit codes")
    assert term is not None
    assert {int(each) for each in re.findall(r"\d+", f"{term.short} {term.text}")} == set(told)


@pytest.mark.parametrize("wire", [{}, {"kind": "unheard of", "message": "m"}, {"kind": None, "detail": None}])
def test_unknown_kinds_are_internal(wire: dict) -> None:
    """A newer worker's error is still an error with a message."""
    error = from_wire(wire)
    assert type(error) is InternalError
    assert error.message
    assert error.detail == {}


def test_the_table_of_what_a_server_refuses_is_that_of_the_docs() -> None:
    text = (Path(__file__).parents[1] / "docs" / "server.md").read_text("utf-8")
    rows = re.findall(r"^\| ((?:\d{3}(?:, )?)+) \| [^|]* \| (\d+) \|$", text, re.MULTILINE)
    told = {int(status): int(code) for statuses, code in rows for status in statuses.split(", ")}
    assert told == {status: refused_with(status).exit_code for status in (400, 401, 403, 404, 413, 422, 429, 500, 503)}
