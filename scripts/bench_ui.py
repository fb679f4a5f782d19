"""The cost of the full-screen chat: decoding in it against decoding in `localspec run`, on a terminal, in turns.

Both get the same prompt and settings. The speed is that of the engine's passes, which are slower where the screen uses
their processor. The target is storyteller's, scaled to a real shape (make_scaled_pair.py). First the time from the
start of the chat's process to its first picture is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pty
import select
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

from make_scaled_pair import add_target_options, scaled_target

PROMPT = "There was a man who"  # to whom the bundled target's answer has no end before 512 tokens
PATIENCE = 300.0  # seconds
LOOK = 2.0  # seconds between two looks at whether the answer is there
STARTS = 10  # of which the median counts
BACKGROUND = b"\x1b]11;?"  # the chat asks a terminal for its colour, and waits for the answer
BLACK = b"\x1b]11;rgb:0000/0000/0000\x1b\\\x1b[?62;c"
INPUT = b"sk something"  # in the input's empty line; the cursor stands on the letter before
COMMAND = [sys.executable, "-m", "localspec"]


def speed(result: dict[str, Any]) -> float:
    """Return tokens a second of a result object."""
    return float(result["timings"]["predicted_per_second"])


def run(pair: str, options: list[str], folder: Path) -> float:
    """Answer once without a screen, at home in the chat's folder: one profile tells both what passes cost."""
    done = subprocess.run(
        [*COMMAND, "run", "-m", pair, *options, "--no-save", "--json", PROMPT],
        capture_output=True, check=True, env={**os.environ, "LOCALSPEC_HOME": str(folder)},
    )  # fmt: skip
    return speed(json.loads(done.stdout))


def opened(options: list[str], folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start the chat on a terminal of 120 x 40; return its process and the terminal's other end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environment = {**os.environ, "LOCALSPEC_HOME": str(folder), "TERM": "xterm-256color"}
    process = subprocess.Popen([*COMMAND, "chat", *options], stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    return process, master


def first_picture(folder: Path) -> float:
    """Return the seconds from the start of the process to the picture that can be written into."""
    began = time.monotonic()
    process, master = opened([], folder)
    read_until(master, BACKGROUND)
    os.write(master, BLACK)
    read_until(master, INPUT)
    seconds = time.monotonic() - began
    process.kill()
    process.wait()
    os.close(master)
    return seconds


def chat(pair: str, options: list[str], folder: Path) -> float:
    """Answer once in the chat, on a terminal that is read as fast as it is written."""
    kept = folder / "data" / "conversations.db"
    kept.unlink(missing_ok=True)
    process, master = opened(["-m", pair, *options], folder)
    read_until(master, b"ctx 0/")
    os.write(master, PROMPT.encode() + b"\r")
    asked, found = time.monotonic(), None
    while found is None:
        assert time.monotonic() - asked < PATIENCE, "the chat never answered"
        drain(master, LOOK)
        found = finished(kept)
    os.write(master, b"\x11")
    with contextlib.suppress(OSError):
        while os.read(master, 1 << 16):
            pass
    process.wait(10)
    os.close(master)
    return speed(found)


def read_until(master: int, wanted: bytes) -> None:
    """Read what the chat draws until `wanted` is in it."""
    seen, began = b"", time.monotonic()
    while wanted not in seen:
        assert time.monotonic() - began < PATIENCE, "the chat never began"
        if select.select([master], [], [], 0.1)[0]:
            seen = seen[-len(wanted) :] + os.read(master, 1 << 16)


def drain(master: int, seconds: float) -> None:
    """Read and drop what the chat draws, as cheaply as a terminal of its own processor would."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([master], [], [], left)[0]:
            os.read(master, 1 << 16)


def finished(kept: Path) -> dict[str, Any] | None:
    """Return the result of the answer that was kept, None while there is none."""
    if not kept.exists():
        return None
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(kept)) as database:
        row = database.execute("SELECT stats FROM message WHERE stats IS NOT NULL").fetchone()
        return None if row is None else dict(json.loads(row[0]))
    return None


def main() -> None:
    """Make the target and take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_target_options(parser)
    parser.add_argument("-n", type=int, default=128, help="tokens of an answer")
    parser.add_argument("-r", type=int, default=3, help="answers of each")
    options = parser.parse_args()
    small = Path(str(files("localspec.models"))) / "storyteller"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target = scaled_target(options, folder)
        pair = f"{target.absolute()}+{small / 'draft-q8_0.gguf'}"
        told = ["-n", str(options.n), "--temp", "0", "--method", "draft-model", "-k", "4"]
        seconds = [first_picture(folder) for _ in range(STARTS)]
        print(f"first picture, median of {STARTS}: {statistics.median(seconds):.2f} s ({max(seconds):.2f} at most)")
        ratios = []
        for turn in range(options.r):
            if turn % 2:
                with_screen, without = chat(pair, told, folder), run(pair, told, folder)
            else:
                without, with_screen = run(pair, told, folder), chat(pair, told, folder)
            ratios.append(with_screen / without)
            print(f"run {without:.1f} tok/s, chat {with_screen:.1f} tok/s: {ratios[-1]:.3f}", flush=True)
        print(f"chat / run, median of {len(ratios)}: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
