"""Change lines that a seed draws, one at a time, and see which of the changes the tests notice.

  mutate --seed 7 -n 60                      60 lines of the product
  mutate --seed 7 -n 20 --only models/hub    20 lines of one folder or file; repeat the names
  mutate --seed 7 -n 60 --resume FILE        go on with a run, or print its table again

Each line of code that an operator of mutations.py fits is drawn with the same chance, then an operator, then a place.
The changes are made in a copy of the working tree. Each is tried on the tests nearest to its file, until one fails or
--limit seconds of processor time are over: those named after the file, those of its folder that import it, others that
import it, the rest of its folder. Of equally near tests the quickest come first; what each took is kept beside FILE.
A test that fails is run without the change too, once, and left out if it fails.
A test that hangs or ends its process counts if the same tests end without the change. A change whose tests are killed
by something else, such as a full memory, is undecided; --resume tries it again.
Results go to FILE, one JSON object a line; build/mutate-SEED.jsonl unless --resume names it. A survivor that was read
and is harmless gets a key there: "harmless": "the reason". The table then shows it.

mutmut and cosmic-ray do not fit. mutmut names its mutants by the path of a module, and models/ and tui/ are imported
under another. cosmic-ray lists every change of a tree, draws none, and has four of the ten operators.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import random
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import venv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutate_tests import ANEW, BROKEN, HUNG, KILLED, Tests
from mutations import Mutation, mutations

ROOT = Path(__file__).parents[1]
PRODUCT = ("localspec", "models", "tui")
# Where the tests of a folder are, if not in the folder of the same name.
FOLDERS = {
    "verify": ["exact"],
    "trees": ["trees", "exact"],
    "backends": ["integration"],
    "session": ["integration"],
    "models/hub": ["hub"],
}
FILES = 24  # of tests, for one change
Record = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """A mutation of a file, by its number in the list of the file's mutations."""

    file: str
    number: int
    line: int
    operator: str
    before: str
    after: str

    def key(self) -> list[str | int]:
        """What tells the change from others, in a file of results too."""
        return [self.file, self.line, self.operator, self.before, self.after]


