"""What a model says cannot control the terminal: on a pseudo-terminal, in run, chat and logs, however it is cut."""

import json
import re
from pathlib import Path

import pytest

from localspec.conversations.store import Store
from tests.cli.harness import FAKE, Terminal

# What localspec itself sends to a terminal: colour, the live status, and what line editing needs.
OURS = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[[0-9]*[ABCDJK]|\x1b[78D]|\x1b\[\?2004[hl]")
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")

HOSTILE = {
    "clipboard": "a\x1b]52;c;aGk=\x07b\x1b]52;c;aGk=\x1b\\c",
    "title": "a\x1b]0;you are root\x07b",
    "link": "a\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\b",
    "screen": "a\x1b[2J\x1b[H\x1bc\x1b[?1049l\x1b[6nb",
    "device": "a\x1bP1$r\x1b\\b\x1b_G\x1b\\c\x1b^x\x1b\\",
    "unterminated": "a\x1b]0;",
    "C1": "a\x9b2J\x9d52;c;aGk=\x9cb\x90x\x9c",
    "markup": "[/INST] [@click=app.quit]x[/] [link=http://x]y[/link] [red]z",
    "bidi": "a\u202egpj.exe\u202c \u2066x\u2069 \u200fb",
    "invisible": "a\u200b\u200b\u2060\ufeff\U000e0068\U000e0069b",
    "carriage": "safe text\roverwritten\b\b\b\x7f",
    "bells": "a" + "\x07" * 500 + "b",
    "surrogates": "a\ud83d b\udc00 c\ufffd",
    "NUL": "a\x00b",
}


def said(terminal: Terminal, *, is_dumb: bool) -> str:
    """Return what was sent to the terminal but for what is ours; a dumb one gets nothing of that."""
    output = terminal.output if is_dumb else OURS.sub(b"", terminal.output)
    return output.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("is_dumb", [True, False], ids=["dumb", "xterm"])
@pytest.mark.parametrize("is_cut", [True, False], ids=["by character", "whole"])
@pytest.mark.parametrize("name", ["run", "chat"])
def test_an_answer_is_text_and_nothing_else(tmp_path: Path, name: str, is_cut: bool, is_dumb: bool) -> None:
    text = " ".join(HOSTILE.values())
    env = {
        "FAKE_PASSES": json.dumps(list(text) if is_cut else [text]),
        "LOCALSPEC_HOME": str(tmp_path),
        "TERM": "dumb" if is_dumb else "xterm-256color",
    }
    args = ["run", "hi"] if name == "run" else ["chat", "--plain", "--tokens"]
    terminal = Terminal(args, env=env, columns=200, rows=50)
    if name == "chat":
        terminal.wait_for(lambda: terminal.lines[-1:] == ["You:"])
        terminal.type("hello there\n")
        terminal.wait_for(lambda: terminal.text.count("You:") == 2 and " s (start" in terminal.text)
        terminal.type("/history\n")
        terminal.wait_for(lambda: terminal.text.count("You:") == 4)
        terminal.type("/list\n")
        terminal.wait_for(lambda: terminal.text.count("You:") == 5)
        terminal.type("/bye\n")
    assert terminal.wait() == 0
    shown = said(terminal, is_dumb=is_dumb)
    assert not CONTROL.search(shown)
    if not is_dumb:
        terminal.assert_clean()
    seen = shown if is_dumb else terminal.text  # what is sent to others has the status between two pieces
    plain = re.sub("[⟦⟧⁺]", "", seen)
    for word in ("click", "overwritten", "[/INST]", "[@click=app.quit]", "you are root", "gpj.exe", "␛]52;c;aGk=␇"):
        assert word in plain


@pytest.mark.parametrize("args", [["logs"], ["logs", "show"], ["logs", "search", "root"], ["logs", "export"]])
def test_what_was_kept_is_text_and_nothing_else(tmp_path: Path, args: list[str]) -> None:
    with Store.open(tmp_path / "data" / "conversations.db") as store:
        text = " ".join(HOSTILE.values())
        home = store.create(HOSTILE["title"], system=HOSTILE["screen"], title=HOSTILE["clipboard"] + " you are root").id
        asked = store.add_message(home, None, "user", text)
        store.finish(store.add_message(home, asked.id, "assistant", text).id, HOSTILE["title"])
    terminal = Terminal(args, env={"LOCALSPEC_HOME": str(tmp_path)}, columns=200)
    assert terminal.wait() == 0
    shown = said(terminal, is_dumb=True)
    assert not CONTROL.search(shown)
    assert "you are root" in shown


FLOODS = {
    "a line of a megabyte": ["x" * (1 << 20)],
    "a flood of zero width": ["a" + "\u200d" * 20_000 + "b"],
    "a flood of marks": ["a" + "\u0301" * 20_000 + "b"],
    "a flood of returns": ["\r" * 20_000],
    "a flood of bells": ["\x07" * 20_000],
    "a thousand passes of nothing": [""] * 1000,
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / "passes"
    path.write_text(json.dumps(FLOODS[name]))
    env = {"FAKE_PASSES": f"@{path}", "LOCALSPEC_HOME": str(tmp_path), "TERM": "dumb"}
    terminal = Terminal(["run", "hi"], program=FAKE, env=env)
    monkeypatch.setattr(terminal._stream, "feed", lambda _: None)  # the emulator takes seconds for it
    assert terminal.wait() == 0
    assert not CONTROL.search(said(terminal, is_dumb=True))
    with Store.open(tmp_path / "data" / "conversations.db") as store:
        kept = "".join(message.text for message in store.path(store.conversations()[0].leaf)[1:])
    assert kept == "".join(FLOODS[name])
