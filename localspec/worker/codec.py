"""The codec of all that crosses a process: a value is a JSON object with the name of its class, checked on arrival.

msgspec checks fields and types. The text of JSON is the standard library's, for msgspec's writes infinity as null and
refuses the names of files that are no UTF-8. Unknown fields are ignored: a newer writer may say more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from localspec.engine.events import Committed, Event
from localspec.settings.values import with_tuples

if TYPE_CHECKING:
    from localspec.settings.jobs import PairJob
    from localspec.settings.lone_jobs import LoneJob

# No object that is told holds a circle.
JSON = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
Kinds = Mapping[str, type[Any]]


def kinds(union: Any) -> Kinds:
    return {cls.__name__.lower(): cls for cls in get_args(union)}


EVENTS = kinds(Event)


class CodecError(ValueError):
    """An object is no value of its kind; the message says which field is wrong, and how."""


def event_wire(event: Event, sequence: int) -> dict[str, Any]:
    return {"seq": sequence, "type": type(event).__name__.lower(), **_fields(event)}


def event_line(event: Event, sequence: int) -> bytes:
    """Return an event of a request as a line.

    A pass is told while the target waits, so msgspec writes it: its numbers are finite, and its text is whole.
    """
    if isinstance(event, Committed):
        return b'{"seq":%d,"type":"committed",%b\n' % (sequence, PASSES.encode(event)[1:])
    return _line(event_wire(event, sequence))


def job_line(job: PairJob | LoneJob, sequence: int = 0) -> bytes:
    return _line({"seq": sequence, "command": type(job).__name__.lower(), **_fields(job)})


def event_of(wire: Mapping[str, Any]) -> Event | None:
    """Return the event of an object, None for a type that this version does not know. Raises CodecError."""
    kind = EVENTS.get(str(wire.get("type")))
    event: Event | None = None if kind is None else _value(wire, kind)
    return event


def job_of(wire: Mapping[str, Any], jobs: Kinds) -> Any:
    """Return the job of an object, one of `jobs`. Raises CodecError."""
    name = str(wire.get("command"))
    if name not in jobs:
        raise CodecError(f"there is no job {name!r}")
    return _value(with_tuples(wire), jobs[name])


def _line(wire: Mapping[str, Any]) -> bytes:
    return JSON(wire).encode("ascii") + b"\n"


def _fields(value: Any) -> dict[str, Any]:
    wire: dict[str, Any] = msgspec.to_builtins(value, enc_hook=_number)
    return wire


def _number(value: Any) -> float:
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} is nothing that crosses a process")


PASSES = msgspec.json.Encoder(enc_hook=_number)


def _value(wire: Mapping[str, Any], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(wire, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise CodecError(f"{kind.__name__.lower()}: {error}") from None
