"""Running the program as people do: in a pipe, or in a terminal of a given size whose screen can be read.

`run` takes this process instead of a new one: the same result in a fraction of the time, for commands that need no
terminal and no signal. Its engine is scripted, that of `run_engine` is the real one, in a thread.
"""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyte
import pytest

from localspec.cli.entry import outcome
from tests.cli.fakes import from_environment

ROOT = Path(__file__).parents[2]
PAIR = ROOT / "models" / "storyteller"
REAL = [sys.executable, "-m", "localspec"]
FAKE = [sys.executable, "-m", "tests.cli.fakes"]
PIPE = 1 << 16  # bytes that a pipe holds
TIMEOUT = 120  # seconds; far more than anything takes, so that a hang fails instead of hanging

needs_pair = pytest.mark.skipif(not list(PAIR.glob("draft*.gguf")), reason="the bundled pair is not there")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this environment without what would change the output, plus `extra`."""
    other = ("LOCALSPEC_", "NO_COLOR", "ACCESSIBLE", "FAKE_", "COLUMNS", "LINES")  # a worker of pytest-xdist has a size
    kept = {k: v for k, v in os.environ.items() if not k.startswith(other)}
    ours = {"LOCALSPEC_HOME": os.environ["LOCALSPEC_HOME"], "LOCALSPEC_NO_HISTORY": "1"}  # of this run of the tests
    return {**kept, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **ours, **(extra or {})}


def home_of(folder: Path) -> dict[str, str]:
    """Return the environment of a home of a test's own, where what was measured of pairs is that of the other tests."""
    cache = folder / "cache"
    if not cache.exists():
        measured = Path(os.environ["LOCALSPEC_HOME"]) / "cache" / "profiles"
        measured.mkdir(parents=True, exist_ok=True)
        cache.mkdir(parents=True)
        (cache / "profiles").symlink_to(measured)
    return {"LOCALSPEC_HOME": str(folder)}


def localspec(
    *args: str | bytes,
    program: list[str] = REAL,
    stdin: bytes | None = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run the program in pipes; `stdin` None is /dev/null."""
    source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run(
        [*program, *args], capture_output=True, timeout=TIMEOUT, env=environment(env), cwd=cwd or ROOT, **source
    )


def run(
    *args: str, stdin: bytes | None = b"", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in this process, with the scripted worker for an engine; `stdin` None is /dev/null."""
    with contextlib.ExitStack() as stack:
        for module in ("run", "chat"):
            opened = patch(f"localspec.cli.{module}.open_worker", lambda *_: from_environment())
            stack.enter_context(opened)
        return _outcome(args, stdin, env, cwd)


def run_engine(
    *args: str, stdin: bytes | None = b"", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    from tests.cli.in_process import engine_in_process  # late: it loads what the command line must not

    with engine_in_process():
        return _outcome(args, stdin, env, cwd)


def _outcome(
    args: tuple[str, ...], stdin: bytes | None, env: Mapping[str, str] | None, cwd: Path | None
) -> subprocess.CompletedProcess[bytes]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, environment(env), clear=True))
        stack.enter_context(contextlib.chdir(cwd or ROOT))
        stack.enter_context(patch.object(sys, "stdin", stack.enter_context(_source(stdin))))
        written = []
        for name in ("stdout", "stderr"):
            stream = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            stack.enter_context(patch.object(sys, name, stream))
            written.append(stream)
        code = outcome(list(args))
        for stream in written:
            stream.flush()
            stream.seek(0)
        out, errors = (stream.buffer.read() for stream in written)
    return subprocess.CompletedProcess(args, code, out, errors)


