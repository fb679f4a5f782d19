"""The runner of all measurements: contenders take turns in rounds, and one table has medians with their intervals.

A case is a generator function. It starts what is compared, yields the contenders by name, and ends what it started.
In a round each contender has one turn, in an order that is drawn. A turn returns figures by name. The ratio of two
contenders is that of their first figures, round by round. Brackets are 95 % intervals of the median.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from localspec.bench.result import machine
from localspec.bench.statistics import Interval, median_interval, ratio_interval
from localspec.bench.table import piped
from localspec.errors import LocalspecError
from localspec.ui.files import write_whole

Figures = Mapping[str, Any]  # numbers by name, the first of which counts in ratios, and perhaps a `text`
Options = argparse.Namespace
RUNNERS_OWN = ("rounds", "seconds", "json")  # options that do not change what is measured


@dataclass(frozen=True)
class Contender:
    """`turn(n)` measures once, in round `n` with the warm-up counted. `against` are contenders to divide by.

    `is_last`: it needs what others measured in the same round.
    """

    turn: Callable[[int], Figures]
    against: tuple[str, ...] = ()
    is_last: bool = False


Contenders = dict[str, Contender]


@dataclass(frozen=True)
class Case:
    """What is compared, and how many rounds count by default, after `warm_up` rounds that do not."""

    begin: Callable[[Options], Iterator[Contenders]]
    add_options: Callable[[argparse.ArgumentParser], None]
    rounds: int
    warm_up: int


CASES: dict[str, Case] = {}


def case(
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None, *, rounds: int, warm_up: int = 0
) -> Callable[[Callable[[Options], Iterator[Contenders]]], Callable[[Options], Iterator[Contenders]]]:
    """Register a generator function as the case of its name; its docstring is the help."""

    def register(begin: Callable[[Options], Iterator[Contenders]]) -> Callable[[Options], Iterator[Contenders]]:
        CASES[begin.__name__] = Case(begin, add_options, rounds, warm_up)
        return begin

    return register


class Run:
    """One run of a case. `rounds` holds the figures of each complete round, by contender."""

    def __init__(self, name: str, asked: Options) -> None:
        self._case, self._asked = CASES[name], asked
        self._head = {
            "case": name,
            "options": {key: str(value) for key, value in vars(asked).items() if key not in RUNNERS_OWN},
            "versions": {package: version(package) for package in ("localspec", "llama-cpp-python")},
            "machine": machine(),
        }
        self.rounds: list[dict[str, Figures]] = []
        self._against: dict[str, tuple[str, ...]] = {}
        self._random = Random(0)

    def resume(self) -> None:
        """Take over the rounds that --json holds; raises ValueError for those of another command or machine."""
        if self._asked.json is None or not self._asked.json.exists():
            return
        written = json.loads(self._asked.json.read_text(encoding="utf-8"))
        if any(written.get(key) != value for key, value in self._head.items()):
            raise ValueError(f"{self._asked.json} holds another measurement: name another file, or delete it")
        self.rounds = written["rounds"]

    def measure(self) -> None:
        """Measure until all rounds are there or the seconds are over; raises OSError or LocalspecError."""
        began, longest, warm_up = time.monotonic(), 0.0, self._case.warm_up
        with contextmanager(self._case.begin)(self._asked) as contenders:
            self._against = {name: one.against for name, one in contenders.items()}
            missing = range(warm_up + len(self.rounds), warm_up + self._asked.rounds)
            for n in (*range(warm_up), *missing):
                at = time.monotonic()
                if at + longest > began + self._asked.seconds:
                    break
                figures = {name: self._turn(n, name, contenders[name]) for name in self._order(contenders)}
                longest = max(longest, time.monotonic() - at)
                if n >= warm_up:
                    self.rounds.append({name: figures[name] for name in contenders})
                    self._keep()
        tell("")

    def _order(self, contenders: Contenders) -> list[str]:
        drawn = self._random.sample(list(contenders), len(contenders))
        return sorted(drawn, key=lambda name: contenders[name].is_last)

    def _turn(self, n: int, name: str, contender: Contender) -> Figures:
        tell(f"round {n + 1}: {name}")
        return contender.turn(n)

    def _keep(self) -> None:
        if self._asked.json is not None:
            text = json.dumps({**self._head, "rounds": self.rounds}, indent=1)
            write_whole(self._asked.json, f"{text}\n", hint="another --json")

    def table(self) -> str:
        """Return a row for each contender: medians of its figures, and ratios to others."""
        names = list(dict.fromkeys(name for each in self.rounds for name in each))
        columns = list(dict.fromkeys(key for each in self.rounds for figures in each.values() for key in figures))
        columns = [key for key in columns if key != "text"]
        has_ratio = any(self._against.values())
        lines = [("", *columns, *(["ratio"] if has_ratio else []), "rounds")]
        for name in names:
            own = [each[name] for each in self.rounds]
            cells = [spelled(median_interval([one[key] for one in own if key in one])) for key in columns]
            ratios = "; ".join(self._ratio(name, other) for other in self._against.get(name, ()))
            lines.append((name, *cells, *([ratios] if has_ratio else []), str(len(own))))
        return piped(lines)

    def _ratio(self, name: str, other: str) -> str:
        both = [(each[name], each[other]) for each in self.rounds]
        one_text = [(a, b) for a, b in both if a.get("text") is not None and a["text"] == b.get("text")]
        ratio = f"{spelled(_ratio(both))} of {other}"
        if not one_text or len(one_text) == len(both):
            return ratio
        return f"{ratio} ({spelled(_ratio(one_text))} of {len(one_text)} with one text)"


def _ratio(both: list[tuple[Figures, Figures]]) -> Interval | None:
    above, below = ([next(iter(figures.values())) for figures in column] for column in zip(*both, strict=True))
    return ratio_interval(above, below, is_paired=True)


def tell(text: str) -> None:
    """Show what is measured now, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def spelled(interval: Interval | None) -> str:
    """Return an interval with about three digits, "" for none."""
    if interval is None:
        return ""
    size = abs(interval.median)
    return interval.spelt(0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 4)


