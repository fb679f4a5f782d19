"""Bad input: one line for people, the documented exit code, no traceback. Each runs the real program."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localspec.backends.build import build_info
from localspec.backends.limits import allowed
from localspec.models.store import parse_pair
from tests.cli.harness import (
    FAKE,
    PAIR,
    REAL,
    TIMEOUT,
    Terminal,
    assert_one_line,
    environment,
    localspec,
    needs_pair,
    run,
    run_engine,
)
from tests.hub.models import of_other_tokens

TARGET = PAIR / "target-q8_0.gguf"
DRAFT = PAIR / "draft-q8_0.gguf"
WAITS = "reading standard input…"
MANY = len(allowed()) + 1  # threads


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_name_that_attacks_the_terminal(tmp_path: Path) -> None:
    path = write(tmp_path / "a\x1b[2Jb\nc\u202ed.gguf", b"nothing")
    line = assert_one_line(run_engine("run", "-m", str(path), "hi"), 5)
    assert "\x1b" not in line
    assert "\u202e" not in line


@needs_pair
def test_a_draft_with_a_token_of_its_own_drafts_and_a_line_says_so(tmp_path: Path) -> None:
    whole = bytearray(DRAFT.read_bytes())
    at = whole.index(struct.pack("<Q", 3) + b"the", whole.index(b"tokenizer.ggml.tokens"))
    whole[at + 8 : at + 11] = b"zzz"
    path = write(tmp_path / "odd.gguf", bytes(whole))
    args = ("run", "--json", "-n", "30", "--seed", "1")
    done = run_engine(*args, "--method", "draft-model", "--draft", str(path), "Once upon a time")
    (line,) = done.stderr.decode().splitlines()
    assert "another vocabulary" in line
    assert "100 % of the target's tokens" in line
    made = json.loads(done.stdout)
    assert made["spec"]["accepted"] > 0
    plain = run_engine(*args, "--method", "plain", "Once upon a time")
    assert made["text"] == json.loads(plain.stdout)["text"]


@needs_pair
def test_a_draft_that_shares_few_tokens(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.gguf", of_other_tokens())
    done = run_engine("run", "--json", "--draft", str(path), "hi")
    assert_one_line(done, 6, "does not fit", "of the target's 4093 tokens", "10 % are needed")
    assert json.loads(done.stdout)["error"]["kind"] == "incompatible"


@needs_pair
def test_a_context_that_no_memory_holds() -> None:
    done = run_engine("run", "--ctx", str(2**31 - 1), "hi")
    assert_one_line(done, 7)


@needs_pair
def test_a_gpu_that_is_not_there_is_warned_of() -> None:
    done = run_engine("run", "--gpu", "999", "-n", "2", "--json", "hi")
    assert done.returncode == 0, done.stderr
    told = [warning["message"] for warning in json.loads(done.stdout)["warnings"]]
    assert build_info().gpu_offload or any("no GPU support" in message for message in told), told


@needs_pair
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel says what is locked")
@pytest.mark.parametrize(
    ("option", "said"),
    [(["--mlock"], "the system locks only"), (["--threads", str(MANY)], f"{MANY} threads share")],
)
def test_a_wish_that_cannot_be_granted_is_told(option: list[str], said: str) -> None:
    """In a process that may lock nothing, as an ordinary user's."""
    done = subprocess.run(
        [*REAL, "run", "--no-save", "-n", "2", "--json", "hi", *option],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, env=environment(), preexec_fn=_lock_nothing,
    )  # fmt: skip
    told = [warning["message"] for warning in json.loads(done.stdout)["warnings"]]
    assert any(said in message for message in told) or build_info().gpu_offload, told


def _lock_nothing() -> None:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    ctypes.CDLL(None).prctl(24, 14, 0, 0, 0)  # of root: drop CAP_IPC_LOCK


def test_a_thousand_stop_strings() -> None:
    stops = [part for i in range(1000) for part in ("--stop", f"<{i}>")]
    assert run("run", "hi", *stops).returncode == 0


@needs_pair
def test_more_draft_tokens_than_the_context_holds() -> None:
    done = run_engine("run", "-k", "5000", "-n", "8", "--ctx", "64", "hi")
    assert done.returncode == 0
    assert all(line.startswith("localspec: warning: ") for line in done.stderr.decode().splitlines())


def test_no_prompt_on_a_terminal_for_a_single_answer() -> None:
    """Without --json a chat opens: see test_habits.py."""
    terminal = Terminal(["run", "--raw"])
    assert terminal.wait() == 2
    assert "".join(terminal.lines).startswith("localspec: there is no prompt")


