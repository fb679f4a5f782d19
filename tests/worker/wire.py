"""Values as they arrive on the other side of a process's pipe."""

import json
from typing import TypeVar

from localspec.worker import lone_child, main
from localspec.worker.codec import event_line, event_of, job_line, job_of

T = TypeVar("T")


def crossed(value: T) -> T:
    """Return an event or a job as the other process reads it."""
    jobs = next((kinds for kinds in (main.JOBS, lone_child.JOBS) if type(value) in kinds.values()), None)
    line = job_line(value, 3) if jobs else event_line(value, 3)
    assert line.count(b"\n") == 1
    wire = json.loads(line)
    assert wire["seq"] == 3
    found: T = job_of(wire, jobs) if jobs else event_of(wire)
    return found