def lines_of(root: Path, only: Sequence[str]) -> dict[tuple[str, int], list[tuple[int, Mutation]]]:
    """Return the mutations, with their numbers, of each line of code that has any, by file and line."""
    found: dict[tuple[str, int], list[tuple[int, Mutation]]] = defaultdict(list)
    for path in sorted(path for folder in PRODUCT for path in (root / folder).rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if not only or any(file == name or file.startswith(f"{name.rstrip('/')}/") for name in only):
            for number, one in enumerate(mutations(ast.parse(path.read_text(encoding="utf-8")))):
                found[file, one.line].append((number, one))
    return found


def drawn(lines: dict[tuple[str, int], list[tuple[int, Mutation]]], seed: int, n: int) -> list[Change]:
    """Draw `n` lines, an operator for each and a place for it. A greater `n` draws the same ones first."""
    rng = random.Random(seed)
    places = list(lines)
    rng.shuffle(places)
    found = []
    for place in places[:n]:
        operator = rng.choice(sorted({one.operator for _, one in lines[place]}))
        number, one = rng.choice([(number, one) for number, one in lines[place] if one.operator == operator])
        found.append(Change(place[0], number, one.line, operator, *one.texts()))
    return found


def changed(text: str, number: int) -> str:
    """Return the source of a file with one of its mutations made."""
    tree = ast.parse(text)
    mutations(tree)[number].apply()
    return ast.unparse(tree) + "\n"


def module_of(file: str) -> str:
    """Return the name under which a file of the product is imported."""
    parts = Path(file).with_suffix("").parts
    parts = parts if parts[0] == "localspec" else ("localspec", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tests_of(root: Path, file: str) -> dict[str, int]:
    """Return the test files of a file of the product, the nearest first, with a number that equally near ones share."""
    module = module_of(file)
    room = "/".join(module.split(".")[1:-1])
    folders = FOLDERS.get(room) or FOLDERS.get(room.partition("/")[0]) or [room, room.partition("/")[0]]
    parent, _, name = module.rpartition(".")
    imports = re.compile(rf"from {re.escape(module)} import|from {re.escape(parent)} import .*\b{re.escape(name)}\b")
    ranks = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        test = path.relative_to(root).as_posix()
        is_near = any(test.startswith(f"tests/{folder}/") for folder in folders if folder)
        has_name = path.stem == f"test_{name}"
        does_import = bool(imports.search(path.read_text(encoding="utf-8")))
        if (is_near or does_import or has_name) and not test.startswith("tests/machine/"):
            ranks[test] = (not (has_name and is_near), not (has_name and does_import), not does_import, not is_near)
    numbers = {rank: number for number, rank in enumerate(sorted(set(ranks.values())))}
    nearest = sorted(ranks, key=lambda test: (ranks[test], test))[:FILES]
    return {test: numbers[ranks[test]] for test in nearest}


class Copy:
    """A copy of the working tree with an environment of its own, in which modules come from the copy alone."""

    def __init__(self, folder: Path, under: Sequence[str], tests: Iterable[str], seconds: Path) -> None:
        self.root, self._under = folder / "tree", under
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        for name in PRODUCT[1:]:  # as they are installed
            (self.root / "localspec" / name).symlink_to(self.root / name)
        venv.create(self.root / ".venv", symlinks=True)
        (packages,) = (self.root / ".venv").glob("lib/python*/site-packages")
        (packages / "copy.pth").write_text(f"{self.root}\n{Path(__file__).parent}\n{sysconfig.get_path('purelib')}\n")
        self._temporary = folder / "t"
        # A changed line may delete what it should not.
        self._env = {name: value for name, value in os.environ.items() if name.partition("_")[0] not in ("XDG", "HF")}
        self._env |= {"HOME": str(folder / "home"), "TMPDIR": str(self._temporary), "MUTATE_SECONDS": str(seconds)}
        (folder / "home").mkdir()
        self._temporary.mkdir()
        self._tests = self._collected(tests)
        if not self._tests.is_collected():  # before the first change
            raise SystemExit("pytest cannot collect the tests")

    def _collected(self, files: Iterable[str]) -> Tests:
        return Tests(self.root / ".venv/bin/python", self.root, self._env, files)

    def close(self) -> None:
        """End the process of pytest."""
        self._tests.close()

    @contextmanager
    def _changed(self, change: Change) -> Iterator[None]:
        """Have the change in the files of the copy for a while, for the processes that tests start."""
        path = self.root / change.file
        kept = path.with_suffix(".unchanged")
        shutil.copy2(path, kept)
        path.write_text(changed(path.read_text(encoding="utf-8"), change.number), encoding="utf-8")
        try:
            self._forget(path)
            yield
        finally:
            kept.replace(path)
            self._forget(path)

    def _forget(self, path: Path) -> None:
        """Remove the compiled module, which Python takes for new if size and second are the same."""
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()

    def run(
        self, tests: Mapping[str, int], limit: float, without: Sequence[str], change: Change | None, last: str = ""
    ) -> tuple[str, str]:
        """Run files or tests, by rank, with or without a change, up to the last; return what Tests.run does."""
        asked = {"files": tests, "limit": limit, "without": without, "change": None, "file": "", "last": last}
        with self._turn():
            if change is None:
                return self._tests.run(asked)
            with self._changed(change):
                at = {"change": change.number, "file": str(self.root / change.file)}
                result, by = self._tests.run(asked | at)
                if result == ANEW:
                    anew = self._collected(tests)
                    result, by = anew.run(asked | {"is_anew": True})
                    anew.close()
        return result, by

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Have the command of --under run for a while, which may wait until others are done."""
        with subprocess.Popen([*self._under, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.read(1)
            yield


class Trial:
    """The changes, tried one by one in one copy for each job."""

    def __init__(self, copies: Sequence[Copy], limit: float, results: Path) -> None:
        self._limit, self._results = limit, results
        self._free: queue.Queue[Copy] = queue.Queue()
        for copy in copies:
            self._free.put(copy)
        self._lock = threading.Lock()
        lines = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
        self.records: list[Record] = [json.loads(line) for line in lines]
        self._passes: dict[str, bool] = {r["test"]: r["passes"] for r in self.records if "test" in r}

    def result(self, change: Change) -> Record | None:
        """Return what was last known of a change."""
        return next((record for record in reversed(self.records) if record.get("key") == change.key()), None)

    def is_known(self, change: Change) -> bool:
        """Whether the tests told of a change; one that stayed undecided is tried again."""
        record = self.result(change)
        return record is not None and record["result"] != "undecided"

    def try_change(self, change: Change) -> None:
        """Run the nearest tests on a change, and write the result down."""
        copy = self._free.get()
        try:
            result, by = "", ""
            while not result:
                result, by = self._one_run(copy, change)
            self._write({"key": change.key(), "result": result, "by": by})
            print(f"{result:9}{change.file}:{change.line}  {change.operator}: {by}", file=sys.stderr, flush=True)
        finally:
            self._free.put(copy)

    def _one_run(self, copy: Copy, change: Change) -> tuple[str, str]:
        """Return the result and the test that tells it; no result where that test fails without the change too."""
        tests = tests_of(copy.root, change.file)
        if not tests:
            return "no tests", ""
        bad = [test for test, passes in self._passes.items() if not passes]
        result, by = copy.run(tests, self._limit, bad, change)
        if result == KILLED:
            return "undecided", f"killed at {by}"
        if result in (HUNG, BROKEN):
            clean, ran = copy.run(tests, 2 * self._limit, bad, None, last=by)
            if clean != "survived" or ran.endswith("more"):
                return "undecided", f"{result} at {by}, and so without the change"
            return "caught", f"{'time' if result == HUNG else 'its end'}: {by}"
        if result == "caught" and by.startswith("tests/"):
            if by not in self._passes:
                self._passes[by] = copy.run({by: 0}, self._limit, (), None)[0] == "survived"
                self._write({"test": by, "passes": self._passes[by]})
            if not self._passes[by]:
                return "", ""
        return result, by

    def _write(self, record: Record) -> None:
        with self._lock, self._results.open("a", encoding="utf-8") as file:
            self.records.append(record)
            file.write(json.dumps(record) + "\n")


def table(results: Sequence[tuple[Change, Record | None]]) -> str:
    """Return every change with its result, and how many were caught by area, in Markdown."""
    rows = ["| place | operator | change | result |", "|:--|:--|:--|:--|"]
    areas: dict[str, list[str]] = defaultdict(list)
    for change, record in results:
        if record is None:
            continue
        reason = record.get("harmless")
        what = f"harmless: {reason}" if reason else f"{record['result']}, {record['by']}"
        text = f"{_short(change.before)} → {_short(change.after)}".replace("|", "\\|")
        rows.append(f"| {change.file}:{change.line} | {change.operator} | {text} | {what} |")
        area = ".".join(module_of(change.file).split(".")[1:-1]) or "localspec"
        areas[area].append("harmless" if reason else record["result"])
    rows += ["", "| area | tried | caught | missed | harmless | undecided | share |", "|:--|--:|--:|--:|--:|--:|--:|"]
    everything = {**dict(sorted(areas.items())), "all": [result for area in areas.values() for result in area]}
    for name, results_of in everything.items():
        caught, harmless, undecided = (results_of.count(kind) for kind in ("caught", "harmless", "undecided"))
        missed = len(results_of) - caught - harmless - undecided
        share = f"{100 * caught / (caught + missed):.0f} %" if caught + missed else ""
        rows.append(f"| {name} | {len(results_of)} | {caught} | {missed} | {harmless} | {undecided} | {share} |")
    return "\n".join(rows)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return f"`{line}`" if len(line) <= 60 else f"`{line[:57]}...`"


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, try what has no result yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True, help="decides what is drawn")
    parser.add_argument("-n", type=int, default=60, help="how many lines to draw")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATH", help="draw from these folders and files")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="the results of a run to go on with")
    parser.add_argument("--limit", type=float, default=30, help="processor seconds for the tests of a change")
    parser.add_argument("--under", default="", metavar="CMD", help="a command that runs while a change is tried")
    parser.add_argument("--jobs", type=int, default=1, help="changes tried at once, each in a copy of its own")
    asked = parser.parse_args(arguments)
    results = asked.resume or ROOT / "build" / f"mutate-{asked.seed}.jsonl"
    if asked.resume is None and results.exists():
        parser.error(f"{results} has results: go on with them by --resume, or delete the file")
    results.parent.mkdir(parents=True, exist_ok=True)
    changes = drawn(lines_of(ROOT, [Path(name).as_posix() for name in asked.only]), asked.seed, asked.n)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        trial = Trial([], asked.limit, results)
        todo = [change for change in changes if not trial.is_known(change)]
        if todo:
            tests = sorted({test for change in todo for test in tests_of(ROOT, change.file)})
            copies, seconds = [], results.with_name("mutate-seconds.json").absolute()
            for job in range(asked.jobs):
                (Path(folder) / str(job)).mkdir()
                copies.append(Copy(Path(folder) / str(job), shlex.split(asked.under), tests, seconds))
            trial = Trial(copies, asked.limit, results)
            with ThreadPoolExecutor(asked.jobs) as pool:
                list(pool.map(trial.try_change, todo))
            for copy in copies:
                copy.close()
    print(f"Seed {asked.seed}, {len(changes)} drawn, {time.monotonic() - began:.0f} s, results in {results}\n")
    print(table([(change, trial.result(change)) for change in changes]))


if __name__ == "__main__":
    main()
