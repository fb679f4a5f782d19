"""Tests that are collected once, and run many times: each run is a fork in which functions have other code.

Of equally near files the tests that take least time come first, in bands: within a band files keep their fixtures.

`Tests` talks to a process of pytest that has this module as a plugin. To import and collect takes seconds; a fork takes
none of that. A change that lies in no function, such as a constant of a module, wants a process that collects anew.
"""

from __future__ import annotations

import ast
import gc
import json
import math
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from mutations import mutations

HANG = 120  # seconds in which a test does nothing; none of the suite waits as long
PATIENCE = 30  # processor seconds over the limit, which no test of the suite takes either
IDLE = 2  # seconds for a tick: a test that takes less processor time waits for nothing
COLLECTION = 600  # seconds, for the imports of all test files
QUICK = 0.1  # seconds: tests that take less are alike
BAND = 4  # times the seconds of the band before
SAME = 40  # seconds in which nothing is done count as one of processor time
IS_FUNCTION = 1  # CO_OPTIMIZED, which codes of modules and classes have not
ANEW = "anew"  # the change wants tests that are collected anew
HUNG = "hung"  # a test went on for too long
BROKEN = "broken"  # a test ended the process
KILLED = "killed"  # something else ended the process: the memory is full


class Tests:
    """A process of pytest that has collected test files of a tree."""

    def __init__(self, python: Path, root: Path, env: dict[str, str], files: Iterable[str]) -> None:
        asks, self._ask = os.pipe()
        told, replies = os.pipe()
        self._replies = os.fdopen(told)
        self._is_collected: bool | None = None
        options = ["-q", "-s", "-m", "not slow", "-p", "no:xdist", "-p", "no:randomly", "-p", "mutate_tests"]
        self._process = subprocess.Popen(
            [python, "-m", "pytest", *options, *files],
            cwd=root, env=env | {"MUTATE_FDS": f"{asks} {replies}"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=(asks, replies),
        )  # fmt: skip
        os.close(asks)
        os.close(replies)

    def run(self, asked: dict[str, Any]) -> tuple[str, str]:
        """Run `files`, by rank, up to the first test that fails, or to `limit` seconds of processor time.

        Return `survived` or `caught` and by which test, or HUNG, BROKEN or KILLED and at which, or ANEW for a `change`
        that lies in no function. `last` is the last test that may run.
        """
        if not self.is_collected():
            is_hang = self._process.poll() is None and not select.select([self._replies], [], [], 0)[0]
            if is_hang:
                return "caught", "time: an import hangs"
            status = self._process.wait()
            return (KILLED, "") if status == -signal.SIGKILL else ("caught", f"exit status {status}")
        asked = {"hang": HANG, "patience": PATIENCE} | asked
        os.write(self._ask, json.dumps(asked).encode() + b"\n")
        result, by = json.loads(self._replies.readline())
        return result, by

    def is_collected(self) -> bool:
        """Wait until the files are imported; tell whether they could be."""
        if self._is_collected is None:
            is_told = bool(select.select([self._replies], [], [], COLLECTION)[0])
            self._is_collected = is_told and self._replies.readline() == "\n"
        return self._is_collected

    def close(self) -> None:
        """End the process."""
        os.close(self._ask)
        self._replies.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


# What follows runs in the process of pytest.


def pytest_runtestloop(session: Any) -> bool:
    """Answer what is asked, and run no test here."""
    asks, replies = map(int, os.environ["MUTATE_FDS"].split())
    os.write(replies, b"\n")
    seconds = Seconds(Path(os.environ["MUTATE_SECONDS"]))
    for line in os.fdopen(asks):
        os.write(replies, json.dumps(_answer(session, json.loads(line), seconds)).encode() + b"\n")
    return True


class Seconds:
    """How long each test took when it was quickest: mostly without the fixtures of its module. A file keeps that."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._of: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def band(self, test: str) -> int:
        """Return how slow a test is; one that was never run is as quick as any, so that it is known soon."""
        return math.ceil(math.log(max(self._of.get(test, 0.0), QUICK), BAND))

    def learn(self, told: Mapping[str, float]) -> None:
        """Keep what tests took."""
        for test, seconds in told.items():
            self._of[test] = min(seconds, self._of.get(test, seconds))
        beside = self._path.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(self._of), encoding="utf-8")
        beside.replace(self._path)


def _answer(session: Any, asked: dict[str, Any], seconds: Seconds) -> tuple[str, str]:
    if asked.get("is_anew") and session.testsfailed:
        return "caught", "an error of collection"
    codes = _codes(Path(asked["file"]), asked["change"]) if asked["change"] is not None else {}
    if codes is None:
        return ANEW, ""
    items = _items(session, asked, seconds)
    progress, write = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.setsid()
            _run(session, asked, items, codes, write)
        os._exit(0)
    os.close(write)
    told = b""
    used, is_hang = 0, False
    while not is_hang:
        if not select.select([progress], [], [], asked["hang"])[0]:
            before, used = used, _ticks(child)
            is_hang = used - before < asked["hang"] // IDLE
        elif chunk := os.read(progress, 4096):
            told += chunk
        else:
            break
    os.close(progress)
    with suppress(ProcessLookupError):  # with what it left behind
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    *passed, last = told.split(b"\n")
    if last:
        seconds.learn({item.nodeid: float(took) for item, took in zip(items, passed, strict=False)})
        result, by = json.loads(last)
        return result, by
    at = items[min(told.count(b"\n"), len(items) - 1)].nodeid if items else ""
    code = os.waitstatus_to_exitcode(status)
    return HUNG if is_hang or code == -signal.SIGXCPU else KILLED if code == -signal.SIGKILL else BROKEN, at


def _ticks(session: int) -> int:
    """Return the processor time that the processes of a session took, in ticks of mostly 1/100 s."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            values = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            total += int(values[11]) + int(values[12]) if int(values[3]) == session else 0
    return total


def _run(
    session: Any, asked: dict[str, Any], items: Sequence[Any], codes: dict[CodeType, CodeType], write: int
) -> None:
    """Run tests in a child; each that passes writes a line, its seconds, and the result is the last line."""
    limit = int(asked["limit"]) + asked["patience"]
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.environ["LOCALSPEC_HOME"] = tempfile.mkdtemp()
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__ in codes and _is_of(each.__code__, asked["file"]):
            each.__code__ = codes[each.__code__]
    failed: list[str] = []

    class Failures:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

    session.config.pluginmanager.register(Failures())
    began, used, result = time.monotonic(), 0.0, ("survived", f"{len(items)} tests")
    for n, item in enumerate(items):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=items[n + 1] if n + 1 < len(items) else None)
        if failed:
            result = "caught", failed[0]
            break
        before, used = used, max(sum(os.times()[:4]), (time.monotonic() - began) / SAME)
        os.write(write, f"{used - before:.2f}\n".encode())
        if used > asked["limit"]:
            result = "survived", f"{n + 1} of {len(items)} tests, no time for more"
            break
    os.write(write, json.dumps(result).encode())
    os.close(write)
    session._setupstate.teardown_exact(None)


