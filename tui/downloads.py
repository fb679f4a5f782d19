"""One download at a time, planned, agreed to, carried out by threads, and told while it goes on.

Nothing of Textual is here: a screen looks at it ten times a second, and it goes on while other screens are shown.
What is interrupted is kept, and the same download goes on from there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from localspec.errors import InternalError, LocalspecError
from localspec.models.hub.cache import Cache
from localspec.models.hub.pulled import Receipts
from localspec.models.hub.remote import Hub
from localspec.models.names import HubName
from localspec.models.pull import DownloadProgress, Pull, PullPlan, make_plan

Phase = Literal["asking", "planned", "running", "done", "failed", "cancelled"]


@dataclass(slots=True)
class Download:
    """Downloads what `ref` lacks. Its thread writes `phase`, and waits at "planned" for `begin` or `cancel`."""

    ref: str
    wanted: tuple[HubName, ...]
    clock: Callable[[], float] = time.monotonic
    phase: Phase = "asking"
    plan: PullPlan | None = None
    error: LocalspecError | None = None
    pull: Pull | None = None
    began: float = 0.0
    had: int = 0  # bytes that were here when it began
    is_told: bool = False  # that it is done, to who lists what is here
    _answer: threading.Event = field(default_factory=threading.Event)
    _is_cancelled: bool = False

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="download").start()

    def begin(self) -> None:
        self._answer.set()

    def cancel(self) -> None:
        self._is_cancelled = True
        if self.phase == "planned":  # nothing has begun, so it is over at once
            self.phase = "cancelled"
        if self.pull is not None:
            self.pull.is_cancelled = True
        self._answer.set()

    @property
    def is_over(self) -> bool:
        return self.phase in ("done", "failed", "cancelled")

    @property
    def files(self) -> list[DownloadProgress]:
        return [] if self.pull is None else self.pull.files

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def total(self) -> int:
        return sum(file.item.file.size for file in self.files)

    @property
    def rate(self) -> float:
        seconds = self.clock() - self.began
        return (self.bytes - self.had) / seconds if seconds > 0 else 0.0

    def _run(self) -> None:
        try:
            self._carry_out()
        except LocalspecError as error:
            self.error, self.phase = error, "failed"
        except Exception as error:  # the screen must hear of it
            unexpected = InternalError(f"unexpected {type(error).__name__}: {error}", hint="please report it")
            self.error, self.phase = unexpected, "failed"

    def _carry_out(self) -> None:
        hub, cache, receipts = Hub(), Cache(), Receipts()
        plan = make_plan(self.wanted, hub, cache, receipts)
        plan.require_space()
        self.plan, self.phase = plan, "planned"
        self._answer.wait()
        if not self._is_cancelled:
            pull = Pull(plan, hub, cache, receipts)
            self.had, self.began = sum(file.bytes for file in pull.files), self.clock()
            self.pull, self.phase = pull, "running"
            pull.is_cancelled = self._is_cancelled
            pull.start()
            while not pull.is_over:
                time.sleep(0.05)
            pull.result()
        self.phase = "cancelled" if self._is_cancelled else "done"
