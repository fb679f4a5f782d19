"""The race: plain first, then speculation against its ghost, never both at once, and a verdict that is explained."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input

from localspec.bench.answers import Answer
from localspec.errors import WorkerDiedError
from localspec.prompt.named_templates import NAMED
from localspec.settings.request import Request, Sampling, Speculation
from localspec.tui.app import LocalspecApp
from localspec.tui.race_progress import Moment, Running, RunningAnswer
from localspec.tui.screens.race import RaceScreen
from localspec.tui.widgets.composer import Composer
from localspec.worker.client import Worker
from tests.cli.harness import needs_pair
from tests.tui.chats import WORDS, ScriptedEngine, app_of, opened, shown, until

TIE = {"index": 6, "plain": 1, "other": 2, "margin": 0.003, "drift": 0.002, "is_tie": True}
OTHER = [*WORDS[:6], *["queen", "of", "all", "the", "lands", "beyond", "the", "sea", "and", "sky"]]


async def race(pilot: Pilot[Any], text: str = "Tell me of a king") -> RaceScreen:
    """Write a question, open the race, and wait for its end."""
    app = pilot.app
    assert isinstance(app, LocalspecApp)
    await until(pilot, lambda: app.screen is app.chat and app.chat_state.loaded is not None)
    app.chat.composer.fill(text)
    await pilot.press("f4")
    await until(pilot, lambda: isinstance(app.screen, RaceScreen))
    screen = app.screen
    assert isinstance(screen, RaceScreen)
    await until(pilot, lambda: screen.running is not None and screen.running.is_over)
    return screen


async def test_one_after_the_other_with_one_seed() -> None:
    engine = ScriptedEngine()
    app = app_of(engine)
    async with opened(app) as pilot:
        await race(pilot)
        picture = shown(app)
    asked = [(one.speculation.method, one.max_tokens, one.cold) for one in engine.requests]
    assert asked == [("plain", 8, True), ("auto", 8, True), ("plain", 16, True), ("auto", 16, True)]
    assert len({one.sampling.seed for one in engine.requests[2:]}) == 1
    assert "1 round does not show whether speculation pays" in picture
    assert "identical output, 16 tokens" in picture
    assert picture.count("Once upon a time there was a king") == 2


async def test_a_fork_is_explained() -> None:
    app = app_of(ScriptedEngine(other=OTHER, fork=TIE))
    async with opened(app) as pilot:
        await race(pilot)
        picture = shown(app)
    assert "diverged at token 6: plain ' a', speculative ' queen': a numerical tie" in picture


async def test_six_rounds_turn_their_order_and_have_an_interval() -> None:
    engine = ScriptedEngine()
    app = app_of(engine)
    async with opened(app) as pilot:
        screen = await race(pilot)
        before = len(engine.requests)
        await pilot.press("f5")
        await until(pilot, lambda: len(engine.requests) == before + 14)
        assert screen.running is not None
        await until(pilot, lambda: screen.running is not None and screen.running.is_over)
        picture = shown(app)
    methods = [one.speculation.method for one in engine.requests[-12:]]
    assert methods == ["plain", "auto", "auto", "plain"] * 3
    assert "speculation pays here: 4.00 [4.00, 4.00]× plain, 6 rounds" in picture


async def test_escape_stops_the_race_and_then_goes_back() -> None:
    engine = ScriptedEngine(pause=0.5)
    app = app_of(engine)
    async with opened(app) as pilot:
        app.chat.composer.fill("Tell me")
        await pilot.press("f4")
        screen = app.screen
        assert isinstance(screen, RaceScreen)
        await until(pilot, lambda: len(engine.requests) == 1)
        await pilot.press("escape")
        await until(pilot, lambda: screen.running is not None and screen.running.is_over)
        text = shown(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.chat)
        is_busy = app.engine.worker_thread.is_busy
    assert "no round was finished" in text
    assert not is_busy
    assert len(engine.requests) == 1


async def test_a_dead_engine_is_a_card_and_the_next_race_loads_again() -> None:
    engine = ScriptedEngine(error=WorkerDiedError("the engine was killed (SIGKILL)", hint="--ctx 512"))
    app = app_of(engine)
    async with opened(app) as pilot:
        await race(pilot)
        failed = shown(app)
        engine.error, engine.pid = None, None
        screen = app.screen
        assert isinstance(screen, RaceScreen)
        await pilot.press("f4")
        await until(pilot, lambda: screen.running is not None and screen.running.found is not None)
        await until(pilot, lambda: "identical output" in shown(app))
    assert "the engine was killed (SIGKILL)" in failed
    assert "Try: --ctx 512" in failed
    assert len(engine.loads) == 2


async def test_the_conversation_is_what_is_raced_on() -> None:
    engine = ScriptedEngine()
    app = app_of(engine)
    async with opened(app, (80, 24)) as pilot:
        await until(pilot, lambda: app.chat_state.loaded is not None)
        for text in ("first", "second"):
            app.chat.composer.fill(text)
            await pilot.press("enter")
            await until(pilot, lambda: not app.engine.worker_thread.is_busy)
        del engine.requests[:]
        await pilot.press("f4")
        screen = app.screen
        assert isinstance(screen, RaceScreen)
        await until(pilot, lambda: screen.running is not None and screen.running.is_over)
        screen.query_one(Input).value = "another"
        await pilot.press("enter")
        await until(pilot, lambda: len(engine.requests) == 8)
    said = [[message.content for message in one.messages] for one in engine.requests]
    assert [len(one) for one in said] == [3] * 4 + [1] * 4
    assert said[0][0] == "first"
    assert said[0][-1] == "second"
    assert said[-1] == ["another"]


async def test_the_question_is_raced_as_it_was_asked_until_it_is_edited() -> None:
    engine = ScriptedEngine()
    app = app_of(engine)
    async with opened(app) as pilot:
        for text in ("first", " two\n lines "):
            app.chat.post_message(Composer.Sent(text))
            await until(pilot, lambda text=text: shown_last(app) == text and not app.engine.worker_thread.is_busy)
        del engine.requests[:]
        await pilot.press("f4")
        screen = app.screen
        assert isinstance(screen, RaceScreen)
        await until(pilot, lambda: screen.running is not None and screen.running.is_over)
        assert screen.query_one(Input).value == "two lines"
        await pilot.press("!", "enter")
        await until(pilot, lambda: len(engine.requests) == 8)
    said = [[message.content for message in one.messages] for one in engine.requests]
    assert [len(one) for one in said] == [3] * 4 + [1] * 4
    assert said[0][-1] == " two\n lines "
    assert said[-1] == ["two lines!"]


def shown_last(app: LocalspecApp) -> str:
    asked = app.chat_state.messages.path()[-2:]
    return asked[0].text if asked else ""


def test_what_a_ghost_had_at_a_moment() -> None:
    running = Running(Request(), 1)
    plain, other = (RunningAnswer(Answer(Request())) for _ in range(2))
    plain.moments += [Moment(0.5, 5, 20), Moment(1.0, 10, 40)]
    plain.is_over = True
    other.moments += [Moment(0.2, 4, 16)]
    running.lanes = {True: plain, False: other}
    assert running.live is False
    assert running.seen(False) == Moment(0.2, 4, 16)
    assert running.seen(True) == Moment(0.0, 0, 0)
    other.moments.append(Moment(0.7, 12, 50))
    assert running.seen(True) == Moment(0.5, 5, 20)
    other.is_over = True
    assert running.seen(True) == Moment(1.0, 10, 40)


@needs_pair
async def test_a_race_of_the_bundled_pair() -> None:
    """With the real engine, the same text at temperature 0.8, and a measured ratio."""
    with Worker() as worker:
        speculation = Speculation(method="draft-model", k=3)
        app = app_of(
            worker, max_tokens=24, sampling=Sampling(seed=5), template=NAMED["none"].source, speculation=speculation
        )
        async with opened(app, (100, 30)) as pilot:
            screen = await race(pilot, "Once upon a time")
            assert screen.running is not None
            running, picture = screen.running, shown(app)
    assert running.error is None
    assert running.found is not None
    (one,) = running.found.rounds
    assert one.same is not None
    assert one.same.is_explained
    assert len(one.plain.tokens) == 24
    assert one.other.stats.passes < 24
    assert "1 round does not show" in picture
