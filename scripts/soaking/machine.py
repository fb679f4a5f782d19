"""The machine of a soak: a home of its own whose states lie on a small disk, and the processes that belong to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

DISK = 12 << 20  # bytes of the disk for states
LOCALSPEC = [sys.executable, "-m", "localspec"]
KINDS = (  # of processes, by a word of their command line
    ("localspec.server.background", "keeper"),
    ("localspec.worker.main", "engine"),
    ("serve", "server"),
    ("pull", "pull"),
    ("chat", "chat"),
    ("run", "run"),
)


@dataclass(frozen=True)
class Process:
    """A process of the soak. `memory` is its resident memory in bytes, `began` ticks since the machine started."""

    pid: int
    kind: str
    parent: int
    began: int
    memory: int
    descriptors: int


class Machine:
    """Folders and environment. `folder` is removed at the end, except after a loss."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.states = self.home / "cache" / "states"
        self.states.mkdir(parents=True, mode=0o700)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOCALSPEC_", "HF_"))}
        ours = {"LOCALSPEC_HOME": str(self.home), "HF_HOME": str(folder / "hf"), "HF_TOKEN": "", "OMP_NUM_THREADS": "1"}
        self.env: Mapping[str, str] = {**kept, **ours, "HF_ENDPOINT": endpoint, "PYTHONPATH": os.environ["PYTHONPATH"]}
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "none", str(self.states)]
        self.has_disk = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0

    def start(self, *words: str, **pipes: int) -> subprocess.Popen[bytes]:
        """Start localspec in a session of its own."""
        return subprocess.Popen(
            [*LOCALSPEC, *words],
            env=self.env,
            cwd=self.folder,
            start_new_session=True,
            **pipes,
        )

    def processes(self) -> list[Process]:
        """Return all that belong to this home."""
        mark, found = f"LOCALSPEC_HOME={self.home}".encode(), []
        for place in Path("/proc").iterdir():
            if place.name.isdigit() and int(place.name) != os.getpid():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    if mark in (place / "environ").read_bytes().split(b"\0"):
                        found.append(_process(place))
        return [each for each in found if each.kind]

    def kill(self, kind: str, random: Random) -> bool:
        """Kill one process of a kind; whether there was one."""
        found = [each for each in self.processes() if each.kind == kind]
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(found).pid, signal.SIGKILL)
        return bool(found)

    def fill(self, seconds: float) -> None:
        """Fill the disk of the states for a while; without a disk of its own do nothing."""
        file = self.states / "filler"
        if not self.has_disk:
            return
        with contextlib.suppress(OSError), file.open("wb") as out:
            while True:
                out.write(bytes(1 << 16))
        time.sleep(seconds)
        file.unlink(missing_ok=True)

    def remains(self) -> list[str]:
        """Return what is left behind once everything was stopped: processes, sockets, halves of files."""
        left = [f"process {each.pid}: {each.kind}" for each in self.processes()]
        places = [place for place in self.folder.rglob("*") if place.is_socket() or place.suffix in (".tmp", ".part")]
        return [*left, *(str(place.relative_to(self.folder)) for place in places)]

    def close(self, *, keeps: bool) -> None:
        """Take the disk away, and the folder."""
        if self.has_disk:
            subprocess.run(["umount", "-l", str(self.states)], check=False)
        if not keeps:
            shutil.rmtree(self.folder, ignore_errors=True)


def _process(place: Path) -> Process:
    words = (place / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    ours = "localspec" in words or any(word.startswith("localspec.worker") for word in words)
    kind = next((kind for word, kind in KINDS if word in words), "") if ours else ""
    state, parent, *rest = (place / "stat").read_text().rpartition(")")[2].split()
    if state == "Z":
        kind = ""
    memory = int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return Process(int(place.name), kind, int(parent), int(rest[17]), memory, len(os.listdir(place / "fd")))
