"""Asking llama.cpp in a process of its own: loading it may print, crash, or need a library that is not there.

The command line imports no backend. What it must know of one, the installed program's own Python tells it as lines of
JSON.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from localspec.errors import InternalError

PATIENCE = 60  # seconds for an answer that is not long in coming


class Unanswered(InternalError):
    """llama.cpp could not be asked; the message says why, in the loader's or the process's own words."""


def ask(expression: str, imports: str, *, timeout: float = PATIENCE) -> Any:
    """Return what `expression` is, as JSON, in a new process that has run `imports`. Raises Unanswered."""
    code = f"import json\n{imports}\nprint(json.dumps({expression}))"
    command = [sys.executable, "-P", "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True)
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as error:
        raise Unanswered(_reason(error.returncode, error.stderr)) from error
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise Unanswered(type(error).__name__) from error


def ask_lines(iterable: str, imports: str) -> Iterator[Any]:
    """Yield what `iterable` yields, each as JSON, from a new process, which ends with the iteration."""
    code = f"import json\n{imports}\nfor one in {iterable}: print(json.dumps(one), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            for line in child.stdout:
                with contextlib.suppress(ValueError):  # a library's own words
                    yield json.loads(line)
            said = child.stderr.read()
            if child.wait() != 0:
                raise Unanswered(_reason(child.returncode, said))
        finally:
            child.kill()


def _reason(code: int, stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return lines[-1] if lines else f"status {code}"
