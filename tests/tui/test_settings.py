"""The settings form: typed, checked as it is written, each value with its origin, kept on demand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from localspec.chat.state import HERE
from localspec.cli.settings_table import described
from localspec.errors import UsageError
from localspec.settings.config_file import config_file
from localspec.settings.request import Request
from localspec.tui.app import LocalspecApp
from localspec.tui.screens.settings import Field, SettingsScreen
from localspec.tui.settings_form import Form
from localspec.tui.themes import DARK, LIGHT
from tests.tui import chats as desks
from tests.tui.chats import ScriptedEngine, engine_of, opened, shown, until


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    config_file().write_text("# mine\ntop-k = 30\n")
    monkeypatch.setenv("LOCALSPEC_MIN_P", "0.1")
    return tmp_path


def app_of(*, is_dark: bool = True) -> LocalspecApp:
    """Return the app as the command line opens it under those settings."""
    settings = described(("chat",))
    values = {each.name: each.value for each in settings}
    sampling = replace(Request().sampling, top_k=values["top-k"], min_p=values["min-p"])
    return desks.app_of(ScriptedEngine(), is_dark=is_dark, form=settings, sampling=sampling, max_tokens=None)


async def form(pilot: Pilot[Any]) -> SettingsScreen:
    app = pilot.app
    assert isinstance(app, LocalspecApp)
    await until(pilot, lambda: app.screen is app.chat)
    await pilot.press("f9")
    await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
    await until(pilot, lambda: isinstance(app.focused, Input))
    screen = app.screen
    assert isinstance(screen, SettingsScreen)
    return screen


def field(screen: SettingsScreen, name: str) -> Field:
    return next(each for each in screen.query(Field) if each.key == name)


def is_refused(form: Form, name: str, text: str) -> bool:
    try:
        form.check(name, text)
    except UsageError:
        return True
    return False


async def write(pilot: Pilot[Any], name: str, text: str) -> Field:
    screen = pilot.app.screen
    assert isinstance(screen, SettingsScreen)
    found = field(screen, name)
    found.input.focus()
    await until(pilot, lambda: found.input.has_focus)
    found.input.value = text
    await until(pilot, lambda: bool(found.problem) == is_refused(screen.form, name, found.input.value))
    await pilot.press("enter")
    await pilot.pause()
    return found


async def test_values_and_their_origins_are_shown() -> None:
    app = app_of()
    async with opened(app, (120, 60)) as pilot:
        await form(pilot)
        lines = [line.split() for line in shown(app).splitlines()]
    assert ["top-k", "30", "config.toml"] in lines
    assert ["min-p", "0.1", "LOCALSPEC_MIN_P"] in lines
    assert ["temp", "0.8", "default"] in lines
    assert ["theme", "auto", "default"] in lines


async def test_a_value_is_taken_from_the_next_answer_on() -> None:
    app = app_of()
    async with opened(app) as pilot:
        screen = await form(pilot)
        for name, text in (("temp", "0.3"), ("tree", "static:3,2"), ("max-tokens", "50"), ("seed", "9")):
            assert (await write(pilot, name, text)).problem == ""
        origin = screen.form.origin("temp")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.chat)
        request = app.chat_state.request
    assert (request.sampling.temperature, request.sampling.seed) == (0.3, 9)
    assert (request.speculation.tree, request.max_tokens) == ("static:3,2", 50)
    assert origin == HERE


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("temp", "-1", "temp -1 is out of range"),
        ("temp", "warm", "'warm' is not a"),
        ("top-k", "0.5", "'0.5' is not a"),
        ("method", "sufix", "method 'sufix' does not exist"),
        ("tree", "static:0", "static:0 is not a list"),
        ("verify", "typical", "changes the distribution"),
        ("draft-tokens", "some", "is not N or auto"),
        ("theme", "pink", "'pink'"),
        ("option", "colour=red", "no method has an option 'colour'"),
    ],
)
async def test_what_cannot_be_is_said_and_not_taken(name: str, text: str, said: str) -> None:
    app = app_of()
    async with opened(app) as pilot:
        screen = await form(pilot)
        before = app.chat_state.request
        found = await write(pilot, name, text)
        found.input.focus()
        await pilot.pause()
        about = " ".join(shown(app).split())
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.chat)
        assert screen.form.text(name) != text
        is_same, theme = app.chat_state.request == before, app.theme
    assert said in about
    assert "not taken" in about
    assert is_same
    assert theme == DARK


async def test_keeping_writes_what_is_new_and_nothing_else() -> None:
    app = app_of()
    async with opened(app) as pilot:
        screen = await form(pilot)
        await write(pilot, "temp", "0.3")
        await write(pilot, "min-p", "0.2")
        await write(pilot, "theme", "light")
        await pilot.press("ctrl+s")
        await pilot.pause()
        told = app.notices.text
        theme, origin = app.theme, screen.form.origin("temp")
    assert theme == LIGHT
    assert config_file().read_text() == '# mine\ntop-k = 30\ntemp = 0.3\nmin-p = 0.2\ntheme = "light"\n'
    assert origin == "config.toml"
    assert "min-p: the environment or the command line takes precedence" in told


def test_keeping_nothing_takes_a_value_out() -> None:
    chat_state = engine_of(ScriptedEngine(), max_tokens=7).state
    form = Form.of(chat_state, described(("chat",)), chat_state.request)
    config_file().write_text("max-tokens = 7\n")
    form.change("max-tokens", "none")
    assert form.keep() == ["max-tokens"]
    assert config_file().read_text().strip() == ""
    assert form.keep() == []


def test_a_broken_file_is_told_and_left_alone() -> None:
    chat_state = engine_of(ScriptedEngine()).state
    form = Form.of(chat_state, described(("chat",)), chat_state.request)
    config_file().write_text("temp = \n")
    form.change("temp", "0.3")
    with pytest.raises(UsageError, match="is not TOML"):
        form.keep()
    assert config_file().read_text() == "temp = \n"
    assert form.origin("temp") == HERE


async def test_the_default_comes_back_and_arrows_move() -> None:
    app = app_of()
    async with opened(app, (80, 24)) as pilot:
        screen = await form(pilot)
        await write(pilot, "temp", "0.3")
        field(screen, "temp").input.focus()
        await pilot.press("ctrl+r", "enter")
        await pilot.pause()
        await pilot.press("up", "up", "down")
        focused = screen.focused
        assert isinstance(focused, Input)
        assert focused is field(screen, "temp").input
    assert app.chat_state.request.sampling.temperature == 0.8
