"""The real engine in a thread of this process, in place of the worker's: for tests that need it and no process.

Commands, events and cancelling pass through the same pipes as between two processes. To start Python twice and to load
numpy and llama.cpp anew takes four times as long as a tiny model's answer.
"""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

from localspec.worker.main import ALL, JobServer, _read
from localspec.worker.process import Child, Log


class EngineThread(threading.Thread):
    """Serves what the worker's process does; in the place of a `Popen`."""

    pid = os.getpid()

    def __init__(self, commands: int, control: int, events: int) -> None:
        super().__init__(daemon=True, name="engine")
        self._commands, self._control, self._events = commands, control, events
        self._server = JobServer(events)

    def run(self) -> None:
        watch = threading.Thread(target=self._watch, daemon=True)
        watch.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                self._server.begin()
                threading.Thread(target=_read, args=(self._commands, self._server), daemon=True).start()
                self._server.run()
        finally:
            self._server.close()
            os.close(self._events)
            watch.join()

    def _watch(self) -> None:
        with open(self._control, "rb") as lines:
            for line in lines:
                self._server.cancel(int(line))
        self.kill()

    def poll(self) -> int | None:
        return None if self.is_alive() else 0

    def wait(self, timeout: float) -> int:
        self.join(timeout)
        if self.is_alive():
            raise subprocess.TimeoutExpired("engine", timeout)
        return 0

    def kill(self) -> None:
        self._server.cancel(ALL)


def _start(command: Sequence[str], log: Log) -> Child:
    (commands, to_commands), (control, to_control), (from_events, events) = os.pipe(), os.pipe(), os.pipe()
    thread: Any = EngineThread(commands, control, events)
    thread.start()
    return Child(thread, to_commands, to_control, from_events, log)


@contextlib.contextmanager
def engine_in_process() -> Iterator[None]:
    """Let workers that are opened within this serve from a thread. Its threads are bound to no processor."""
    with (
        patch.dict(os.environ, {"OMP_PROC_BIND": "false"}),
        patch("localspec.backends.lib.LogRing.echo", lambda _log: None),
        patch.object(Child, "start", _start),
    ):
        yield
