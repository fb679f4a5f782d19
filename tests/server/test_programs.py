"""Whole programs of others on a real server, each where it is installed: oterm on a terminal, and an edit by aider."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.harness import TIMEOUT, environment, needs_pair
from tests.server.serving import LONG, Server, chat, serving

OTERM, AIDER, TMUX = map(shutil.which, ("oterm", "aider", "tmux"))
pytestmark = [needs_pair, pytest.mark.slow]


class Tmux:
    """A program in a terminal of tmux, which answers what such programs ask of one."""

    def __init__(self, folder: Path, program: str, env: dict[str, str]) -> None:
        self._socket = folder / "tmux"
        self("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", program, env=env)

    def __call__(self, *words: str, env: dict[str, str] | None = None) -> str:
        command = ["tmux", "-S", str(self._socket), *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout

    def wait_for(self, text: str) -> tuple[int, int]:
        """Wait until a text is on the screen; return its column and row, from 1."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            lines = self("capture-pane", "-p").splitlines()
            for row, line in enumerate(lines, 1):
                if text in line:
                    return line.index(text) + 1, row
            assert time.monotonic() < deadline, "\n".join(lines)
            time.sleep(0.1)

    def click(self, text: str) -> None:
        column, row = self.wait_for(text)
        place = f"\x1b[<0;{column + 1};{row}"
        self("send-keys", "-l", f"{place}M{place}m")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--temp", "0", "-n", "16") as server:
        yield server


@pytest.mark.skipif(OTERM is None or TMUX is None, reason="oterm or tmux is not installed")
def test_oterm(server: Server, tmp_path: Path) -> None:
    """It finds the model, opens a chat with it, and shows the answer."""
    expected = server.post("/v1/chat/completions", **chat())["choices"][0]["message"]["content"]
    (tmp_path / "config.json").write_text(json.dumps({"splash-screen": False}))
    host = "{}:{}".format(*server.address)
    env = environment({"OLLAMA_HOST": host, "OTERM_DATA_DIR": str(tmp_path), "HOME": str(tmp_path)})
    terminal = Tmux(tmp_path, str(OTERM), env)
    try:
        terminal.wait_for("start a new chat")
        terminal("send-keys", "C-n")
        terminal.click("storyteller")
        terminal.wait_for("Size: 0")  # what it asked of the model; before that nothing can be saved
        terminal.click("Save")
        terminal.wait_for("model: storyteller")
        terminal("send-keys", "-l", LONG)
        terminal("send-keys", "Enter")
        terminal.wait_for(" ".join(expected.split()[:4]))
    finally:
        terminal("kill-server")


@pytest.mark.skipif(AIDER is None, reason="aider is not installed")
def test_an_edit_by_aider(tmp_path: Path) -> None:
    """The bundled model writes no programs, so the server's form gives it the words; aider asks, reads and edits."""
    file, changed = tmp_path / "greet.py", 'print("two")\n'
    file.write_text('print("one")\n')
    answer = f"greet.py\n```\n{changed}```\n"
    grammar = f"root ::= {json.dumps(answer)}"
    asked = ("--model", "openai/storyteller", "--edit-format", "whole", "--message", "Print two.", "greet.py")
    quiet = ("--no-git", "--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings")
    with serving("--temp", "0", "--ctx", "4096", "--grammar", grammar) as server:
        where = ("--openai-api-base", f"{server.url}/v1", "--openai-api-key", "none")
        env = environment({"HOME": str(tmp_path), "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
        command = [str(AIDER), *where, *quiet, *asked]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=2 * TIMEOUT, check=False)
    assert file.read_text() == changed, done.stdout.decode() + done.stderr.decode()
