"""What is being written is read before it is sent: when, what of it, and that nobody waits for it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Static

from localspec.chat.state import on_battery
from localspec.settings.request import Request
from localspec.tui.worker_thread import Ended, WorkerThread
from tests.tui.chats import until
from tests.tui.scripted import PATIENCE, SETTINGS, ScriptedWorker, made, opened, say

PASTE = "The old woman sat by the fire and told a story. " * 6


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def ahead(worker: ScriptedWorker) -> list[str]:
    return [each.messages[-1].content for each in worker.requests if each.reads_ahead]


async def test_a_long_text_that_stands_still_is_read() -> None:
    worker = ScriptedWorker()
    async with opened(app=made(worker, in_idle="on")) as (pilot, app):
        chat, thread = app.chat, app.engine.worker_thread
        chat.composer.fill("a short one")
        for _ in range(3):
            await chat._second()
        assert not worker.requests
        chat.composer.fill(PASTE)
        await chat._second()
        assert not worker.requests, "it has changed since the last look"
        await chat._second()
        await until(pilot, lambda: thread.n_ahead == 16)
        assert ahead(worker) == [PASTE]
        await chat._second()
        assert "read ahead: 16 tokens" in str(chat.query_one("#attached", Static).content)
        chat.composer.fill(f"{PASTE} And")
        for _ in range(3):
            await chat._second()
        assert ahead(worker) == [PASTE], "a few words more are not worth a pass"
        await say(pilot, f"{PASTE} And then?")
        await until(pilot, lambda: app.chat_state.answering is None)
        assert thread.n_ahead == 0
        assert "read ahead" not in str(chat.query_one("#attached", Static).content)
        assert not worker.requests[-1].reads_ahead
        assert len(app.chat_state.messages.path()) == 2, "what was read ahead is no message"


@pytest.mark.parametrize("text", [f"/system {PASTE}", f"@notes.txt {PASTE}"])
async def test_commands_and_mentions_are_not_read(text: str) -> None:
    worker = ScriptedWorker()
    async with opened(app=made(worker, in_idle="on")) as (_, app):
        app.chat.composer.fill(text)
        for _ in range(3):
            await app.chat._second()
    assert not worker.requests


@pytest.mark.parametrize(("in_idle", "is_off"), [("off", True), ("auto", True), ("auto", False)])
async def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, in_idle: str, is_off: bool) -> None:
    """It is on a battery."""
    monkeypatch.setattr("localspec.chat.state.on_battery", lambda: is_off)
    worker = ScriptedWorker()
    async with opened(app=made(worker, in_idle=in_idle)) as (pilot, app):
        app.chat.composer.fill(PASTE)
        for _ in range(3):
            await app.chat._second()
        assert bool(worker.requests or app.engine.worker_thread._ahead) != is_off
        await say(pilot, "Hello.")
        await until(pilot, lambda: app.chat_state.answering is None and len(app.chat_state.messages.path()) == 2)


def test_an_answer_stops_it_and_it_is_no_job() -> None:
    worker = ScriptedWorker(hold_at=1)
    thread = WorkerThread(worker)
    thread.load(SETTINGS)
    wait_for(lambda: thread.has_ended)
    thread.take()
    thread.read_ahead(SETTINGS, Request(prompt="x", reads_ahead=True))
    assert worker.is_held.wait(PATIENCE)
    assert not thread.is_busy
    worker.hold_at = None
    job = thread.answer(SETTINGS, Request(prompt="y"))
    wait_for(lambda: thread.has_ended)
    ended = thread.take()[-1]
    assert isinstance(ended, Ended)
    assert (ended.job, ended.error) == (job, None)
    assert [each.prompt for each in worker.requests] == ["x", "y"]
    thread.close()


def test_an_answer_after_it_ended_cancels_nothing() -> None:
    """There is nothing left to stop, and a cancel would meet what runs next."""
    cancelled: list[bool] = []

    class Counting(ScriptedWorker):
        def cancel(self) -> None:
            cancelled.append(True)
            super().cancel()

    thread = WorkerThread(Counting())
    thread.load(SETTINGS)
    wait_for(lambda: thread.has_ended)
    thread.take()
    thread.read_ahead(SETTINGS, Request(prompt="x", reads_ahead=True))
    wait_for(lambda: thread.n_ahead > 0 and not thread._queue.running)
    thread.answer(SETTINGS, Request(prompt="y"))
    wait_for(lambda: thread.has_ended)
    assert not cancelled
    thread.close()


def test_nothing_is_read_before_the_pair_is_loaded() -> None:
    worker = ScriptedWorker()
    thread = WorkerThread(worker)
    thread.read_ahead(SETTINGS, Request(prompt="x", reads_ahead=True))
    thread.load(SETTINGS)
    wait_for(lambda: thread.has_ended)
    assert not worker.requests
    thread.close()


@pytest.mark.parametrize(
    ("supplies", "expected"),
    [
        ({}, False),
        ({"BAT0": ("Battery", "")}, False),
        ({"AC": ("Mains", "1"), "BAT0": ("Battery", "")}, False),
        ({"AC": ("Mains", "0"), "BAT0": ("Battery", "")}, True),
        ({"AC": ("Mains", "0"), "USB": ("Mains", "1")}, False),
    ],
)
def test_the_system_says_whether_it_runs_on_its_battery(
    tmp_path: Path, supplies: dict[str, tuple[str, str]], expected: bool
) -> None:
    for name, (kind, online) in supplies.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text(f"{kind}\n")
        (tmp_path / name / "online").write_text(f"{online}\n")
    assert on_battery(tmp_path) == expected
    assert not on_battery(tmp_path / "none")
