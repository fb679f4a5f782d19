"""When text on its way is written: at once after a pause, else together with what follows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from localspec.conversations import answer_stream
from localspec.conversations.answer_stream import AnswerStream

PATIENCE = 20.0  # seconds


class Between:
    """A lock of which another thread takes its turn as soon as it is let go of for the first time."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._lock, self._turns = threading.Lock(), [turn]

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        while self._turns:
            self._turns.pop()()


def test_what_comes_after_a_pause_is_written_at_once_and_the_next_with_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_stream, "INTERVAL", 3600.0)
    written = threading.Event()
    pieces = AnswerStream(written.set)
    pieces.add(1, "Once")
    assert written.wait(PATIENCE)
    assert pieces.take() == {1: "Once"}
    written.clear()
    pieces.add(1, " upon")
    pieces.add(1, " a time")
    assert not written.wait(0.1)
    assert pieces.take() == {1: " upon a time"}
    timer = pieces._timer
    assert timer is not None
    pieces.close()
    assert timer.finished.is_set()


def test_one_timer_writes_what_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first at once; when it is due nothing runs, and the next is due after the interval."""
    timers: list[Timer] = []

    class Timer:
        daemon = is_started = False

        def __init__(self, interval: float, due: Callable[[], None]) -> None:
            self.interval, self.due = interval, due
            timers.append(self)

        def start(self) -> None:
            assert self.daemon
            self.is_started = True

    monkeypatch.setattr(answer_stream, "threading", SimpleNamespace(Timer=Timer, Lock=threading.Lock))
    monkeypatch.setattr(answer_stream, "time", SimpleNamespace(monotonic=lambda: 100.0))
    written: list[dict[int, str]] = []
    pieces = AnswerStream(lambda: written.append(pieces.take()))
    pieces.put_back({})
    assert not timers, "there is nothing to write"
    pieces.add(1, "Once")
    pieces.add(1, " upon")
    timers[0].due()
    assert written == [{1: "Once upon"}]
    pieces.add(1, " a time")
    assert [(timer.interval, timer.is_started) for timer in timers] == [(0.0, True), (0.5, True)]


def test_what_cannot_be_written_comes_again_before_what_followed() -> None:
    pieces = AnswerStream(lambda: None)
    pieces.add(1, "Once")
    taken = pieces.take()
    pieces.add(1, " upon")
    pieces.put_back(taken)
    assert pieces.take() == {1: "Once upon"}
    pieces.close()


def test_what_comes_while_something_is_put_back_stands_behind_it_all() -> None:
    pieces = AnswerStream(lambda: None)
    pieces.add(1, "Once")
    taken = pieces.take()
    pieces.add(1, " upon")
    pieces._lock = cast("threading.Lock", Between(lambda: pieces.add(1, " a time")))
    pieces.put_back(taken)
    assert pieces.take() == {1: "Once upon a time"}
    pieces.close()


def test_what_was_put_back_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_stream, "INTERVAL", 0.01)
    tries: list[dict[int, str]] = []
    done = threading.Event()

    def fail_once() -> None:
        tries.append(pieces.take())
        if len(tries) == 1:
            pieces.put_back(tries[0])
        else:
            done.set()

    pieces = AnswerStream(fail_once)
    pieces.add(1, "Once")
    assert done.wait(PATIENCE)
    assert tries == [{1: "Once"}, {1: "Once"}]
    pieces.close()