def _items(session: Any, asked: dict[str, Any], seconds: Seconds) -> list[Any]:
    """Return the tests of files, and those that are named themselves, the nearest and quickest first.

    The last that may run is the last of them.
    """
    ranks, files = asked["files"], {file: n for n, file in enumerate(asked["files"])}
    found = []
    for item in session.items:
        named = item.nodeid if item.nodeid in ranks else item.nodeid.partition("::")[0]
        if named in ranks and item.nodeid not in asked["without"]:
            found.append(((ranks[named], seconds.band(item.nodeid), files[named]), item))
    items = [item for _, item in sorted(found, key=lambda pair: pair[0])]
    ends = [n for n, item in enumerate(items, 1) if item.nodeid == asked["last"]]
    return items[: ends[0]] if ends else items


def _codes(path: Path, number: int) -> dict[CodeType, CodeType] | None:
    """Return the codes of functions that a change changes, with the new ones; None where it changes something else."""
    tree = ast.parse(path.with_suffix(".unchanged").read_text(encoding="utf-8"))
    old = compile(tree, str(path), "exec", dont_inherit=True)
    mutations(tree)[number].apply()
    new = compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
    found: dict[CodeType, CodeType] = {}
    return found if _pair(old, new, found) else None


def _pair(old: CodeType, new: CodeType, found: dict[CodeType, CodeType]) -> bool:
    if old == new:
        return True
    is_function = bool(old.co_flags & IS_FUNCTION)
    if is_function:
        found[old] = new
    elif _without_codes(old) != _without_codes(new):
        return False
    inner = zip(_inner(old), _inner(new), strict=False)
    return all(_pair(before, after, found) for before, after in inner) or is_function


def _is_of(code: CodeType, file: str) -> bool:
    """Whether a function is of a file, which may have been imported through a link."""
    return os.path.realpath(code.co_filename) == os.path.realpath(file)


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


def _without_codes(code: CodeType) -> CodeType:
    return code.replace(co_consts=tuple(None if isinstance(each, CodeType) else each for each in code.co_consts))
