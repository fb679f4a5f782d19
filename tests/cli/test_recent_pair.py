"""A chat that names no pair opens that of the last one, where somebody sits there and the pair is still here."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.chat.conversation_writer import ConversationWriter
from localspec.chat.state import ChatState
from localspec.conversations.store import Store
from localspec.engine.events import Loaded
from localspec.models.recent import recent_pairs
from localspec.settings.request import LoadSettings, Request
from tests.cli.fakes import FakeWorker
from tests.cli.harness import FAKE, PAIR, Terminal, assert_one_line, needs_pair, run

pytestmark = needs_pair


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    shutil.copy(PAIR / "target-q8_0.gguf", tmp_path / "mine.gguf")
    return {"LOCALSPEC_HOME": str(tmp_path / "home"), "ACCESSIBLE": "1"}


def opened(home: dict[str, str], *args: str, says: bool = False, **env: str) -> str:
    """Open a line chat, let it answer if asked, leave it, and return its first line."""
    terminal = Terminal([*args], program=FAKE, env={**home, **env})
    terminal.wait_for(lambda: terminal.lines[-1:] == ["You:"])
    if says:
        terminal.type("hi\r")
        terminal.wait_for(lambda: "king" in terminal.text and terminal.lines[-1:] == ["You:"])
    terminal.type("\x04")
    assert terminal.wait() == 0
    return terminal.text.partition("You:")[0]


def test_the_last_pair_opens_again_and_what_is_named_goes_before_it(tmp_path: Path, home: dict[str, str]) -> None:
    mine = str(tmp_path / "mine.gguf")
    assert "storyteller" in opened(home)
    assert "mine.gguf" in opened(home, "chat", "-m", f"{mine}+none")
    assert "storyteller" in opened(home), "a pair that was never loaded is none that was used"
    assert "mine.gguf" in opened(home, "chat", "-m", f"{mine}+none", says=True)
    assert "mine.gguf" in opened(home)
    assert "mine.gguf" in opened(home, "chat")
    assert "storyteller" in opened(home, "chat", "-m", "storyteller")
    assert "storyteller" in opened(home, LOCALSPEC_MODEL="storyteller"), "a pair that is set for good"
    assert b"storyteller" in run("chat", stdin=b"/model\n", env=home).stdout, "a script must not depend on it"


def test_a_pair_that_has_gone_is_told(tmp_path: Path, home: dict[str, str]) -> None:
    opened(home, "chat", "-m", f"{tmp_path / 'mine.gguf'}+none", says=True)
    (tmp_path / "mine.gguf").unlink()
    text = opened(home)
    assert "the last pair, mine.gguf+none, cannot be opened" in text
    assert "storyteller" in text


def test_with_no_save_nothing_is_remembered(tmp_path: Path, home: dict[str, str]) -> None:
    opened(home, "chat", "--no-save", "-m", f"{tmp_path / 'mine.gguf'}+none", says=True)
    assert not (tmp_path / "home" / "state" / "recent.json").exists()
    opened(home, "chat", "-m", f"{tmp_path / 'mine.gguf'}+none", says=True)
    (entry,) = json.loads((tmp_path / "home" / "state" / "recent.json").read_text("utf-8"))
    assert entry["target"] == str(tmp_path / "mine.gguf")


def test_a_pair_that_cannot_be_loaded_leaves_the_old_one(tmp_path: Path, home: dict[str, str]) -> None:
    """By /model, as in the picker of the full-screen chat."""
    (tmp_path / "text.gguf").write_text("not a model", "utf-8")
    done = run("chat", stdin=f"/model {tmp_path / 'text.gguf'}\n/model\nhi\n".encode(), env=home)
    assert b"it is a text file" in done.stderr
    assert b"pair: storyteller" in done.stdout
    assert b"a king." in done.stdout


def test_an_edge_is_no_pair_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its target's file is a vocabulary, so the next bare chat could not load it."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    store = Store.open(tmp_path / "kept.db")
    here = LoadSettings("/a/digest.gguf", "/a/draft.gguf", name="q at tower:8080+draft")
    for settings in (replace(here, verifier="ws://tower:8080"), here):
        state = ChatState(ConversationWriter(store, in_background=False), settings, Request())
        state.has_loaded(next(each for each in FakeWorker().load(settings) if isinstance(each, Loaded)))
        state.say("hi")
    assert [each.pair for each in recent_pairs()] == ["/a/digest.gguf+/a/draft.gguf"]
    kept = {each.pair for each in store.conversations(2)}
    store.close()
    assert kept == {"/a/digest.gguf+/a/draft.gguf", "ws://tower:8080+/a/draft.gguf"}


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_conversation_of_an_edge_says_what_goes_on_with_it(tmp_path: Path, command: str) -> None:
    (tmp_path / "data").mkdir()
    with Store.open(tmp_path / "data" / "conversations.db") as store:
        held = store.create("ws://tower:8080+/a/draft.gguf")
        store.add_message(held.id, None, "user", "hi")
    done = run(command, "-c", *(["more"] if command == "run" else []), env={"LOCALSPEC_HOME": str(tmp_path)})
    told = "held with the verifier at ws://tower:8080 — try: --verifier ws://tower:8080 goes on with it, -m MODEL"
    assert_one_line(done, 2, told)
