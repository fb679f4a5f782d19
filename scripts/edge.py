"""Edge and cloud through slow networks, on one machine: one table of tokens a second and bytes a token.

  edge.py --target TARGET.gguf --draft DRAFT.gguf [--rtt 0,20,50,100] [--mbit 10] [-n 48] [--seconds 200]

A real `localspec serve` has the target. A proxy beside it delays what passes, so that the network is the only thing
that is not real. Both sides share the processors of this machine, and work in turns.

`stream` is the verifier alone, which sends text as it comes. `no drafts` asks it for each token. `auto` drafts with the
model at the edge, at a length that the planner chooses; `k=N` drafts so many each time. `copies` has no model at the
edge: it drafts from a prompt that is to be given back with one name changed, beside `edit, no drafts`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from delay_proxy import Network, running

from localspec.cli.edge import edge_settings
from localspec.engine.events import Committed, Returning, Started
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
COLUMNS = f"{'tok/s':>7} {'first s':>7} {'k':>5} {'La':>5} {'La/k':>5} {'calls/tok':>9} {'B up':>6} {'B down':>6}"
HEAD = f"{'rtt ms':>6} {'what':18} {COLUMNS}"


@dataclass(frozen=True, slots=True)
class Found:
    """One answer: tokens a second after the first token, seconds until that, and per round or token what was told."""

    name: str
    rate: float
    first: float
    k: float = 0.0
    accepted: float = 0.0
    calls: float = 1.0
    up: float = 0.0
    down: float = 0.0
    text: str = ""

    def row(self, rtt: float) -> str:
        """Return a line of the table."""
        share = self.accepted / self.k if self.k else 0.0
        numbers = f"{self.k:5.1f} {self.accepted:5.1f} {share:5.2f} {self.calls:9.2f} {self.up:6.1f} {self.down:6.1f}"
        return f"{rtt:6.0f} {self.name:18} {self.rate:7.2f} {self.first:7.2f} {numbers}"


@contextmanager
def serving(target: str, threads: int | None) -> Iterator[tuple[str, int]]:
    """Yield the address of a server of the target."""
    more = [] if threads is None else ["-t", str(threads)]
    command = [sys.executable, "-m", "localspec", "serve", "-m", target, "--port", "0", "--json", "-q", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
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


def answer(pair: LoadedPair, name: str, request: Request, speculation: Speculation) -> Found:
    """Measure one answer of an edge; what the network has cost before its first round is no part of it."""
    began, times, passes = 0.0, [], []
    for event in pair.answer(replace(request, speculation=speculation)):
        if isinstance(event, Started):
            began = time.perf_counter()
        elif isinstance(event, Committed):
            times.append(time.perf_counter())
            passes.append(event)
    n = sum(len(each.out) for each in passes[1:])
    rounds, ways = passes[1:], [each.way for each in passes[1:] if each.way is not None]
    drafted = [each for each in rounds if each.k]

    def mean(values: list[float]) -> float:
        return statistics.fmean(values) if values else 0.0

    return Found(
        name,
        n / (times[-1] - times[0]) if n else 0.0,
        times[0] - began,
        mean([each.k for each in drafted]),
        mean([each.n_accepted for each in drafted]),
        len(rounds) / n if n else 0.0,
        sum(way.up for way in ways) / n if n else 0.0,
        sum(way.down for way in ways) / n if n else 0.0,
        "".join(each.text for each in passes),
    )


def stream(port: int, name: str, text: str, n: int) -> Found:
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
    return Found(name, n_tokens / (times[-1] - times[0]), times[0] - began, down=size / n, text=said)


def contenders(asked_for: argparse.Namespace, port: int) -> Iterator[Found]:
    """Yield what each contender does over one network."""
    n, ks = asked_for.n, [int(each) for each in asked_for.k.split(",")]
    yield stream(port, "stream", TEXT, n)
    with edge(port, asked_for.draft, asked_for.threads) as pair:
        request = asked(TEXT, n)
        yield answer(pair, "no drafts", request, PLAIN)
        answer(pair, "", request, Speculation())  # it learns what is accepted, as the first answer of a chat does
        yield answer(pair, "auto", request, Speculation())
        for k in ks:
            yield answer(pair, f"k={k}", request, Speculation(method="draft-model", k=k))
    with edge(port, None, asked_for.threads) as pair:
        request = asked(EDIT, 2 * n)
        yield answer(pair, "edit, no drafts", request, PLAIN)
        answer(pair, "", request, Speculation())
        yield answer(pair, "copies", request, Speculation())


def measure(asked_for: argparse.Namespace) -> list[tuple[float, Found]]:
    """Print each line as it comes; return them all."""
    found, began = [], time.perf_counter()
    print(HEAD, flush=True)
    rate = None if asked_for.mbit is None else asked_for.mbit * 1e6 / 8
    with serving(asked_for.target, asked_for.threads) as address:
        for rtt in (float(each) for each in asked_for.rtt.split(",")):
            if time.perf_counter() - began > asked_for.seconds:
                print(f"{rtt:g} ms: not measured, the time is over", flush=True)
                continue
            with running(address, Network(rtt / 1e3, rate)) as port:
                for each in contenders(asked_for, port):
                    found.append((rtt, each))
                    print(each.row(rtt), flush=True)
    return found


def conclude(found: Sequence[tuple[float, Found]]) -> None:
    """Print what is promised: auto beside the best fixed k, copies beside none, and whether the texts agree."""
    for rtt in dict.fromkeys(rtt for rtt, _ in found):
        by = {each.name: each for at, each in found if at == rtt}
        best = max((each for name, each in by.items() if name.startswith("k=")), key=lambda each: each.rate)
        ratio, gain = by["auto"].rate / best.rate, by["copies"].rate / by["edit, no drafts"].rate
        texts = {by[name].text for name in by if name not in ("stream", "copies", "edit, no drafts")}
        alike = "one text" if len(texts) == 1 else f"{len(texts)} texts"
        print(f"{rtt:g} ms: auto is {ratio:.2f} of {best.name}, copies {gain:.2f} of no drafts; {alike}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--rtt", default="0,5,20,50,100", metavar="MS,...")
    parser.add_argument("--mbit", type=float, default=10.0, metavar="N")
    parser.add_argument("-k", default="2,4,8", metavar="N,...")
    parser.add_argument("-n", type=int, default=48, metavar="TOKENS")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no other network after that")
    conclude(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