def test_bare_in_a_pipe_is_help_and_2() -> None:
    done = localspec(program=FAKE)
    assert done.returncode == 2
    assert b"Usage:" in done.stderr
    assert done.stdout == b""


def test_stdin_that_is_no_text_is_replaced_and_counted() -> None:
    done = run("run", stdin=b"a\0b\xff")
    assert done.returncode == 0
    assert done.stderr.decode() == (
        "localspec: warning: standard input: 1 invalid UTF-8 and 1 NUL replaced by \ufffd\n"
    )


def test_stdin_that_is_too_long() -> None:
    assert_one_line(localspec("run", "--max-stdin", "0.5", program=FAKE, stdin=b"x" * 600_000), 8, "0.5 MiB")


def test_an_endless_stdin_is_refused_and_not_swallowed() -> None:
    script = f"yes | {' '.join(FAKE)} run"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=TIMEOUT, env=environment())
    assert_one_line(done, 8, "16 MiB")


def test_stdin_from_a_socket_and_from_nowhere() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b"hello")
    ours.close()
    done = subprocess.run([*FAKE, "run", "-q"], stdin=theirs, capture_output=True, timeout=TIMEOUT, env=environment())
    assert done.returncode == 0
    assert_one_line(localspec("run", program=FAKE, stdin=None), 2, "no prompt")
    closed = subprocess.run(
        ["bash", "-c", f"{' '.join(FAKE)} run hi <&-"], capture_output=True, timeout=TIMEOUT, env=environment()
    )
    assert closed.returncode == 0, closed.stderr


def shell(script: str, program: list[str] = FAKE, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a bash script in which $L is the program; the exit code is the program's own."""
    full = f"set -o pipefail; L='{' '.join(program)}'; {script}"
    return subprocess.run(["bash", "-c", full], capture_output=True, timeout=TIMEOUT, env=environment(env))


def test_a_reader_that_leaves_is_141_and_silence() -> None:
    done = shell("$L run hi | head -c1; exit ${PIPESTATUS[0]}", FAKE_PAUSE="0.3")
    assert (done.returncode, done.stdout, done.stderr) == (141, b"O", b"")
    assert "(stopped)" in run("logs", "show").stdout.decode()


@needs_pair
@pytest.mark.parametrize("form", ["", "--json", "--events"])
def test_a_reader_that_is_gone_before_the_start(form: str) -> None:
    done = shell(f"$L run {form} -n 30 hi | true; exit ${{PIPESTATUS[0]}}", REAL)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("command", ["run hi", "run --json hi", "run --events hi", "methods", "--help", "chat <<< hi"])
def test_a_full_disk(command: str) -> None:
    done = shell(f"$L {command.replace(' <<<', ' > /dev/full <<<') if '<<<' in command else command + ' > /dev/full'}")
    assert_one_line(done, 7, "No space left on device")


def test_streams_that_are_closed() -> None:
    assert_one_line(shell("$L run hi >&-"), 7, "standard output is closed")
    assert shell("$L run hi >&- 2>&-").returncode == 7
    assert shell("$L run --stats hi 2>&-").stdout.decode() == "Once upon a time there was a king.\n"


@needs_pair
def test_streams_that_are_closed_together() -> None:
    """Descriptors 0 to 2 are free then, and none of the pipes to the engine may come to lie there."""
    run = "$L run -n 4 --stats hi"
    assert_one_line(shell(f"{run} <&- >&-", REAL), 7, "standard output is closed")
    done = shell(f"{run} <&- 2>&-", REAL)
    assert (done.returncode, done.stdout != b"", done.stderr) == (0, True, b"")
    assert shell(f"{run} >&- 2>&-", REAL).returncode == 7
    assert shell(f"{run} <&- >&- 2>&-", REAL).returncode == 7


def test_control_c_while_the_program_starts_is_no_traceback() -> None:
    """From the first line of ours on; what Python itself does before that is Python's. What began is told to end."""
    script = (
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == {name!r}: os.kill(os.getpid(), 2)\n"
        "sys.modules.pop({name!r}, None)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from localspec.cli import main\n"
        "main()\n"
    )
    for name in (
        "typing",
        "signal",
        "localspec.cli.entry",
        "click",
        "localspec.cli.signals",
        "localspec.cli.app",
        "localspec.cli.run",
    ):
        command = [sys.executable, "-c", script.format(name=name), "run", "hi"]
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, env=environment())
        said = b"stopped\n" if name in ("localspec.cli.app", "localspec.cli.run") else b""
        assert (done.returncode, done.stderr) == (130, said), name


