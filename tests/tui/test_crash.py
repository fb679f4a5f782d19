"""What goes wrong with the engine becomes a card in the transcript, and the chat goes on."""

import pytest
from textual.widgets import Button

from localspec.errors import IntegrityError, NotFoundError, UsageError, WorkerDiedError
from localspec.settings.request import LoadSettings
from localspec.tui.widgets.card import ErrorCard
from localspec.tui.worker_thread import WorkerThread
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, ask, made, opened, say, say_until_held, settled, shown

LOG = "ggml.c:123: GGML_ASSERT(ne != 0) failed\n\x1b]0;evil\x07 [/INST]"
STORY = "Once upon a time there was a king."


def died() -> WorkerDiedError:
    detail = {"signal": "SIGABRT", "log": LOG}
    return WorkerDiedError("The engine aborted (SIGABRT) while generating", hint="--log-file FILE", detail=detail)


async def test_a_dead_engine_is_a_card_with_the_log_and_a_button() -> None:
    worker = ScriptedWorker()
    worker.fails[2] = died()
    async with opened(worker) as (pilot, app):
        await ask(pilot, "go")
        card = app.chat.query_one(ErrorCard)
        text, log = str(card.query_one("Static").render()), card.query_one("#log")
        assert "SIGABRT" in text
        assert "GGML_ASSERT" not in text
        assert not log.display
        await pilot.click(card.query_one("#unfold"))
        await until(pilot, lambda: bool(log.display))
        assert "GGML_ASSERT" in str(log.render())
        assert "\x1b" not in str(log.render())
        assert shown(app) == ["go", "Once upon a time there"]
        n = len(worker.loads)
        assert "(/restart)" in str(card.query(Button).first().label)
        await pilot.click(card.query(Button).first())
        await until(pilot, lambda: len(worker.loads) == n + 1 and not app.engine.worker_thread.is_busy)
        assert not app.chat.query(ErrorCard), "it is told until the engine is back"
        await say(pilot, "/restart")
        await until(pilot, lambda: len(worker.loads) == n + 2 and not app.engine.worker_thread.is_busy)
        await ask(pilot, "again")
        assert shown(app)[-1] == STORY


async def test_the_cause_is_seen_in_a_small_terminal_however_long_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.tui.test_crash.LOG", "\n".join(f"llama_context: line {n}" for n in range(40)))
    worker = ScriptedWorker()
    worker.fails[2] = died()
    async with opened(worker, size=(80, 24)) as (pilot, app):
        await ask(pilot, "go")
        await settled(pilot)
        region = app.chat.query_one(ErrorCard).region
        seen = app.chat.transcript.region
        assert seen.y <= region.y, "the whole card is in sight, its first line too"
        assert region.bottom <= seen.bottom


async def test_the_next_message_starts_the_engine_too() -> None:
    worker = ScriptedWorker()
    worker.fails[1] = died()
    async with opened(worker) as (pilot, app):
        await ask(pilot, "one")
        await ask(pilot, "two")
        assert len(worker.loads) == 2
        assert shown(app)[-1] == STORY


async def test_a_death_between_two_messages_is_told_at_once() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        worker.died_idle = died()
        await until(pilot, lambda: bool(app.chat.query(ErrorCard)))
        assert "SIGABRT" in str(app.chat.query_one(ErrorCard).query_one("Static").render())


async def test_a_pair_that_does_not_load_is_a_card_and_another_one_helps() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        worker.load_error = IntegrityError("bad.gguf is not GGUF", hint="another file")
        app.engine.switch_pair(LoadSettings("/models/bad.gguf", name="bad"))
        await until(pilot, lambda: bool(app.chat.query(ErrorCard)))
        assert "bad.gguf is not GGUF" in str(app.chat.query_one(ErrorCard).query_one("Static").render())
        assert not app.chat.query(Button)
        worker.load_error = None
        app.engine.switch_pair(LoadSettings("/models/good.gguf", name="good"))
        await until(pilot, lambda: not app.engine.worker_thread.is_busy)
        await ask(pilot, "go")
        assert shown(app) == ["go", STORY]


async def test_the_pair_is_switched_without_leaving() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await ask(pilot, "one")
        app.engine.switch_pair(LoadSettings("/models/other.gguf", name="other"))
        await until(pilot, lambda: not app.engine.worker_thread.is_busy)
        await ask(pilot, "two")
        assert [settings.name for settings in worker.loads] == ["storyteller", "other"]
        assert [message.content for message in worker.requests[-1].messages] == ["one", STORY, "two"]
        assert " other" in str(app.chat.query_one("TopBar").render())


async def test_a_load_is_stopped_and_the_message_with_it() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        worker.load_pause = 60.0
        app.engine.switch_pair(LoadSettings("/models/slow.gguf", name="slow"))
        await say(pilot, "go")
        await pilot.press("escape")
        await until(pilot, lambda: not app.engine.worker_thread.is_busy)
        assert app.chat_state.messages.path()[-1].finish == "interrupted"
        assert not worker.requests


async def test_escape_twice_leaves_the_engine_alone_and_a_deaf_one_is_ended_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_DEAF", "1")
    worker = ScriptedWorker(hold_at=1)
    app = made(worker)
    app.engine.worker_thread = WorkerThread(worker)  # by the machine's clock
    async with opened(app=app) as (pilot, app):
        await say_until_held(pilot, worker, "go")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "Esc again ends the engine" in str(app.chat.query_one("TopBar").render()))
        assert worker.n_closed == 0
        await pilot.press("escape")
        await until(pilot, lambda: worker.n_closed == 1)
        assert "was ended" in app.notices.text
        worker.go.set()
        await until(pilot, lambda: not app.engine.worker_thread.is_busy)


async def test_wrong_commands_are_cards_and_lose_nothing() -> None:
    async with opened() as (pilot, app):
        for text, kind, hint in (
            ("/tmep 3", UsageError, "/temp"),
            ("/temp hot", UsageError, "/set temp"),
            ("/ctx long", UsageError, "/ctx 8192"),
            ("/set ctx 0", UsageError, "/ctx 8192"),
            ("/set top-p 7", UsageError, "--top-p 0.95"),
            ("/read /no/such/file", NotFoundError, "the name of a text file"),
            ("/read ~nosuchuser/x", NotFoundError, "the name of a text file"),
        ):
            await say(pilot, text)
            await until(pilot, lambda: app.chat.composer.text == "")
            card = app.chat.query(ErrorCard).last()
            assert isinstance(card.error, kind)
            assert hint in card.error.hint
        assert app.chat_state.request.sampling.temperature == 0.8
