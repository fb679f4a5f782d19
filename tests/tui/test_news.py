"""The screen takes no more than its share of a processor, and text never waits long."""

import pytest
from textual.widgets import Static

from localspec.tui import news
from localspec.tui.news import ROOMY, TIGHT, Budget, RedrawThrottle, budget
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, answers, ask, markdown_text, opened, say_until_held


@pytest.mark.parametrize("given", [ROOMY, TIGHT])
@pytest.mark.parametrize("cost", [0.001, 0.005, 0.02])
def test_the_share_is_kept_whatever_a_drawing_costs(cost: float, given: Budget) -> None:
    now, used, drawn = 0.0, 0.0, 0
    throttle = RedrawThrottle(lambda: now, lambda: used)
    throttle.budget = given
    for tick in range(2000):
        now = 0.05 * tick
        if throttle.is_due:
            throttle.begin()
            used += cost
            drawn += 1
    assert used / now <= given.share * 1.05
    assert drawn >= min(0.9 * now / 0.05, 0.7 * now / (cost / given.share + 0.05))


def test_text_never_waits_longer_than_it_may() -> None:
    now, used = 0.0, 0.0
    throttle = RedrawThrottle(lambda: now, lambda: used)
    throttle.begin()
    used = 30.0
    throttle.begin()
    assert not throttle.is_due
    now = ROOMY.longest
    assert throttle.is_due


def test_what_was_used_while_idle_is_no_drawing() -> None:
    now, used = 0.0, 0.0
    throttle = RedrawThrottle(lambda: now, lambda: used)
    used = 10.0
    throttle.wake()
    throttle.begin()
    assert throttle.is_due


def test_an_engine_on_every_processor_leaves_little_to_draw_with() -> None:
    assert budget(1 << 10) == TIGHT
    assert budget(0) == ROOMY


async def test_the_end_is_shown_at_once_however_long_the_screen_is_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ScriptedWorker(hold_at=2)
    async with opened(worker) as (pilot, app):
        await until(pilot, lambda: app.chat_state.loaded is not None)
        monkeypatch.setattr(RedrawThrottle, "is_due", False)
        monkeypatch.setattr(news, "KEEP", 1e9)  # nor is it taken because it waited for long
        await say_until_held(pilot, worker, "go")
        assert not markdown_text(answers(app)[0])
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)
        assert markdown_text(answers(app)[0]) == "Once upon a time there was a king."


async def test_an_idle_screen_looks_for_nothing_and_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a job begins, which wakes it."""
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await ask(pilot, "go")
        looking = app.chat._news
        await until(pilot, lambda: looking._alarm is None)
        drawn: list[object] = []
        monkeypatch.setattr(Static, "update", lambda self, *content, **how: drawn.append(content))
        for _ in range(3):
            app.chat.show_figures()  # as once a second
        assert not drawn
        monkeypatch.undo()
        assert not app.chat.composer.cursor_blink
        await ask(pilot, "more")
        assert len(worker.requests) == 2
