"""Are the factors that answers and races tell true beside a program that takes a processor now and then?

  told.py TARGET.gguf -d DRAFT.gguf --json told.json

First quiet answers, whose ratios to plain decoding of the same prompts, in turns, are the truth, and quiet races, whose
rounds are the truth of races: their answers are shorter. Then answers and races beside a loop that takes one processor
for two of every five seconds. A factor outside all ratios of the truth is wrong; to tell none is right. Six rounds of a
race must agree and lie near each other, or it tells none. The exit code is 1 where a factor is wrong.

The engine stays warm between the answers, so that only they are beside the loop. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localspec.bench.race import factor
from localspec.bench.statistics import Interval
from localspec.bench.suites import load_suite

BUSY, CYCLE = 2.0, 5.0  # seconds of the loop, of so many


def _loop() -> None:
    while True:
        until = time.monotonic() + BUSY
        while time.monotonic() < until:
            pass
        time.sleep(CYCLE - BUSY)


@contextmanager
def busy(is_wanted: bool) -> Iterator[None]:
    """Take a processor now and then while the block runs."""
    process = multiprocessing.Process(target=_loop, daemon=True)
    if is_wanted:
        process.start()
    try:
        yield
    finally:
        if is_wanted:
            process.kill()
            process.join()


class Told:
    """Answers and races of one pair, kept in a file as they come."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options, self._file = options, Path(options.json)
        self.rows: list[dict[str, Any]] = json.loads(self._file.read_text()) if self._file.exists() else []
        self._prompts = [prompt.text for prompt in load_suite(options.suite).prompts]
        home = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("DATA", "STATE", "CONFIG")}
        self._environment = {**os.environ, **home, "XDG_RUNTIME_DIR": str(folder)}

    def call(self, *words: str) -> dict[str, Any]:
        """Run a command of localspec, and return the JSON that it prints where it is asked for some."""
        command = (sys.executable, "-m", "localspec", *words)
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(done.stderr)
        found: dict[str, Any] = json.loads(done.stdout) if "--json" in words else {}
        return found

    def answer(self, kind: str, index: int, *, is_plain: bool = False) -> dict[str, Any]:
        """Answer one of the prompts, by the method or plainly, and keep what was told."""
        options = self._options
        method = ("plain",) if is_plain else (options.method, "-k", str(options.k))
        pair = ("-m", options.target, "-d", options.draft, "--temp", "0", "-n", str(options.n), "--no-save", "--json")
        told = self.call("run", "--keep-alive", "5m", *pair, "--method", *method, self._prompt(index))
        figures = told["spec"]
        row = {"kind": kind, "index": index, "is_plain": is_plain, "tok_per_s": told["timings"]["predicted_per_second"]}
        return self._keep(row | {"factor": figures["speedup"], "verdict": figures["verdict"]})

    def _prompt(self, index: int) -> str:
        return self._prompts[index % len(self._prompts)]

    def race(self, kind: str, index: int) -> dict[str, Any]:
        """Race the method against plain decoding on one of the prompts, six rounds."""
        options = self._options
        pair = (options.target, "-d", options.draft, "--method", options.method, "-k", str(options.k), "--temp", "0")
        told = self.call("race", *pair, "-n", str(options.n // 4), "--repeat", "6", "--json", self._prompt(index))
        ratios = [each["speedup"] for each in told["rounds"]]
        row = {"kind": kind, "index": index, "factor": factor(Interval(**told["speedup"])), "ratios": ratios}
        return self._keep(row | told["speedup"])

    def _keep(self, row: dict[str, Any]) -> dict[str, Any]:
        self.rows.append(row)
        self._file.write_text(json.dumps(self.rows, indent=1))
        print(json.dumps(row), flush=True)
        return row

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the rows of a kind."""
        return [row for row in self.rows if row["kind"] == kind]

    def run(self) -> None:
        """Do what is not done yet."""
        options = self._options
        with busy(False):
            for index in range(len(self.of("quiet")) // 2, options.quiet):
                for is_plain in (index % 2 == 0, index % 2 == 1):
                    self.answer("quiet", index, is_plain=is_plain)
            self.call("stop")
            for index in range(len(self.of("quiet race")), options.quiet_races):
                self.race("quiet race", index)
        with busy(True):
            for index in range(len(self.of("busy")), options.answers):
                self.answer("busy", index)
            self.call("stop")
            for index in range(len(self.of("race")), options.races):
                self.race("race", index)

    def table(self) -> int:
        """Print the truth and what was told; return how many factors lie outside the truth."""
        quiet = {(row["index"], row["is_plain"]): row["tok_per_s"] for row in self.of("quiet")}
        ratios = [quiet[index, False] / quiet[index, True] for index, is_plain in quiet if is_plain]
        rounds = [ratio for row in self.of("quiet race") for ratio in row["ratios"]]
        print(
            "| | number | truth | told a factor | least | greatest | outside the truth |\n|---|---|---|---|---|---|---|"
        )
        wrong = 0
        for kind, truth in (("quiet", ratios), ("busy", ratios), ("quiet race", rounds), ("race", rounds)):
            low, high = min(truth), max(truth)
            rows = [row for row in self.of(kind) if not row.get("is_plain")]
            factors = [row["factor"] for row in rows if row["factor"] is not None]
            outside = sum(not low <= factor <= high for factor in factors)
            spelt = f"{statistics.median(truth):.2f} ({low:.2f} to {high:.2f})"
            ends = f"{min(factors):.2f} | {max(factors):.2f}" if factors else "| "
            print(f"| {kind} | {len(rows)} | {spelt} | {len(factors)} | {ends} | {outside} |")
            wrong += outside
        return wrong


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("-d", "--draft", required=True)
    parser.add_argument("--json", required=True, help="where the results are kept")
    parser.add_argument("--method", default="draft-model")
    parser.add_argument("-k", type=int, default=4)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--suite", default="humaneval")
    parser.add_argument("--quiet", type=int, default=12)
    parser.add_argument("--quiet-races", type=int, default=6)
    parser.add_argument("--answers", type=int, default=40)
    parser.add_argument("--races", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = Told(options, Path(folder))
        try:
            told.run()
        finally:
            told.call("stop")
    return int(told.table() > 0)


if __name__ == "__main__":
    raise SystemExit(main())