@pytest.mark.parametrize("env", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "cp1252"}, {"TERM": "bogus"}, {"HOME": "/none"}])
def test_odd_environments(env: dict[str, str]) -> None:
    done = localspec("run", "hi", program=FAKE, env={**env, "FAKE_PASSES": '["漢 ", "x"]'})
    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.parametrize("home", [True, False], ids=["with a home", "without one"])
def test_folders_of_the_environment_that_are_relative_do_not_count(tmp_path: Path, home: bool) -> None:
    """The XDG specification wants absolute ones; a relative one would put files wherever one happens to be."""
    env = {f"XDG_{kind}_HOME": "here" for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    full = {**environment(env), "HOME": str(tmp_path / "user")}
    del full["LOCALSPEC_HOME"]
    if not home:
        del full["HOME"]
    command = [*FAKE, "config", "path"]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, env=full, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode()
    assert "here" not in shown
    assert not home or str(tmp_path / "user") in shown
    assert not list(tmp_path.iterdir())


def test_the_bundled_pair_is_the_default() -> None:
    assert parse_pair().name == "storyteller"


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/stdin", "FIFO"])
def test_files_without_an_end(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    name = name.replace("FIFO", str(tmp_path / "fifo"))
    assert_one_line(localspec("run", "hi", "-s", f"@{name}", program=FAKE), 3, f"--system @{name}", "regular file")
    script = f"/system @{name}\n/read {name}\n".encode()
    done = localspec("chat", "-q", program=FAKE, stdin=script)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode().count("it is not a regular file") == 2
    tune = localspec("early-exit", "tune", str(TARGET), "--prompts", name)
    assert_one_line(tune, 3, f"--prompts {name}", "regular file")


@pytest.mark.parametrize("name", ["~nosuchuser/x.md", "x" * 300 + ".md"])
def test_names_that_no_file_can_have(name: str) -> None:
    """None of them ends a chat."""
    assert_one_line(run("run", "hi", "-f", name), 3, "cannot read")
    script = f"hello\n/read {name}\n/load {name}\n/save {name}\n/export {name}\nhello\n".encode()
    done = run("chat", "-q", stdin=script)
    assert done.stdout.count(b"Once upon") == 2, "what comes after is answered"
    assert done.stderr.decode().count("cannot") == 4
    assert "unexpected" not in done.stderr.decode()


def test_a_system_message_that_is_too_long(tmp_path: Path) -> None:
    path = write(tmp_path / "long", b"x" * 600_000)
    done = run("run", "hi", "--max-stdin", "0.5", "-s", f"@{path}")
    assert_one_line(done, 8, "0.5 MiB")
    path = write(tmp_path / "longer", b"x" * (16 * 2**20 + 1))
    done = run("chat", "-q", stdin=f"/system @{path}\n/read {path}\n".encode())
    assert done.stderr.decode().count("is longer than 16 MiB") == 2


def test_a_standard_input_that_cannot_be_read(tmp_path: Path) -> None:
    write_only = f"0> {tmp_path}/out"
    assert_one_line(shell(f"$L run hi {write_only}"), 3, "cannot read standard input: Bad file descriptor")
    assert_one_line(shell(f"$L run -f - {write_only}"), 3, "cannot read standard input: Bad file descriptor")


def test_a_standard_input_that_does_not_wait() -> None:
    """Another program may have made a shared pipe non-blocking: nothing yet is not nothing."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    process = subprocess.Popen([*FAKE, "run", "--raw", "--json"], stdin=read, stdout=subprocess.PIPE, env=environment())
    os.close(read)
    time.sleep(0.5)
    os.write(write, b"a text")
    os.close(write)
    out, _ = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, json.loads(out)["text"]) == (0, "Once upon a time there was a king.")


@pytest.mark.parametrize("args", [["hi"], []])
def test_a_silent_pipe_is_told_on_a_terminal(args: list[str], tmp_path: Path) -> None:
    """The pipe stays open until that is said, however long the program takes to start."""
    is_said = tmp_path / "said"
    script = f'until [ -e \'{is_said}\' ]; do sleep 0.1; done | "$0" "$@"'
    terminal = Terminal(["run", *args], program=["bash", "-c", script, *FAKE])
    terminal.wait_for(lambda: WAITS in terminal.text)
    is_said.touch()
    terminal.wait()
    assert terminal.text.count(WAITS) == 1


def test_quiet_tells_nothing_of_a_silent_pipe() -> None:
    terminal = Terminal(["run", "-q", "hi"], program=["bash", "-c", 'sleep 2 | "$0" "$@"', *FAKE])
    terminal.wait()
    assert WAITS not in terminal.text