@contextlib.contextmanager
def _source(content: bytes | None) -> Iterator[Any]:
    """Open a pipe that holds `content` and was closed behind it; /dev/null for None."""
    if content is None:
        with open(os.devnull, encoding="utf-8") as null:
            yield null
        return
    assert len(content) <= PIPE, "longer than a pipe holds: run the program in a process of its own"
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    with open(read, encoding="utf-8") as source:
        yield source


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process: an engine may be of any."""
    return [int(word) for file in Path(f"/proc/{pid}/task").glob("*/children") for word in file.read_text().split()]


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie, which an orphan stays where nobody waits for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    with contextlib.suppress(FileNotFoundError):
        return status.read_text().split()[2] != "Z"
    return not status.parent.parent.is_dir()


def wait_until_idle(process: subprocess.Popen[Any]) -> None:
    """Wait until all threads of a process sleep, several looks in a row: it waits for input, or for a full pipe."""
    looks: deque[set[str]] = deque(maxlen=5)

    def is_idle() -> bool:
        states: set[str] = set()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends meanwhile
            for each in Path(f"/proc/{process.pid}/task").glob("*/stat"):
                states.add(each.read_text().rpartition(")")[2].split()[0])
        looks.append(states)
        return list(looks) == [{"S"}] * 5

    wait_for(is_idle)


def assert_one_line(done: subprocess.CompletedProcess[bytes], code: int, *words: str) -> str:
    """Check an error: the exit code, one line for people that holds `words`, no traceback. Return the line."""
    line = done.stderr.decode()
    assert done.returncode == code, (done.returncode, line)
    assert line.count("\n") == 1, line
    assert line.startswith("localspec: "), line
    assert "Traceback" not in line
    for word in words:
        assert word in line, line
    return line


def json_of(done: subprocess.CompletedProcess[bytes]) -> Any:
    """Return the JSON that a command wrote which did what it was asked; of one that did not, the error is shown."""
    assert done.returncode == 0, (done.stdout.decode(), done.stderr.decode())
    return json.loads(done.stdout)


def assert_advice(line: str) -> None:
    """Check that an error's line ends with a command or option to try, or with a sentence that says what to do."""
    assert re.search(r" — try: .|\. [A-Z][^.]*[.?]$", line.rstrip("\n")), line


@dataclass
class Terminal:
    """A program on a terminal of `columns` x `rows`; `screen` is what a person sees of it.

    With `keeps_frames` what was on the screen after each piece of output is kept, which takes as long as the program.
    """

    args: list[str]
    program: list[str] = field(default_factory=lambda: FAKE)
    env: Mapping[str, str] = field(default_factory=dict)
    columns: int = 80
    rows: int = 24
    keeps_frames: bool = False

    def __post_init__(self) -> None:
        self.screen = pyte.HistoryScreen(self.columns, self.rows, history=2000, ratio=0.1)
        self._stream = pyte.ByteStream(self.screen)
        self.output = b""
        self.frames: list[list[str]] = []
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [*self.program, *self.args], stdin=slave, stdout=slave, stderr=slave, env=environment(self.env), cwd=ROOT,
            start_new_session=True, preexec_fn=_own_terminal,
        )  # fmt: skip
        self._slave = slave

    def read(self, seconds: float = 0.05) -> bool:
        """Take what comes within `seconds`; False once the program has closed the terminal and nothing is left."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return self.process.poll() is None
        chunk = os.read(self._master, 1 << 16)
        self.output += chunk
        self._stream.feed(chunk)
        if self.keeps_frames:
            self.frames.append(list(self.screen.display))
        return True

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Read until `condition` holds."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline, self.text
            assert self.read() or condition(), self.text

    def wait(self) -> int:
        """Read until the program ends; return its exit code."""
        deadline = time.monotonic() + TIMEOUT
        while self.read():
            assert time.monotonic() < deadline, self.text
        code = self.process.wait()
        self.after = termios.tcgetattr(self._slave)
        os.close(self._slave)
        os.close(self._master)
        return code

    def stall(self) -> None:
        """Read nothing until the program can write no more."""
        was, now, deadline = -1, 0, time.monotonic() + TIMEOUT
        while now != was or now <= 1000:
            assert time.monotonic() < deadline, "the terminal was never full"
            time.sleep(1.5)
            was, now = now, struct.unpack("i", fcntl.ioctl(self._master, termios.FIONREAD, b"1234"))[0]

    def close(self) -> None:
        os.close(self._slave)
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    @property
    def modes(self) -> int:
        modes: int = termios.tcgetattr(self._slave)[3]
        return modes

    @property
    def lines(self) -> list[str]:
        """Every line from the start, scrolled out or not, without trailing blanks and empty lines at the end."""
        past = ["".join(row[x].data for x in range(self.columns)) for row in self.screen.history.top]
        lines = [line.rstrip() for line in [*past, *self.screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def assert_clean(self) -> None:
        """Check that the terminal is as it was: modes, no colour left on, cursor visible at the start of a line."""
        assert self.after == self.before
        assert not self.screen.cursor.hidden
        assert self.screen.cursor.x == 0
        assert self.screen.cursor.attrs == pyte.screens.Char(data=" ")


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for key in (signal.SIGINT, signal.SIGQUIT):  # a shell lets what it starts in the background ignore both
        signal.signal(key, signal.SIG_DFL)
