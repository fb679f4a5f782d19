"""Measure planning before a download, against a hub on loopback, and the look-out for drafts among many files here.

  bench_headers.py        medians of five, each by a process of its own; the first reading is from an empty cache

The model has 42 GB, most of it a hole. The files here are 60, of four vocabularies of 128 000 and 152 000 tokens.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.hub.machine import Machine
from tests.hub.server import Repo, Server, serving
from tests.hub.test_before_download import BIG, MACHINE, SMALL, Holes
from tests.models.hollow import LLAMA_1B, LLAMA_8B, LLAMA_70B, QWEN3_30B_A3B, write

N_FILES = 60
HEADER = 8 << 20  # bytes of a file that hold its header


def publish(server: Server, folder: Path) -> None:
    """Put a model of 42 GB and one of 0.8 GB on the hub."""
    for n, (name, shape) in enumerate({"big": replace(LLAMA_70B, layers=85), "small": LLAMA_1B}.items()):
        path = write(folder / f"{name}-Q4_K_M.gguf", shape)
        repo = Repo({path.name: Holes.of(path)}, commit=f"{n}" * 40, etags={path.name: f"{n}" * 64})
        server.repos[f"org/{name}"] = repo


def fill(folder: Path) -> Path:
    """Write a target and as many smaller models of four vocabularies; return the target."""
    folder.mkdir()
    shapes = (LLAMA_1B, LLAMA_8B, QWEN3_30B_A3B, replace(LLAMA_1B, vocab=151_936))
    for kind, shape in enumerate(shapes):
        first = write(folder / f"{kind}-00.gguf", shape)
        head, size = first.open("rb").read(HEADER), first.stat().st_size
        for n in range(1, N_FILES // len(shapes)):
            with (folder / f"{kind}-{n:02}.gguf").open("wb") as copy:
                copy.write(head)
                copy.truncate(size)
    return write(folder / "target.gguf", LLAMA_70B)


def report(what: str, machines: list[Machine], *args: str) -> None:
    """Run localspec on each machine and print the median of the seconds, and the bytes that the first fetched."""
    seconds, sent = [], machines[0].server.sent
    for n, machine in enumerate(machines):
        began = time.perf_counter()
        done = machine.call_apart(*args)
        seconds.append(time.perf_counter() - began)
        if done.returncode:
            sys.exit(f"{what}: {done.stderr.decode()}")
        sent = machine.server.sent - sent if n == 0 else sent
    print(f"{what}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), {sent / 1e6:.1f} MB")


def main() -> None:
    """Read the command line and print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    subprocess.run([sys.executable, "-m", "localspec", "--version"], check=True)
    with tempfile.TemporaryDirectory() as name, serving({}) as server:
        folder = Path(name)
        os.environ["LOCALSPEC_HOME"] = name  # no command reads or writes what the person has
        publish(server, folder)
        target = fill(folder / "many")
        for what, args in (("plan", (f"{BIG}+{SMALL}", *MACHINE)), ("show", (BIG,))):
            machines = [Machine(server, folder / f"{what}{n}") for n in range(options.repeats)]
            report(f"{what}, nothing is kept", machines, what, *args)
            report(f"{what}, the headers are kept", machines, what, *args)
        machines = [Machine(server, folder / "here")] * options.repeats
        report(f"pairs suggest --offline, {N_FILES} files", machines, "pairs", "suggest", "--offline", str(target))


if __name__ == "__main__":
    main()
