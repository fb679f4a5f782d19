"""The cost of the full-screen chat, on a terminal that is read as fast as it is written."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pty
import select
import sqlite3
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from measuring.runner import Contender, Contenders, Figures, Options, case
from measuring.servers import LOCALSPEC, environment, processor_seconds
from tests.weights.scaled import add_target_options, scaled_target

PROMPT = "There was a man who"  # to whom the bundled target's answer has no end before 512 tokens
PATIENCE = 300.0  # seconds
LOOK = 2.0  # seconds between two looks at whether the answer is there
BACKGROUND = b"\x1b]11;?"  # the chat asks a terminal for its colour, and waits for the answer
BLACK = b"\x1b]11;rgb:0000/0000/0000\x1b\\\x1b[?62;c"
INPUT = b"sk something"  # in the input's empty line; the cursor stands on the letter before


class Terminal:
    """The chat on a terminal of 120 x 40."""

    def __init__(self, words: list[str], home: Path) -> None:
        self.began = time.monotonic()
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            [*LOCALSPEC, "chat", *words],
            stdin=slave, stdout=slave, stderr=slave, env=environment(home, TERM="xterm-256color"),
        )  # fmt: skip
        os.close(slave)
        self.read_until(BACKGROUND)
        os.write(self.master, BLACK)

    def read_until(self, wanted: bytes) -> None:
        """Read what the chat draws until `wanted` is in it."""
        seen, began = b"", time.monotonic()
        while wanted not in seen:
            if time.monotonic() - began > PATIENCE:
                raise OSError(f"the chat never shows {wanted!r}")
            if select.select([self.master], [], [], 0.1)[0]:
                seen = seen[-len(wanted) :] + os.read(self.master, 1 << 16)

    def drain(self, seconds: float) -> None:
        """Read and drop what the chat draws."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.master], [], [], left)[0]:
                os.read(self.master, 1 << 16)

    def close(self) -> None:
        """End the chat and the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self.master)


def first_picture(home: Path) -> Figures:
    """Measure the seconds from the start of the process to the picture that can be written into."""
    with contextlib.closing(Terminal([], home)) as terminal:
        terminal.read_until(INPUT)
        return {"first picture (s)": time.monotonic() - terminal.began}


def chat(words: list[str], home: Path) -> Figures:
    """Answer once in the chat."""
    kept = home / "data" / "conversations.db"
    for path in kept.parent.glob("conversations.db*"):
        path.unlink()
    with contextlib.closing(Terminal(words, home)) as terminal:
        terminal.read_until(b"ctx 0/")
        asked, before = time.monotonic(), processor_seconds(terminal.process.pid)
        os.write(terminal.master, PROMPT.encode() + b"\r")
        while (result := finished(kept)) is None:
            if time.monotonic() - asked > PATIENCE:
                raise OSError("the chat never answers")
            terminal.drain(LOOK)
        spent = processor_seconds(terminal.process.pid) - before
    timings = result["timings"]
    return {"tok/s": timings["predicted_per_second"], "screen, ms a token": 1e3 * spent / timings["predicted_n"]}


def finished(kept: Path) -> dict[str, Any] | None:
    """Return the result of the answer that was kept, None while there is none."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{kept}?mode=ro", uri=True)) as db,
    ):
        row = db.execute("SELECT stats FROM message WHERE stats IS NOT NULL").fetchone()
        return None if row is None else dict(json.loads(row[0]))
    return None


def run(words: list[str], home: Path) -> Figures:
    """Answer once without a screen, at home in the chat's folder: both know from one profile what passes cost."""
    command = [*LOCALSPEC, "run", *words, "--no-save", "--json", PROMPT]
    done = subprocess.run(command, capture_output=True, check=False, env=environment(home))
    if done.returncode:
        raise OSError(f"localspec run ends with {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    return {"tok/s": json.loads(done.stdout)["timings"]["predicted_per_second"]}


def _options(parser: argparse.ArgumentParser) -> None:
    add_target_options(parser)
    parser.add_argument("-n", type=int, default=128, help="tokens of an answer")


@case(_options, rounds=3)
def ui(asked: Options) -> Iterator[Contenders]:
    """Decoding in the full-screen chat against `localspec run`, on a terminal.

    Both get the same prompt and settings. The speed is that of the engine's passes, which are slower where the screen
    uses their processor. The target is storyteller's, scaled to a real shape (tests/weights/scaled.py).
    """
    small = Path(str(files("localspec.models"))) / "storyteller"
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        target = scaled_target(asked, home)
        words = ["-m", f"{target.absolute()}+{small / 'draft-q8_0.gguf'}", "-n", str(asked.n)]
        words += ["--temp", "0", "--method", "draft-model", "-k", "4"]
        yield {
            "localspec chat": Contender(lambda _: chat(words, home), ("localspec run",)),
            "localspec run": Contender(lambda _: run(words, home)),
            "the start of the chat": Contender(lambda _: first_picture(home)),
        }
