"""Terminals of no size and of one character: every answer is written whole, and every chat can be left."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.harness import FAKE, Terminal

SIZES = [(0, 0), (1, 1), (1, 50), (200, 1)]
PASSES = ["Once upon ", "a time 🙂 ", "there was a king."]


class Small(Terminal):
    """A terminal whose program sees another size than its screen has."""

    def __init__(self, args: list[str], size: tuple[int, int], env: dict[str, str]) -> None:
        # `stty` sets it before the program begins.
        shrink = ["bash", "-c", f'stty cols {size[0]} rows {size[1]}; exec "$0" "$@"', *FAKE]
        super().__init__(args, program=shrink, env={"FAKE_PASSES": json.dumps(PASSES), **env})

    @property
    def said(self) -> str:
        """What was written, without control sequences and white space."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\s", "", self.output.decode())


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"LOCALSPEC_HOME": str(tmp_path)}


@pytest.mark.parametrize("size", SIZES)
def test_an_answer_is_whole(size: tuple[int, int], env: dict[str, str]) -> None:
    terminal = Small(["run", "-q", "hi"], size, env)
    assert terminal.wait() == 0
    assert re.sub(r"\s", "", "".join(PASSES)) in terminal.said
    assert "Traceback" not in terminal.said
    terminal.assert_clean()


@pytest.mark.parametrize("size", SIZES)
def test_the_line_chat_answers(size: tuple[int, int], env: dict[str, str]) -> None:
    terminal = Small(["chat", "--plain"], size, env)
    terminal.wait_for(lambda: "You:" in terminal.said)
    terminal.type("hi\r")
    terminal.wait_for(lambda: "king." in terminal.said and terminal.said.count("You:") >= 2)
    terminal.type("\x04")
    assert terminal.wait() == 0
    assert "Traceback" not in terminal.said


@pytest.mark.parametrize("size", SIZES)
def test_the_full_screen_waits_for_room(size: tuple[int, int], env: dict[str, str]) -> None:
    """What is typed meanwhile is there when the window has grown."""
    terminal = Small(["chat"], size, env)
    terminal.wait_for(lambda: b"\x1b[?1049h" in terminal.output)
    terminal.resize(80, 24)
    terminal.wait_for(lambda: "Ask something" in terminal.text)
    terminal.type("hello")
    terminal.wait_for(lambda: "hello" in terminal.text)
    terminal.resize(*size)
    terminal.resize(80, 24)
    terminal.type(" again")
    terminal.wait_for(lambda: "hello again" in terminal.text)
    terminal.type("\x11")
    assert terminal.wait() == 0
