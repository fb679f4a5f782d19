"""Jobs for llama.cpp without a pair, each in a child process: loading it may print, crash, or need a missing library.

The command line and the screens import no backend. The child is `localspec.worker.lone_child`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from localspec.errors import NotFoundError
from localspec.sanitize import one_line

if TYPE_CHECKING:
    from localspec.settings.lone_jobs import LoneJob

PATIENCE = 60.0  # seconds for an answer that is not long in coming
COMMAND = (sys.executable, "-P", "-m", "localspec.worker.lone_child")


class Unanswered(NotFoundError):
    """llama.cpp could not be asked; `reason` says why, in the loader's or the process's own words."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"llama.cpp does not answer: {reason}", hint="localspec doctor")
        self.reason = reason


def ask(job: LoneJob, *, timeout: float = PATIENCE) -> dict[str, Any]:
    """Return the answer to a job, the last of several.

    Raises Unanswered, also where none came within `timeout` seconds, or what the job raised if that was an error of
    ours.
    """
    with _asked() as child:
        try:
            out, _ = child.communicate(_line(job), timeout)
        except subprocess.TimeoutExpired as error:
            raise Unanswered(f"nothing came of it within {timeout:g} s") from error
        contents = list(_contents(out.splitlines()))
    if not contents:
        raise Unanswered("status 0")
    return contents[-1]


def answers(job: LoneJob) -> Iterator[dict[str, Any]]:
    """Yield the answers to a job as they come, from a process that ends with the iteration. Raises as `ask` does."""
    with _asked() as child:
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError), child.stdin:
            child.stdin.write(_line(job))
        yield from _contents(child.stdout)


@contextlib.contextmanager
def _asked() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a child that waits for its job; it ends with the block. Raises Unanswered where it failed."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:  # a pipe that nobody reads would fill up
        try:
            child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        except OSError as error:
            raise Unanswered(type(error).__name__) from error
        with child:
            try:
                yield child
                if child.wait() != 0:
                    said.seek(0)
                    lines = said.read().strip().splitlines()
                    raise Unanswered(lines[-1] if lines else f"status {child.returncode}")
            finally:
                child.kill()


def _line(job: LoneJob) -> bytes:
    from localspec.worker.codec import job_line  # late: while the child starts

    return job_line(job)


def _contents(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield what the answers hold; raises the error of ours that is among them."""
    from localspec.engine.events import Failed, Inspected  # late, as above
    from localspec.worker.codec import CodecError, event_of

    for line in lines:
        try:
            event = event_of(json.loads(line))
        except json.JSONDecodeError as error:
            raise Unanswered(f"it sent a line that is not JSON: {one_line(line.decode('utf-8', 'replace'))}") from error
        except CodecError as error:
            raise Unanswered(str(error)) from error
        if isinstance(event, Failed):
            raise event.exception()
        if isinstance(event, Inspected):
            yield event.content
