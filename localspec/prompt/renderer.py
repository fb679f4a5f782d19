"""This process's end of the one that renders chat templates (`template_sandbox.py`): start it, ask it, replace it."""

import atexit
import json
import signal
import subprocess
import sys
import threading
from datetime import datetime
from typing import Any

from localspec.errors import InternalError, ResourceError

MAX_TEMPLATE = 128 * 1024  # characters; the longest in use have about 30 000
MAX_SECONDS = 2.0  # of processor time
MAX_WAIT = 60.0  # seconds on the clock; a machine that is busy may take long for MAX_SECONDS
MAX_OUTPUT = 8 * 1024 * 1024  # characters, besides what the messages themselves need


class Refused(Exception):
    """The template cannot be used; the text says why, to follow a colon."""


class RefusedByTemplate(Refused):
    """The template itself called raise_exception, as many do for a system message."""


class Renderer:
    """A process that renders, started when it is first needed and again after one was ended. Threads take turns."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        with self._lock:
            self._started()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to `question`; raises Refused if the process was ended over it."""
        line = json.dumps(question).encode("ascii") + b"\n"
        with self._lock:
            process = self._started()
            assert process.stdin
            assert process.stdout
            timer = threading.Timer(MAX_WAIT, process.kill)
            timer.start()
            try:
                process.stdin.write(line)
                process.stdin.flush()
                answer = process.stdout.readline()
            except BrokenPipeError:
                answer = b""
            finally:
                timer.cancel()
            if answer.endswith(b"\n"):
                reply: dict[str, Any] = json.loads(answer)
                return reply
            status = self._ended()
        if status >= 0:
            reason = f"The process that renders chat templates left with status {status}"
            raise InternalError(reason, hint="report this")
        if -status in (signal.SIGPROF, signal.SIGKILL):
            raise Refused(f"it takes longer than {MAX_SECONDS:g} s")
        raise Refused(f"Jinja crashed on it ({signal.Signals(-status).name})")

    def close(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._ended()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._ended()
        if self._process is None:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "localspec.prompt.template_sandbox"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # the terminal's Ctrl-C is not for it
                )
            except OSError as error:
                reason = f"The process that renders chat templates cannot be started: {error.strerror}"
                raise ResourceError(reason, hint="close other programs and try again") from None
            atexit.register(self.close)
        return self._process

    def _ended(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        process.communicate()
        atexit.unregister(self.close)
        return process.returncode


RENDERER = Renderer()


class Program:
    """A template with MAX_SECONDS of processor time, for all its renderings together. Raises Refused when the template
    is broken, forbidden or beyond a bound. `now` is for templates that state the date."""

    def __init__(self, source: str, now: datetime) -> None:
        if len(source) > MAX_TEMPLATE:
            raise Refused(f"it is longer than {MAX_TEMPLATE} characters")
        self._source = source
        self._now = now.isoformat()
        self._seconds = MAX_SECONDS

    def render(self, variables: dict[str, Any], n_content: int) -> str:
        if self._seconds <= 0:
            raise Refused(f"it takes longer than {MAX_SECONDS:g} s")
        question = {
            "template": self._source,
            "variables": variables,
            "now": self._now,
            "room": MAX_OUTPUT + 2 * n_content,
            "seconds": self._seconds,
        }
        answer = RENDERER.ask(question)
        self._seconds -= answer["seconds"]
        if "refused" in answer:
            raise (RefusedByTemplate if answer["by_itself"] else Refused)(answer["refused"])
        text: str = answer["text"]
        return text
