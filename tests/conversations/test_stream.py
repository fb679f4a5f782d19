"""When text on its way is written: at once after a pause, else together with what follows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from localspec.conversations import file
from localspec.conversations.file import Stream

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
    monkeypatch.setattr(file, "INTERVAL", 3600.0)
    written = threading.Event()
    pieces = Stream(written.set)
    pieces.add(1, "Once")
    assert written.wait(PATIENCE)
    assert pieces.take() == {1: "Once"}
    written.clear()
    pieces.add(1, " upon")
    pieces.add(1, " a time")
    assert not written.wait(0.1)
    assert pieces.take() == {1: " upon a time"}
    pieces.close()


def test_what_cannot_be_written_comes_again_before_what_followed() -> None:
    pieces = Stream(lambda: None)
    pieces.add(1, "Once")
    taken = pieces.take()
    pieces.add(1, " upon")
    pieces.put_back(taken)
    assert pieces.take() == {1: "Once upon"}
    pieces.close()


def test_what_comes_while_something_is_put_back_stands_behind_it_all() -> None:
    pieces = Stream(lambda: None)
    pieces.add(1, "Once")
    taken = pieces.take()
    pieces.add(1, " upon")
    pieces._lock = cast("threading.Lock", Between(lambda: pieces.add(1, " a time")))
    pieces.put_back(taken)
    assert pieces.take() == {1: "Once upon a time"}
    pieces.close()


def test_what_was_put_back_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "INTERVAL", 0.01)
    tries: list[dict[int, str]] = []
    done = threading.Event()

    def fail_once() -> None:
        tries.append(pieces.take())
        if len(tries) == 1:
            pieces.put_back(tries[0])
        else:
            done.set()

    pieces = Stream(fail_once)
    pieces.add(1, "Once")
    assert done.wait(PATIENCE)
    assert tries == [{1: "Once"}, {1: "Once"}]
    pieces.close()
