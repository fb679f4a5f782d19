"""Questions to llama.cpp, asked in a child process: loading it may print, crash, or need a library that is missing.

The command line and the screens import no backend. The child runs the same Python and answers in lines of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from localspec.errors import NotFoundError, from_wire

PATIENCE = 60  # seconds for an answer that is not long in coming
MARK, ERROR = "localspec", "localspec-error"


class Unanswered(NotFoundError):
    """llama.cpp could not be asked; `reason` says why, in the loader's or the process's own words."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"llama.cpp does not answer: {reason}", hint="localspec doctor")
        self.reason = reason


def ask(expression: str, imports: str, *, timeout: float = PATIENCE) -> Any:
    """Return what `expression` is, as JSON, in a new process that has run `imports`.

    Raises Unanswered, or what the expression raised if that was an error of ours.
    """
    try:
        done = subprocess.run(_command(f"[{expression}]", imports), capture_output=True, text=True, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unanswered(type(error).__name__) from error
    answers = list(_answers(done.stdout.splitlines()))
    if done.returncode != 0 or not answers:
        raise Unanswered(_reason(done.returncode, done.stderr))
    return answers[-1]


def ask_lines(iterable: str, imports: str) -> Iterator[Any]:
    """Yield what `iterable` yields, each as JSON, from a new process, which ends with the iteration.

    Raises as `ask` does.
    """
    command = _command(iterable, imports)
    with (
        tempfile.TemporaryFile("w+", errors="replace") as said,  # a pipe that nobody reads would fill up
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as child,
    ):
        assert child.stdout is not None
        try:
            yield from _answers(child.stdout)
            if child.wait() != 0:
                said.seek(0)
                raise Unanswered(_reason(child.returncode, said.read()))
        finally:
            child.kill()


def _command(iterable: str, imports: str) -> list[str]:
    """Return the child's command line: it prints each value, or the error, as an object with a mark of ours."""
    code = (
        f"import json\nfrom localspec.errors import LocalspecError\ntry:\n {_indented(imports)}\n"
        f" for one in {iterable}: print(json.dumps({{{MARK!r}: one}}), flush=True)\n"
        f"except LocalspecError as error: print(json.dumps({{{ERROR!r}: error.to_wire()}}), flush=True)"
    )
    return [sys.executable, "-P", "-c", code]


def _indented(lines: str) -> str:
    return lines.replace("\n", "\n ")


def _answers(lines: Iterable[str]) -> Iterator[Any]:
    """Yield the values among what a child prints; a library's own words are passed over."""
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and ERROR in told:
            raise from_wire(told[ERROR])
        if isinstance(told, dict) and MARK in told:
            yield told[MARK]


def _reason(code: int, stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return lines[-1] if lines else f"status {code}"
