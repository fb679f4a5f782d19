"""When text on its way is written: at once after a pause, else together with what follows."""

from __future__ import annotations

import threading

import pytest

from localspec.conversations import stream
from localspec.conversations.stream import Stream

PATIENCE = 20.0  # seconds


def test_what_comes_after_a_pause_is_written_at_once_and_the_next_with_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "INTERVAL", 3600.0)
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
