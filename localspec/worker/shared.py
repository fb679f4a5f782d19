"""The engine of a command: one that other programs of this user may share, else a child of its own."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from localspec.engine.closing import Closing
from localspec.engine.events import Event, Loaded, Warned
from localspec.errors import LocalspecError, WorkerDiedError
from localspec.settings.jobs import Generate, LoadedJob
from localspec.settings.request import LoadSettings, Request
from localspec.worker.client import Worker
from localspec.worker.keep_policy import SLOW, KeepAlive
from localspec.worker.runtime import Runtime, has_engines

if TYPE_CHECKING:
    from localspec.worker.engines import EngineClient, Engines


class SharedWorker(Closing):
    """A `ChatWorker` of the command `by`.

    `keep_alive` says for how long an engine is left behind. With None, or a `log_file`, the child is its own.
    """

    def __init__(
        self,
        by: str = "",
        *,
        keep_alive: KeepAlive | None = None,
        log_file: Path | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        self._by = by
        self._own = Worker(command=command, log_file=log_file)
        self._command = command
        self._keep_alive = keep_alive if log_file is None else None
        self._engines: Engines | None = None  # once one may be used
        self._engine: EngineClient | None = None  # that is used
        self._sign: IO[bytes] | None = None  # of the child of its own
        self.stays = False  # an engine that was loaded for this command stays, though nobody asked for that

    def prepare(self, settings: LoadSettings) -> None:
        """Start a process ahead of the load of a pair, unless an engine may be there."""
        if not self._may_share(settings):
            self._own.prepare()
        elif not has_engines():
            with contextlib.suppress(LocalspecError):
                self._look().prepare()

    def load(self, settings: LoadSettings) -> Iterator[Event]:
        """Load a pair, or attach to the engine that has it; ends after Loaded, or Finished where it was cancelled."""
        before, self._engine = self._engine, None
        if self._may_share(settings):
            self._engine = self._look().engine(settings)
        if before is not None:  # only now: the same engine would end with its last client
            before.close()
        if self._engine is not None:
            self._own.close()
            self._take_down()
        events = self._own.load(settings) if self._engine is None else self._engine.load(settings)
        if self._engine is None:
            self._put_up(settings)
        return self._loading(events, settings)

    def start(self, job: LoadedJob) -> Iterator[Event]:
        return (self._engine or self._own).start(job)

    def generate(self, request: Request) -> Iterator[Event]:
        return self.start(Generate(request))

    def cancel(self) -> None:
        (self._engine or self._own).cancel()

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        if self._engines is not None:
            self._engines.close()
        self._own.close()
        self._take_down()

    @property
    def pid(self) -> int | None:
        return self._own.pid if self._engine is None else self._engine.pid

    def lost(self) -> WorkerDiedError | None:
        return (self._engine or self._own).lost()

    def log_tail(self, lines: int = 20) -> str:
        return (self._engine or self._own).log_tail(lines)

    def _may_share(self, settings: LoadSettings) -> bool:
        return self._keep_alive is not None and (has_engines() or self._keep_alive.wants(settings))

    def _look(self) -> Engines:
        if self._engines is None:
            from localspec.worker.engines import Engines  # late: most commands have a child of their own

            assert self._keep_alive is not None
            self._engines = Engines(self._command or (), self._keep_alive, self._by)
        return self._engines

    def _loading(self, events: Iterator[Event], settings: LoadSettings) -> Iterator[Event]:
        remarks = [] if self._engines is None else self._engines.remarks
        yield from (Warned("engine", remark) for remark in remarks)
        remarks.clear()
        for event in events:
            if isinstance(event, Loaded) and self._engine is not None and self._keep_alive is not None:
                self.stays = self._keep_alive.is_auto and event.load_ms >= 1e3 * SLOW
            yield event

    def _put_up(self, settings: LoadSettings) -> None:
        """Have `localspec ps` list the child."""
        self._take_down()
        facts = {
            "settings": {"name": settings.name, "target": settings.target, "draft": settings.draft},
            "pid": self._own.pid,
            "engine_pid": self._own.pid,
            "since": time.time(),
            "state": "in use",
            "clients": [{"by": self._by, "pid": os.getpid()}],
            "waiting": 0,
            "keep_alive": 0.0,
            "idle_until": None,
            "tokens": None,
        }
        with contextlib.suppress(OSError, LocalspecError), Runtime.opened(make=True) as runtime:
            if runtime is not None:
                self._sign = runtime.sign(facts)

    def _take_down(self) -> None:
        sign, self._sign = self._sign, None
        if sign is not None:
            sign.close()
            with contextlib.suppress(OSError, LocalspecError), Runtime.opened() as runtime:
                if runtime is not None:
                    runtime.signs()  # which removes it
