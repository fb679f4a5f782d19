"""`run --keep-alive`, `ps` and `stop`, as people use them: with the real engine in processes of their own."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from localspec.cli import ps
from localspec.cli.console import Console
from localspec.cli.engine_options import EngineOptions, tell_of_keep_alive
from localspec.errors import ResourceError, UsageError
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import AGES, read_duration
from localspec.worker import engines, runtime
from localspec.worker.engines import engines_in_memory
from localspec.worker.keep_policy import KeepAlive
from localspec.worker.shared import SharedWorker
from tests.cli.harness import (
    REAL,
    TIMEOUT,
    Terminal,
    assert_one_line,
    environment,
    is_running,
    localspec,
    needs_pair,
    run,
    wait_for,
)
from tests.server.serving import chat as said_by_a_user
from tests.server.serving import serving

NOTHING = "no model is in memory; localspec run --keep-alive 10m leaves one there\n"


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Give the test a home of its own, and leave nothing of it running."""
    here = {"LOCALSPEC_HOME": str(tmp_path / "home")}
    yield here
    run("stop", env=here)


def listed(env: dict[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("ps", "--json", env=env).stdout)["engines"]
    return found


def answer(*args: str, env: dict[str, str]) -> dict[str, Any]:
    done = localspec("run", "--json", "--temp", "0", "-n", "16", *args, env=env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_pair
def test_a_run_finds_what_the_run_before_left(env: dict[str, str]) -> None:
    prompt = "Once upon a time there was a fox"
    cold = answer(prompt, env=env)
    assert run("ps", env=env).stdout.decode() == NOTHING
    first, second = answer("--keep-alive", "10m", prompt, env=env), answer(prompt, env=env)
    assert cold["text"] == first["text"] == second["text"]
    (engine,) = listed(env)
    assert engine["pair"] == "storyteller"
    assert engine["keep_alive_s"] == 600.0
    assert engine["idle_until"] > engine["since"]
    assert engine["tokens"] >= 16
    assert engine["memory"] is None or engine["memory"] > 1_000_000
    assert (engine["clients"], engine["waiting"], engine["state"]) == (0, 0, "idle")
    table = run("ps", env=env).stdout.decode().splitlines()
    assert table[0].split() == ["pair", "since", "state", "memory", "tokens", "for"]
    assert table[1].startswith("storyteller  ")
    assert "in memory: storyteller; localspec stop frees it\n" in run("ls", env=env).stdout.decode()
    assert run("stop", "Story", env=env).stdout == b"stopped storyteller\n", "a part of its name"
    answer("--keep-alive", "10m", prompt, env=env)
    (engine,) = listed(env)
    assert_one_line(run("stop", "qwen", env=env), 3, "no model called 'qwen' is in memory", "localspec ps")
    assert run("stop", "Target-q8", env=env).stdout == b"stopped storyteller\n", "a part of its file's name"
    assert not is_running(engine["pid"])
    assert run("stop", env=env).stdout.decode() == "no model is in memory\n", "nobody asks here how one stays"


@needs_pair
def test_ctrl_c_leaves_the_engine_alive(env: dict[str, str]) -> None:
    """The answer ends with the text so far, as always."""
    answer("--keep-alive", "10m", "Once", env=env)
    (engine,) = listed(env)
    command = [*REAL, "run", "--raw", "--events", "--logit-bias", "2=-inf", "Once"]
    client = subprocess.Popen(command, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stderr is not None
    while json.loads(client.stdout.readline())["type"] != "step":
        pass
    client.send_signal(signal.SIGINT)
    last = json.loads(client.stdout.read().splitlines()[-1])
    assert client.wait() == 130
    client.stdout.close()
    client.stderr.close()
    assert last["result"]["finish_reason"] == "interrupted"
    wait_for(lambda: listed(env)[0]["state"] == "idle")
    assert listed(env)[0]["pid"] == engine["pid"]
    answer("Once", env=env)
    assert listed(env)[0]["pid"] == engine["pid"]


@needs_pair
def test_stop_ends_an_answer_with_the_text_so_far(env: dict[str, str]) -> None:
    """The client says who stopped it, with SIGTERM's code, and what was written is kept."""
    answer("--keep-alive", "10m", "Once", env=env)
    command = [*REAL, "run", "--events", "--logit-bias", "2=-inf", "-n", "100000", "There was"]
    client = subprocess.Popen(command, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert client.stdout is not None
    while json.loads(client.stdout.readline())["type"] != "step":
        pass
    assert run("stop", env=env).returncode == 0
    out, told = client.communicate()
    assert client.returncode == 143
    assert told.decode().splitlines()[-1].startswith("localspec: The engine was stopped, by localspec stop")
    assert json.loads(out.splitlines()[-1])["error"]["kind"] == "terminated"
    kept = run("logs", "show", env=env).stdout.decode()
    assert "There was" in kept
    assert kept.partition("There was")[2].strip()


@needs_pair
def test_the_chats_and_race_find_it_too(env: dict[str, str]) -> None:
    answer("--keep-alive", "10m", "Once", env=env)
    (engine,) = listed(env)
    done = localspec("chat", "--plain", "storyteller", stdin=b"Once\n", env=env)
    assert done.returncode == 0, done.stderr
    done = localspec("race", "storyteller", "-n", "8", "--seed", "1", "Once", env=env)
    assert done.returncode == 0, done.stderr
    chat = Terminal(["chat", "storyteller"], program=REAL, env=env)
    chat.wait_for(lambda: listed(env)[0]["clients"] == 1)
    chat.type("\x11")
    assert chat.wait() == 0
    wait_for(lambda: listed(env)[0]["clients"] == 0)
    assert [each["pid"] for each in listed(env)] == [engine["pid"]]


@needs_pair
def test_the_way_to_the_first_word_is_short(env: dict[str, str]) -> None:
    """What is not needed on it takes as long to import as everything else together."""
    target = Path(__file__).parents[2] / "models" / "storyteller" / "target-q8_0.gguf"
    words = ["run", "-m", str(target), "-d", "none", "-n", "2", "Once upon a time"]
    assert localspec(*words, "--keep-alive", "10m", env=env).returncode == 0
    program = [REAL[0], "-X", "importtime", *REAL[1:]]
    done = localspec(*words, program=program, env=env)
    assert done.returncode == 0
    told = [line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines() if "import time:" in line]
    assert "localspec.worker.engines" in told
    heavy = {
        "numpy",
        "rich",
        "textual",
        "jinja2",
        "huggingface_hub",
        "llguidance",
        "llama_cpp",
        "statistics",
        "tomlkit",
    }
    heavy |= {"asyncio", "starlette", "uvicorn", "http.client", "ssl", "importlib.metadata"}
    heavy |= {"localspec.models.hub.cache", "localspec.models.other_programs"}
    assert not heavy & {*told}


def test_times_are_read_as_people_write_them() -> None:
    given = {"0": 0, "90": 90, "90s": 90, "10m": 600, "1.5h": 5400, "2 H": 7200, "1d": 86400}
    assert {text: read_duration("--keep-alive", text) for text in given} == given
    for text in ("", "m", "-1", "10 minutes", "1e3", "inf", "nan"):
        with pytest.raises(UsageError, match="is not a time"):
            read_duration("--keep-alive", text)


def test_a_time_that_is_none_is_told_with_its_place(env: dict[str, str]) -> None:
    assert_one_line(run("run", "--keep-alive", "soon", "x", env=env), 2, "--keep-alive 'soon' is not a time", "10m")
    done = run("run", "x", env={**env, "LOCALSPEC_KEEP_ALIVE": "soon"})
    assert_one_line(done, 2, "--keep-alive 'soon' is not a time", "LOCALSPEC_KEEP_ALIVE")


def test_an_engine_that_stays_by_itself_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    worker = SharedWorker("run", keep_alive=KeepAlive(300.0, is_auto=True))

    def told(*, stays: bool) -> str:
        worker.stays = stays
        tell_of_keep_alive(worker, Console())
        return capsys.readouterr().err

    assert told(stays=True) == ""  # no terminal
    monkeypatch.setattr("localspec.cli.engine_options.is_terminal", lambda stream: True)
    assert told(stays=False) == ""
    assert "localspec stop ends that, config set keep-alive 0 for good" in told(stays=True)
    assert told(stays=True) == ""


def test_what_nobody_asked_for_stays_where_there_is_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = tmp_path / "small.gguf", tmp_path / "large.gguf"
    for path, size in ((small, 50 << 20), (large, 200 << 20)):
        with path.open("wb") as file:
            file.truncate(size)
    monkeypatch.setattr("localspec.backends.limits.available_memory", lambda: 1536 << 20)
    by_itself = KeepAlive(300.0, is_auto=True)
    wants = [by_itself.wants(LoadSettings(str(path))) for path in (small, large)]
    assert wants == [False, True]
    assert KeepAlive(1.0).wants(LoadSettings(str(small)))
    assert not KeepAlive().wants(LoadSettings(str(large)))
    monkeypatch.setattr("localspec.backends.limits.available_memory", lambda: 1500 << 20)
    assert not by_itself.wants(LoadSettings(str(large)))


@needs_pair
def test_what_other_commands_hold_is_listed_and_stopped(env: dict[str, str], tmp_path: Path) -> None:
    """A chat for itself, a server and an engine that was left behind."""
    answer("--keep-alive", "10m", "Once", env=env)
    log = tmp_path / "log"
    chat = Terminal(["chat", "storyteller", "--log-file", str(log)], program=REAL, env=env)
    with serving("--ctx", "1024", env=env) as server:
        chat.wait_for(lambda: len(listed(env)) == 3)
        askers = {each["state"]: each["for"] for each in listed(env)}
        assert askers["in use"] == [f"chat {chat.process.pid}"]
        found = {each["pid"]: each for each in listed(env)}
        assert server.engine in found
        done = run("stop", env=env)
        assert done.stdout == 3 * b"stopped storyteller\n"
        assert server.process.wait(TIMEOUT) == 143
        assert not {each["pid"] for each in listed(env)} & found.keys(), "all three have ended"
    chat.type("Hello\r")
    chat.wait_for(lambda: len(listed(env)) == 1)
    chat.type("\x11")
    assert chat.wait() == 0
    assert listed(env) == []


@needs_pair
def test_stop_of_a_server_ends_the_answers_of_this_users_programs(env: dict[str, str]) -> None:
    """The run says who stopped it and keeps its text. The chat, which asked for nothing, goes on."""
    with serving("--ctx", "512", env=env) as server, writing(100_000, env) as (client, chat):
        assert sorted(listed(env)[0]["for"]) == sorted(
            [f"serve {server.process.pid}", f"chat {chat.process.pid}", f"run {client.pid}"]
        )
        assert run("stop", env=env).stdout == b"stopped storyteller\n"
        assert server.process.wait(TIMEOUT) == 143
        assert server.close().splitlines()[-1] == "stopped by localspec stop"
        last, said = last_and_said(client)
        assert (client.returncode, last["error"]["kind"]) == (143, "terminated")
        assert said.splitlines()[-1].startswith("localspec: The engine was stopped, with its server, while answering")
        assert listed(env) == []
        assert "(stopped)" in run("logs", "show", env=env).stdout.decode()
        chat.type("Hello\r")
        chat.wait_for(lambda: [each["for"] for each in listed(env)] == [[f"chat {chat.process.pid}"]])
        chat.type("\x11")
        assert chat.wait() == 0


@needs_pair
def test_a_server_takes_the_place_of_an_idle_engine(env: dict[str, str]) -> None:
    answer("--ctx", "512", "--keep-alive", "10m", "Once", env=env)
    (idle,) = listed(env)
    with serving("--ctx", "512", env=env) as server:
        (engine,) = listed(env)
        assert (engine["for"], engine["pid"]) == ([f"serve {server.process.pid}"], server.engine)
        assert not is_running(idle["pid"])


@needs_pair
def test_what_does_not_end_is_named(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    answer("--keep-alive", "10m", "Once", env=env)
    monkeypatch.setenv("LOCALSPEC_HOME", env["LOCALSPEC_HOME"])
    (facts,) = engines_in_memory()
    pid = facts["engine_pid"]
    monkeypatch.setattr(ps, "engines_in_memory", lambda: [facts])  # one that is halted does not say that it is there
    for module in (engines, runtime):
        monkeypatch.setattr(module, "PATIENCE", 0.1)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ResourceError) as caught:
            ps.stop.main([], standalone_mode=False)
        assert caught.value.message == f"not ended within 10 s: storyteller (process {pid})"
        assert caught.value.hint == f"kill -9 {pid}"
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: not is_running(pid))


@needs_pair
def test_a_server_that_ends_by_ctrl_c_lets_a_run_end_and_a_chat_go_on(env: dict[str, str]) -> None:
    """The chat need not wait for the answers of others: its next message loads the model again."""
    with serving("--ctx", "512", env=env, is_usual=True) as server, writing(300, env) as (client, chat):
        opened = server.open(
            "/v1/chat/completions", **said_by_a_user(stream=True, max_tokens=100_000, logit_bias={"2": -1e6})
        )
        opened.recv(1000)
        server.process.send_signal(signal.SIGINT)
        wait_for(lambda: listed(env)[0]["state"] == "ending")
        chat.type("Hello\r")
        chat.wait_for(lambda: [f"chat {chat.process.pid}"] in [each["for"] for each in listed(env)])
        chat.wait_for(lambda: "Assistant" in chat.text)
        assert "failed" not in chat.text
        last, _ = last_and_said(client)
        assert (client.returncode, last["result"]["finish_reason"]) == (0, "length")
        opened.close()
        assert server.process.wait(TIMEOUT) == 130
        chat.type("\x11")
        assert chat.wait() == 0


@contextmanager
def writing(n: int, env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    """Yield a run that writes `n` tokens, and a chat that has nothing to do, both on the engine that is there."""
    command = [*REAL, "run", "--events", "--logit-bias", "2=-inf", "--ctx", "512", "-n", str(n), "There was"]
    chat = Terminal(["chat", "storyteller", "--ctx", "512"], program=REAL, env=env)
    chat.wait_for(lambda: listed(env)[0]["clients"] == 2)
    with subprocess.Popen(command, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
        assert client.stdout is not None
        while json.loads(client.stdout.readline())["type"] != "step":
            pass
        yield client, chat
        client.kill()


def last_and_said(client: subprocess.Popen[bytes]) -> tuple[dict[str, Any], str]:
    out, told = client.communicate(timeout=TIMEOUT)
    last: dict[str, Any] = json.loads(out.splitlines()[-1])
    return last, told.decode()


@pytest.mark.parametrize(
    ("name", "is_called"),
    [("smol:135m+draft", True), ("smol:135m", True), ("pirate:135m", True), ("pirate", True), ("RATE:13", True),
     ("sha256-1f", True), ("/blobs/sha256-1f", True), ("ra", False), ("draft", False), ("qwen", False), ("None", False),
     ("one", False), ("pir", True), ("sm", False)],
)  # fmt: skip
def test_an_engine_has_the_names_that_its_clients_give_it(name: str, *, is_called: bool) -> None:
    settings = {"name": "smol:135m+draft", "target": "/blobs/sha256-1f"}
    facts = {
        "settings": settings,
        "clients": [{"by": "serve", "pid": 1}, {"by": "chat", "pid": 2, "name": "pirate:135m"}],
    }
    assert ps._is_called(facts, name) == is_called


def test_a_model_may_stay_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with Ollama, any time below zero is one without an end."""
    for text in ("-1", "-1m", "-30s", "-2h", "forever"):
        assert EngineOptions(text).kept == KeepAlive(AGES)
    for text in ("-1d", "--1", "-", "1forever"):
        with pytest.raises(UsageError):
            _ = EngineOptions(text).kept
    monkeypatch.setattr("time.time", lambda: 0.0)
    facts = {"pair": "p", "since": "2026-01-01T00:00:00+00:00", "state": "idle", "memory": None, "tokens": None,
             "waiting": 0, "for": []}  # fmt: skip
    at = datetime.fromtimestamp
    for left, state in ((AGES - 60, "idle, stays"), (60.0, "idle, 1 min left"), (AGES / 2, "idle, 43800 h 0 min left")):
        assert ps._row({**facts, "idle_until": at(left, UTC).isoformat()})[2] == state
    assert ps._row({**facts, "idle_until": None})[2] == "idle"
