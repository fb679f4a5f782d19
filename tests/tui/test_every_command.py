"""Every command does the same in the line chat and in the full-screen chat, and both list the same table."""

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from localspec.chat.commands import TABLE
from localspec.chat.state import ChatState
from localspec.models.store import PairRef
from localspec.tui.app import LocalspecApp
from localspec.tui.widgets.card import ErrorCard
from tests.cli.talking import ANSWER, Talk
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, opened, say, settled

Steps = list[tuple[str, Callable[[ChatState], object]]]


def said(state: ChatState) -> list[str]:
    return [entry.text for entry in state.messages.path()]


def steps(folder: Path, copied: list[str]) -> Steps:
    return [
        ("/temp 0.3", lambda state: state.request.sampling.temperature == 0.3),
        ("/seed 7", lambda state: state.request.sampling.seed == 7),
        ("/k 3", lambda state: state.request.speculation.k == 3),
        ("/set top-k 9", lambda state: state.request.sampling.top_k == 9),
        ("/preset", lambda state: True),
        ("/system Be brief.", lambda state: state.messages.system == "Be brief."),
        (f"/read {folder}/notes.txt", lambda state: [each.name for each in state.attached] == ["notes.txt"]),
        ("/read none", lambda state: state.attached == []),
        ("one", lambda state: said(state) == ["one", ANSWER]),
        ("/copy", lambda state: copied == [ANSWER]),
        ("/regen", lambda state: len(state.messages.paths()) == 2 and state.request.sampling.seed == 7),
        ("/edit two", lambda state: said(state) == ["two", ANSWER] and len(state.messages.paths()) == 3),
        ("/branch 1", lambda state: said(state) == ["one", ANSWER]),
        ("/undo", lambda state: said(state) == []),
        ("/branch 2", lambda state: said(state) == ["one", ANSWER]),
        ("/title Kings", lambda state: True),
        (f"/export {folder}/x.md", lambda state: (folder / "x.md").read_text().startswith("# Kings")),
        (f"/save {folder}/x.json", lambda state: (folder / "x.json").exists()),
        ("/fork", lambda state: said(state) == ["one", ANSWER] and len(state.messages.paths()) == 1),
        ("/delete", lambda state: state.messages.key is None and said(state) == []),
        ("/undelete", lambda state: said(state) == ["one", ANSWER]),
        ("/new", lambda state: said(state) == [] and state.messages.system == "Be brief."),
        (f"/load {folder}/x.json", lambda state: said(state) == ["one", ANSWER]),
        ("/list 5", lambda state: len(state.listed) == 3),
        ("/search two", lambda state: len(state.listed) == 1),
        ("/resume 1", lambda state: len(state.messages.paths()) == 3),
        (
            "/model /other.gguf+/d.gguf",
            lambda state: (state.settings.target, state.settings.draft) == ("/other.gguf", "/d.gguf"),
        ),
        ("/draft /small.gguf", lambda state: state.settings.draft == "/small.gguf"),
        ("/ctx 512", lambda state: state.settings.ctx == 512),
        ("/set ctx 2048", lambda state: (state.settings.ctx, state.settings.draft) == (2048, "/small.gguf")),
        ("two", lambda state: said(state)[-2:] == ["two", ANSWER]),
        *((line, lambda state: True) for line in ("/stats", "/tokens", "/history", "/race 2", "/settings", "/restart")),
        *((line, lambda state: True) for line in ("/help", "/bye")),
    ]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was copied; and the pairs that can be named."""
    texts: list[str] = []

    def find(name: str) -> PairRef:
        target, _, draft = name.partition("+")
        return PairRef(Path(target), Path(draft) if draft != "none" else None, "other")

    monkeypatch.setattr("localspec.ui.programs.copy", lambda text, send: texts.append(text) or "copied")
    monkeypatch.setattr("localspec.models.available.find", find)
    monkeypatch.setattr("localspec.models.candidates.require_sound", lambda target, draft: None)
    return texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("A note.\n")
    return tmp_path


def test_every_command_is_walked(tmp_path: Path) -> None:
    typed = {line[1:].partition(" ")[0] for line, _ in steps(tmp_path, []) if line.startswith("/")}
    assert typed == {command.name for command in TABLE.commands}


def test_every_command_in_the_line_chat(capsys: pytest.CaptureFixture[str], folder: Path, copied: list[str]) -> None:
    talk = Talk(capsys)
    for line, is_so in steps(folder, copied):
        talk.say(line)
        assert talk.errors == "", line
        assert is_so(talk.chat.state), line
    assert talk.chat.is_over


async def test_every_command_in_the_full_screen_chat(folder: Path, copied: list[str]) -> None:
    async with opened(ScriptedWorker()) as (pilot, app):
        for line, is_so in steps(folder, copied):
            await typed(pilot, app, line)
            assert not [card.error.message for card in app.chat.query(ErrorCard)], line
            if line != "/bye":
                await until(pilot, lambda is_so=is_so: bool(is_so(app.chat_state)))
        await until(pilot, lambda: app.return_value == 0)


async def typed(pilot: Pilot[int], app: LocalspecApp, line: str) -> None:
    """Send a line, wait for its answer if it has one, and leave the screen that it opens."""
    await say(pilot, line)
    await settled(pilot)
    if line == "/bye":
        return
    await until(pilot, lambda: app.chat_state.answering is None)
    while app.screen is not app.chat:
        await pilot.press("escape")
        await settled(pilot)
    await until(pilot, lambda: not app.engine.worker_thread.is_busy)


def test_what_one_chat_saves_the_other_loads(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """/save and /load are of one file; /export refuses to replace it."""
    talk = Talk(capsys)
    talk.say("one", f"/save {tmp_path}/c.json", f"/export {tmp_path}/c.json")
    assert "exists" in talk.errors
    talk.say("/new", f"/load {tmp_path}/c.json")
    assert talk.said == ["one", ANSWER]


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(AssertionError, match="registered twice"):
        TABLE.command("/quit", "twice")(TABLE.commands[0].act)
