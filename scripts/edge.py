"""Edge and cloud through slow networks, on one machine: one table of tokens a second and bytes a token.

  edge.py --target TARGET.gguf --draft DRAFT.gguf [--rtt 0,5,20,50,100] [--mbit 10] [-n 32] [--json FILE]

A real `localspec serve` has the target. A proxy beside it delays what passes, so that the network is the only thing
that is not real. Each side has half of this machine's processors, as two machines would; `--together`: both have all.

`stream` is the verifier alone, which sends text as it comes. `no drafts` asks it for each token. `auto` drafts with the
model at the edge, at a length that the planner chooses; `k=N` drafts so many each time. `waits` does the same without
reading on while a verdict is under way. `copies` has no model at the edge: it drafts from a prompt that is to be given
back with one name changed, beside `edit, no drafts`.

Each line is written to `--json` as it comes. The same command goes on where it was stopped, by Ctrl-C, by `--seconds`
or by a power cut; lines that are there are not measured again.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from delay_proxy import Network, running

from localspec.cli.settings import edge_settings
from localspec.engine.events import Committed, Returning, Started
from localspec.remote.ahead import DraftingOn
from localspec.session.loaded_pair import LoadedPair
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation

TEXT = "Write a Python function that merges two sorted lists into one sorted list, with a docstring and a test."
CODE = '''def total_price(items, rate):
    """Return what all items cost together, with tax."""
    total = 0.0
    for item in items:
        price = item["price"] * item["count"]
        if item.get("discount"):
            price -= price * item["discount"]
        total += price
    return total * (1.0 + rate)
'''
EDIT = f"Give this function back unchanged, but call it `sum_of_prices`:\n\n```python\n{CODE}```"
PLAIN = Speculation(method="plain", k=0)
COLUMNS = f"{'tok/s':>7} {'first s':>7} {'k':>5} {'La':>5} {'La/k':>5} {'calls/tok':>9} {'B up':>6} {'B down':>6} "
COLUMNS += f"{'ahead':>5} {'kept':>5}"
HEAD = f"{'rtt ms':>6} {'what':18} {COLUMNS}"


@dataclass(frozen=True, slots=True)
class Found:
    """One answer: tokens a second after the first token, seconds until that, and per round or token what was told.

    `ahead` are the passes of the draft model while verdicts were under way, `kept` the drafted tokens that took none.
    """

    rtt: float  # milliseconds
    name: str
    rate: float
    first: float
    k: float = 0.0
    accepted: float = 0.0
    calls: float = 1.0
    up: float = 0.0
    down: float = 0.0
    ahead: int = 0
    kept: int = 0
    text: str = ""

    def row(self) -> str:
        """Return a line of the table."""
        share = self.accepted / self.k if self.k else 0.0
        numbers = f"{self.k:5.1f} {self.accepted:5.1f} {share:5.2f} {self.calls:9.2f} {self.up:6.1f} {self.down:6.1f}"
        ahead = f"{self.ahead:5d} {self.kept:5d}"
        return f"{self.rtt:6.0f} {self.name:18} {self.rate:7.2f} {self.first:7.2f} {numbers} {ahead}"


@dataclass(slots=True)
class Table:
    """What was measured, kept in a file. `ends` is when no other line is begun."""

    file: Path | None
    ends: float
    found: list[Found]

    @staticmethod
    def of(asked_for: argparse.Namespace) -> Table:
        """Return the table with what the file holds of it."""
        file = None if asked_for.json is None else Path(asked_for.json)
        lines = json.loads(file.read_text("utf-8")) if file is not None and file.exists() else []
        return Table(file, time.monotonic() + asked_for.seconds, [Found(**each) for each in lines])

    def lacks(self, rtt: float, *names: str) -> bool:
        """Whether one of these lines is to be measured now."""
        known = {(each.rtt, each.name) for each in self.found}
        return any((rtt, name) not in known for name in names) and time.monotonic() < self.ends

    def add(self, found: Found) -> None:
        """Print a line and keep it."""
        print(found.row(), flush=True)
        self.found.append(found)
        if self.file is not None:
            new = self.file.with_suffix(".new")
            new.write_text(json.dumps([asdict(each) for each in self.found], indent=1), "utf-8")
            new.replace(self.file)


def halves(*, together: bool) -> tuple[set[int], set[int]]:
    """Return the processors of the verifier and of the edge."""
    every = sorted(os.sched_getaffinity(0))
    if together or len(every) < 2:
        return set(every), set(every)
    middle = len(every) // 2
    return set(every[:middle]), set(every[middle:])


@contextmanager
def serving(target: str, threads: int | None, processors: set[int]) -> Iterator[tuple[str, int]]:
    """Yield the address of a server of the target, on these processors."""
    more = [] if threads is None else ["-t", str(threads)]
    command = [sys.executable, "-m", "localspec", "serve", "-m", target, "--port", "0", "--json", "-q", *more]
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)  # it inherits them
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    os.sched_setaffinity(0, own)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        yield "127.0.0.1", int(url.rpartition(":")[2])
    finally:
        process.terminate()
        process.wait()


@contextmanager
def edge(port: int, draft: str | None, threads: int | None) -> Iterator[LoadedPair]:
    """Yield an edge of the verifier at a port."""
    settings = edge_settings(LoadSettings("", verifier=f"ws://127.0.0.1:{port}", threads=threads), draft)
    loading = Returning(load(settings, lambda: False))
    for _ in loading:
        pass
    try:
        yield loading.result
    finally:
        loading.result.close()


def asked(text: str, n: int) -> Request:
    """Return the request that all contenders answer, at temperature 0: their texts are one."""
    return Request(messages=(Message("user", text),), max_tokens=n, sampling=Sampling(temperature=0.0, seed=1))


def answer(pair: LoadedPair, rtt: float, name: str, request: Request, speculation: Speculation) -> Found:
    """Measure one answer of an edge; what the network has cost before its first round is no part of it."""
    began, times, passes = 0.0, [], []
    for event in pair.answer(replace(request, speculation=speculation)):
        if isinstance(event, Started):
            began = time.perf_counter()
        elif isinstance(event, Committed):
            times.append(time.perf_counter())
            passes.append(event)
    rounds, ways = passes[1:], [each.way for each in passes[1:] if each.way is not None]
    n, drafted = max(sum(len(each.out) for each in rounds), 1), [each for each in rounds if each.k]

    def mean(values: list[int]) -> float:
        return statistics.fmean(values) if values else 0.0

    return Found(
        rtt,
        name,
        n / (times[-1] - times[0]) if rounds else 0.0,
        times[0] - began,
        mean([each.k for each in drafted]),
        mean([each.n_accepted for each in drafted]),
        len(rounds) / n,
        sum(way.up for way in ways) / n,
        sum(way.down for way in ways) / n,
        sum(way.n_ahead for way in ways),
        sum(way.n_ready for way in ways),
        "".join(each.text for each in passes),
    )


def stream(port: int, rtt: float, name: str, text: str, n: int) -> Found:
    """Measure the verifier alone, as any client of its chat sees it."""
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": n, "stream": True, "temperature": 0}
    body["speculation"] = {"k": 0}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    began, times, size = time.perf_counter(), [], 0
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    said = ""
    for line in connection.getresponse():
        size += len(line)
        if line.startswith(b"data: {"):
            delta: Any = json.loads(line[6:])["choices"][0]["delta"]
            if delta.get("content"):
                times.append(time.perf_counter())
                said += delta["content"]
    connection.close()
    n_tokens = max(n - 1, 1)
    return Found(rtt, name, n_tokens / (times[-1] - times[0]), times[0] - began, down=size / n, text=said)


@contextmanager
def waiting() -> Iterator[None]:
    """Let no edge read on while a verdict is under way."""
    DraftingOn.is_on = False
    try:
        yield
    finally:
        DraftingOn.is_on = True


def with_drafts(table: Table, rtt: float, port: int, asked_for: argparse.Namespace) -> None:
    """Measure an edge with a draft model, reading on and waiting in turns."""
    shapes = {"auto": Speculation()}
    shapes |= {f"k={k}": Speculation(method="draft-model", k=int(k)) for k in asked_for.k.split(",")}
    names = [name for shape in shapes for name in (shape, f"{shape}, waits")]
    if not table.lacks(rtt, "no drafts", *names):
        return
    with edge(port, asked_for.draft, asked_for.threads) as pair:
        request = asked(TEXT, asked_for.n)
        measured: dict[str, Callable[[], Found]] = {
            "no drafts": partial(answer, pair, rtt, "no drafts", request, PLAIN),
        }
        if table.lacks(rtt, "auto", "auto, waits"):
            answer(pair, rtt, "", request, Speculation())  # it learns what is accepted, as in a chat's first answer
        for name in names:
            measured[name] = partial(answer, pair, rtt, name, request, shapes[name.removesuffix(", waits")])
        for name, measure_it in measured.items():
            if table.lacks(rtt, name):
                with waiting() if name.endswith("waits") else nullcontext():
                    table.add(measure_it())


def with_copies(table: Table, rtt: float, port: int, asked_for: argparse.Namespace) -> None:
    """Measure an edge without any model, which is to give a text back with a change."""
    if not table.lacks(rtt, "edit, no drafts", "copies"):
        return
    with edge(port, None, asked_for.threads) as pair:
        request = asked(EDIT, 2 * asked_for.n)
        if table.lacks(rtt, "edit, no drafts"):
            table.add(answer(pair, rtt, "edit, no drafts", request, PLAIN))
        if table.lacks(rtt, "copies"):
            answer(pair, rtt, "", request, Speculation())
            table.add(answer(pair, rtt, "copies", request, Speculation()))


def measure(asked_for: argparse.Namespace) -> Table:
    """Print each line as it comes; return the table."""
    table = Table.of(asked_for)
    print(HEAD, *(each.row() for each in table.found), sep="\n", flush=True)
    rate = None if asked_for.mbit is None else asked_for.mbit * 1e6 / 8
    of_verifier, of_edge = halves(together=asked_for.together)
    threads = asked_for.threads or (None if asked_for.together else len(of_verifier))
    asked_for.threads = asked_for.threads or (None if asked_for.together else len(of_edge))
    with serving(asked_for.target, threads, of_verifier) as address:
        os.sched_setaffinity(0, of_edge)
        for rtt in (float(each) for each in asked_for.rtt.split(",")):
            with running(address, Network(rtt / 1e3, rate)) as port:
                if table.lacks(rtt, "stream"):
                    table.add(stream(port, rtt, "stream", TEXT, asked_for.n))
                with_drafts(table, rtt, port, asked_for)
                with_copies(table, rtt, port, asked_for)
    return table


def conclude(found: Sequence[Found]) -> None:
    """Print what is promised: auto beside the best fixed k, copies beside none, reading on, whether texts agree."""
    for rtt in dict.fromkeys(each.rtt for each in found):
        by = {each.name: each for each in found if each.rtt == rtt}
        fixed = [each for name, each in by.items() if name.startswith("k=") and not name.endswith("waits")]
        told = []
        if "auto" in by and fixed:
            best = max(fixed, key=lambda each: each.rate)
            told.append(f"auto is {by['auto'].rate / best.rate:.2f} of {best.name}")
        if {"copies", "edit, no drafts"} <= by.keys():
            told.append(f"copies are {by['copies'].rate / by['edit, no drafts'].rate:.2f} of no drafts")
        for name, each in by.items():
            if f"{name}, waits" in by:
                told.append(f"reading on makes {each.rate / by[f'{name}, waits'].rate:.2f} of {name}")
        texts = {each.text for name, each in by.items() if name not in ("stream", "copies", "edit, no drafts")}
        told.append("one text" if len(texts) == 1 else f"{len(texts)} texts")
        print(f"{rtt:g} ms: {'; '.join(told)}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--rtt", default="0,5,20,50,100", metavar="MS,...")
    parser.add_argument("--mbit", type=float, default=10.0, metavar="N")
    parser.add_argument("-k", default="4,8", metavar="N,...")
    parser.add_argument("-n", type=int, default=32, metavar="TOKENS")
    parser.add_argument("--threads", type=int, help="of each side; at first all processors that it has")
    parser.add_argument("--together", action="store_true", help="both sides have all processors")
    parser.add_argument("--seconds", type=float, default=540.0, help="begin no other line after that")
    parser.add_argument("--json", metavar="FILE", help="keep all lines here, and go on where they end")
    with suppress(KeyboardInterrupt):
        conclude(measure(parser.parse_args()).found)


if __name__ == "__main__":
    main()