def count(text: str) -> int:
    """Read a number of things, of which there is at least one."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def numbers(text: str) -> list[int]:
    """Read numbers from 1 on, separated by commas."""
    return [count(word) for word in text.split(",")]


def parsed(arguments: list[str]) -> tuple[str, Options]:
    """Return the name of the case and its options."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure, in turns, and print one table.")
    each = parser.add_subparsers(dest="case", required=True, metavar="CASE")
    for name, one in CASES.items():
        text = one.begin.__doc__ or ""
        sub = each.add_parser(
            name, help=text.partition("\n")[0], description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        one.add_options(sub)
        sub.add_argument("--rounds", type=count, default=one.rounds, help=f"that count (default: {one.rounds})")
        sub.add_argument("--seconds", type=float, default=float("inf"), help="no round begins that would end later")
        sub.add_argument("--json", type=Path, help="write each round there; the same command goes on with the file")
    asked = parser.parse_args(arguments)
    name: Any = vars(asked).pop("case")
    return name, asked


def main(arguments: list[str]) -> int:
    """Run a case and print its table, also of what was measured before an error or Ctrl-C."""
    name, asked = parsed(arguments)
    run, stopped = Run(name, asked), ""
    try:
        run.resume()
        run.measure()
    except (OSError, ValueError, LocalspecError, KeyboardInterrupt) as error:
        stopped = str(error) or "stopped"
    if run.rounds:
        print(run.table())
    elif not stopped:
        stopped = f"no round was over within {asked.seconds:g} s: --seconds SECONDS gives it more"
    if stopped:
        print(f"scripts/bench: {stopped}", file=sys.stderr)
    return 1 if stopped else 0
