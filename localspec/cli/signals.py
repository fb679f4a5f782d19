"""Signals while an answer is coming. The only module of the command line that knows POSIX.

The first Ctrl-C asks the engine to stop, which keeps the text so far; the second leaves at once. SIGTERM and SIGHUP do
the same while an answer is coming, for an exception could fall in the middle of a line of output; at other times and
the second time they raise `Terminated`, so that every `finally` on the way out tidies the terminal. A handler never
prints, and a signal that was ignored when the process started (nohup, a shell's background job) stays ignored.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from localspec.errors import INTERRUPTED, TIMED_OUT

SOON = 0.02  # seconds
MIN_SECONDS = 1e-3  # seconds that are left at least: a timer of 0 never rings
T = TypeVar("T")


class Terminated(BaseException):
    """The process was told to go; `exit_code` is the shell's 128 + signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class TimedOut(BaseException):
    """Something that comes before the answer took all of --timeout."""


@dataclass(slots=True)
class Stop:
    interrupts: int = 0
    is_timeout: bool = False
    termination: int = 0  # the signal's number

    @property
    def is_asked(self) -> bool:
        return bool(self.interrupts or self.is_timeout or self.termination)

    @property
    def exit_code(self) -> int:
        if self.termination:
            return 128 + self.termination
        return TIMED_OUT if self.is_timeout else INTERRUPTED if self.interrupts else 0

    def leave_if_told(self, *, is_script: bool) -> None:
        if self.termination:
            raise Terminated(self.termination)
        if self.interrupts and is_script:
            raise KeyboardInterrupt


@contextmanager
def stopping(cancel: Callable[[], None], again: Callable[[], None], timeout: float | None = None) -> Iterator[Stop]:
    """Call `cancel` on the first signal and after `timeout` seconds, `again` on every further Ctrl-C."""
    stop = Stop()

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        stop.interrupts += 1
        (cancel if stop.interrupts == 1 else again)()

    def on_alarm() -> None:
        stop.is_timeout = True
        cancel()

    def on_termination(number: int, frame: FrameType | None) -> None:
        if stop.termination:
            _terminate(number, frame)
        stop.termination = number
        cancel()

    with (
        _handling("SIGINT", on_interrupt),
        _handling("SIGTERM", on_termination),
        _handling("SIGHUP", on_termination),
        _alarm(timeout, on_alarm),
    ):
        yield stop


def timed(seconds: float | None, what: str, act: Callable[[], T]) -> tuple[T, float | None]:
    """Return what `act` returns, and what is left of `seconds`. Raises TimedOut, which names `what`, also out of a read
    that waits."""
    began = time.monotonic()

    def on_alarm() -> None:
        raise TimedOut(f"{what} took longer than --timeout {seconds:g}")

    with _alarm(seconds, on_alarm):
        done = act()
    return done, None if seconds is None else max(MIN_SECONDS, seconds - (time.monotonic() - began))


@contextmanager
def ringing(seconds: float, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` every so many seconds, in this thread: also while it waits for a key. Where Ctrl-C comes together with
    a call, `input` lets both handlers run, the second with the exception of the first on its way. Python makes a
    SystemError of that."""

    with _alarm(seconds, act, seconds):
        try:
            yield
        except SystemError as error:
            if error.__cause__ is None:
                raise
            raise error.__cause__ from None


@contextmanager
def _alarm(seconds: float | None, act: Callable[[], object], again: float = 0.0) -> Iterator[None]:
    with _handling("SIGALRM", lambda _number, _frame: act()):
        signal.setitimer(signal.ITIMER_REAL, seconds or 0, again)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def deferred() -> Iterator[None]:
    """Let Ctrl-C wait. A child process inherits the wait, so none reaches it before it has its own session."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def terminating() -> Iterator[None]:
    """Raise `Terminated` for SIGTERM and SIGHUP: dying of them would leave a half-drawn line or a raw terminal."""
    with _handling("SIGTERM", _terminate), _handling("SIGHUP", _terminate), _raised_again():
        yield


@contextmanager
def _raised_again() -> Iterator[None]:
    """Send a signal again whose exception Python ignored, as it does in finalisers: it would not end the program."""

    def ignored(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, Terminated):
            number = unraisable.exc_value.exit_code - 128
            signal.signal(number, _terminate)
        elif isinstance(unraisable.exc_value, KeyboardInterrupt):
            number = signal.SIGINT
        else:
            before(unraisable)
            return
        import threading  # late: few processes come here

        again = threading.Timer(SOON, os.kill, (os.getpid(), number))  # by then the finaliser is over
        again.daemon = True
        again.start()

    before, sys.unraisablehook = sys.unraisablehook, ignored
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def _handling(name: str, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    number = getattr(signal, name)
    before = signal.getsignal(number)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def leave_at_once(restore: Callable[[], None]) -> Callable[[], None]:
    def leave() -> None:
        restore()
        os._exit(INTERRUPTED)

    return leave


def _terminate(number: int, _frame: FrameType | None) -> None:
    if number == signal.SIGHUP:  # a shell sends another one, which says nothing new
        signal.signal(number, signal.SIG_IGN)
    raise Terminated(number)
