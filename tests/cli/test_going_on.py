"""What is said is kept by run and chat, gone on with by -c and --session, and not kept by --no-save."""

from __future__ import annotations

import contextlib
import json
import os
import readline
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from localspec.cli.converse import history
from localspec.conversations.records import StoredMessage
from localspec.conversations.store import Store
from tests.cli import harness
from tests.cli.harness import (
    FAKE,
    REAL,
    ROOT,
    TIMEOUT,
    Terminal,
    assert_one_line,
    children,
    environment,
    needs_pair,
    wait_until_idle,
)

ANSWER = "Once upon a time there was a king."


class Home:
    """A home of the test's own, in which commands run; `paths` are the conversations, the last used first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "data" / "conversations.db"

    def run(self, *args: str, stdin: bytes | None = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
        return harness.run(*args, stdin=stdin, env={"LOCALSPEC_HOME": str(self.folder), **env})

    @property
    def paths(self) -> list[list[str]]:
        with Store.open(self.file) as store:
            return [[message.text for message in store.path(each.leaf)] for each in store.conversations()]

    def last(self) -> list[StoredMessage]:
        with Store.open(self.file) as store:
            return store.path(store.conversations(1)[0].leaf)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_run_keeps_and_goes_on(home: Home) -> None:
    assert home.run("run", "one").stderr == b""
    made = json.loads(home.run("run", "--json", "-c", "two").stdout)
    assert home.paths == [["one", ANSWER, "two", ANSWER]]
    assert made["session"] == home.last()[0].conversation
    home.run("run", "other")
    home.run("run", "--session", made["session"][-6:], "three")
    assert home.paths == [["one", ANSWER, "two", ANSWER, "three", ANSWER], ["other", ANSWER]]
    end = json.loads(home.run("run", "--events", "-c", "four").stdout.splitlines()[-1])
    assert end["result"]["session"] == made["session"]


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_target_that_is_gone_can_be_replaced(home: Home, tmp_path: Path, command: str) -> None:
    with Store.open(home.file) as store:
        store.create(f"{tmp_path}/gone.gguf+none")
    done = home.run(command, "-c", stdin=b"go on\n")
    words = f"{tmp_path}/gone.gguf does not exist, and this conversation was held with it"
    assert_one_line(done, 3, words, "-m MODEL goes on with another")
    assert home.run(command, "-c", "-m", "storyteller", stdin=b"go on\n").returncode == 0
    assert home.paths == [["go on", ANSWER]]


def test_what_is_about_data_keeps_it_apart(home: Home) -> None:
    home.run("run", "explain", stdin=b"a\nb\n")
    question = home.last()[0]
    assert (question.text, question.attachments[0].text) == ("explain", "a\nb\n")
    assert question.content == "```\na\nb\n```\n\nexplain"


def scripted(home: Home, lines: bytes, until: bytes, **env: str) -> subprocess.Popen[bytes]:
    """Start a chat that is told `lines` by a pipe, and read until it has said `until`."""
    process = subprocess.Popen(
        [*FAKE, "chat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env=environment({"LOCALSPEC_HOME": str(home.folder), **env}),
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines)
    process.stdin.flush()
    seen = b""
    while until not in seen:
        seen += os.read(process.stdout.fileno(), 100)
    return process


@pytest.mark.parametrize("env", [{}, {"FAKE_DEAF": "1"}])
def test_control_c_ends_a_script_and_keeps_what_came(home: Home, env: dict[str, str]) -> None:
    """Nobody is there to say anything else; an engine that is deaf takes a second one."""
    process = scripted(home, b"one\ntwo\n", b"Once upon", FAKE_PAUSE="30", **env)
    process.send_signal(signal.SIGINT)
    for patience in (0.3, 30.0) if env else ():  # two signals at once are one; a third may come while Python ends
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            break
        process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, rest.strip(), errors) == (130, b"", b"stopped\n")
    assert [(message.text, message.finish) for message in home.last()] == [
        ("one", "sent"),
        ("Once upon", "interrupted"),
    ]


def test_control_c_ends_a_script_that_waits(home: Home) -> None:
    process = scripted(home, b"one\n", ANSWER.encode() + b"\n")
    wait_until_idle(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT) == 130
    assert process.communicate()[1] == b"stopped\n"


def test_going_on_without_saving_changes_nothing(home: Home) -> None:
    home.run("run", "one")
    before = home.file.read_bytes()
    assert home.run("chat", "-c", "--no-save", stdin=b"two\n/history\n").stdout.count(b"You: one") == 1
    assert home.file.read_bytes() == before


def test_a_conversation_keeps_template_arguments_and_adapters(home: Home, tmp_path: Path) -> None:
    """Though the template is gone, and whatever is set for good; what is typed goes before."""
    template, adapter = tmp_path / "x.jinja", tmp_path / "a.gguf"
    template.write_text("{{ messages[-1]['content'] }}")
    adapter.touch()
    options = ("--template", str(template), "--template-arg", "tone=[1, 2]", "--think", "off")
    home.run("run", "-m", "storyteller+none", *options, "--lora", f"{adapter}:0.5", "one")
    template.unlink()
    (home.folder / "config").mkdir(exist_ok=True)
    (home.folder / "config" / "config.toml").write_text("template = 'chatml'\nthink = 'on'\n")

    def params(*args: str) -> dict[str, object]:
        found = json.loads(home.run("run", "--json", *args).stdout)["params"]
        return {name: found[name] for name in ("template", "template_args", "think", "lora")}

    kept = {
        "template": "{{ messages[-1]['content'] }}",
        "template_args": [["tone", [1, 2]]],
        "think": "off",
        "lora": [[str(adapter), 0.5]],
    }
    assert params("-c", "two") == kept
    assert params("-c", "--think", "on", "three") == kept | {"think": "on"}
    assert params("-m", "storyteller+none", "other")["think"] == "on"
    with Store.open(home.file) as store:
        first = store.conversations(2)[1].id
    lines = f"/resume {first}\nfour\n".encode()
    assert home.run("chat", "-m", "storyteller+none", stdin=lines).returncode == 0
    last = home.last()[-1].stats
    assert last is not None
    assert {name: last["params"][name] for name in kept} == kept | {"think": "on"}
    adapter.unlink()
    done = home.run("run", "-c", "five")
    assert_one_line(done, 3, "a.gguf does not exist, and this conversation was held with that adapter")
    assert home.run("run", "-c", "-m", "storyteller+none", "five").returncode == 0


@needs_pair
def test_run_and_chat_leave_out_the_same(home: Home) -> None:
    """Each in a process of its own: the cut is kept with the conversation."""
    story = "Tell me of the king who lived in the forest with his three brothers and the old woman by the fire."
    options = ("-n", "60", "--ctx", "256", "--temp", "0")
    env = {"LOCALSPEC_HOME": str(home.folder)}
    left_out, told = [], []
    for n in range(6):
        going_on = ("-c",) if n else ()
        done = harness.run_engine("run", "--json", *going_on, *options, story, env=env)
        made = json.loads(done.stdout)
        left_out.append(made["left_out"])
        told.append(any("no longer sent" in each["message"] for each in made["warnings"]))
    assert left_out[0] == []
    assert left_out[-1] != []
    assert told == [after != before for before, after in zip([[], *left_out], left_out, strict=False)]
    done = harness.run_engine("chat", "-c", *options, stdin=story.encode(), env=env)
    assert done.returncode == 0, done.stderr
    last = home.last()[-1].stats
    assert last is not None
    assert last["left_out"][: len(left_out[-1])] == left_out[-1]


def typed(home: Home, *args: str, keys: str, until: str) -> Terminal:
    """Type `keys` into a line chat with a history, wait until `until` shows, and leave."""
    env = {"LOCALSPEC_HOME": str(home.folder), "LOCALSPEC_NO_HISTORY": ""}
    terminal = Terminal(["chat", "--plain", "--no-stats", *args], env=env)
    terminal.wait_for(lambda: terminal.lines[-1:] == ["You:"])
    terminal.type(keys)
    terminal.wait_for(lambda: until in terminal.text)
    terminal.wait_for(lambda: terminal.lines[-1:] == ["You:"])
    terminal.type("\x04")
    assert terminal.wait() == 0
    return terminal


def test_the_lines_that_were_typed_come_back(home: Home) -> None:
    typed(home, keys="first\n", until=ANSWER)
    path = home.folder / "state" / "history"
    assert path.read_text() == "first\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    typed(home, "--no-save", keys="secret\n", until=ANSWER)
    assert "secret" not in path.read_text()
    up = typed(home, keys="\x1b[A again\n", until=ANSWER)
    assert "You: first again" in up.text
    assert path.read_text() == "first\nfirst again\n"


def test_lines_are_kept_by_an_editor_that_cannot_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """libedit, of which macOS makes readline, writes the whole history or none."""
    monkeypatch.delattr("readline.append_history_file")
    monkeypatch.setattr("localspec.cli.converse.is_terminal", lambda _: True)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_NO_HISTORY", "")
    path = tmp_path / "state" / "history"
    for line, kept in (("first", "first\n"), ("second", "first\nsecond\n")):
        readline.clear_history()
        with history():
            readline.add_history(line)
        assert path.read_text() == kept
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    readline.clear_history()


@needs_pair
def test_a_kill_of_everything_loses_less_than_a_second_of_text(home: Home) -> None:
    """The real pair streams; chat and engine are killed at once; what was on the screen a second before is kept."""
    args = ["chat", "-k", "0", "--ctx", "1024", "-n", "900", "--logit-bias", "2=-1000", "--no-stats"]
    process = subprocess.Popen(
        [*REAL, *args], env=environment({"LOCALSPEC_HOME": str(home.folder)}), cwd=ROOT, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    seen: list[tuple[float, bytes]] = []
    out = process.stdout.fileno()

    def read() -> None:
        while chunk := os.read(out, 1 << 16):
            seen.append((time.monotonic(), chunk))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(100):  # as long as it takes
        process.stdin.write(b"Once upon a time\n")
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while sum(len(chunk) for at, chunk in seen if at < time.monotonic() - 1.2) < 500 and time.monotonic() < deadline:
        time.sleep(0.02)
    engines = children(process.pid)
    killed = time.monotonic()
    for pid in (process.pid, *engines):
        os.kill(pid, signal.SIGKILL)
    process.wait(60)
    reader.join(60)
    process.stdin.close()
    early = b"".join(chunk for at, chunk in seen if at < killed - 1.0).decode(errors="ignore")
    path = home.last()
    kept = "".join(f"{'You' if m.role == 'user' else 'Assistant'}: {m.text}\n" for m in path)
    assert len(early) > 200
    assert kept.startswith(early.rstrip("\n"))
    assert path[-1].finish in ("interrupted", "sent", "length")
