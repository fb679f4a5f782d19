"""Seconds to the first text: `run` that loads, `run` on a warm engine, the server, and llama-server asked by curl.

  first_token.py -m MODEL.gguf --llama-server bin/llama-server      every part, in about four minutes for 1.5B
  first_token.py -m MODEL.gguf --part short --rounds 3              short prompts alone, three times

All of a round go in an order that is drawn, and figures are medians with their range. `same` is a prompt that was asked
before, `new` one that was not. `chat` goes on with a conversation of 3 000 tokens after the engine has ended, and
`paste` sends 1 500 tokens that were read ahead for 20 s while a person typed. Each has a row without what saves time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from two_servers import LOCALSPEC, llama_server, localspec_server

from localspec.engine.events import Committed
from localspec.settings.request import LoadSettings, Message, Request, Sampling
from localspec.worker.client import Worker

PARTS = ("short", "chat", "paste")
N = "8"  # tokens of an answer
TYPING = 20.0  # seconds
STORY = "The river runs past the old mill, and the miller's daughter counts the boats that come down from the hills. "
ASKED = "Name three colours."


class Bench:
    """One model, and the seconds that were measured, by what was done."""

    def __init__(self, model: str, program: str | None, folder: Path, rounds: int) -> None:
        self.model, self.program, self.folder, self.rounds = model, program, folder, rounds
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.random = Random(0)

    def env(self, home: str, **more: str) -> dict[str, str]:
        """Return an environment with a home of its own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCALSPEC_")}
        return {**kept, "LOCALSPEC_HOME": str(self.folder / home), **more}

    def run(self, home: str, *words: str, **more: str) -> float:
        """Return the seconds until `run` writes its first byte."""
        command = [*LOCALSPEC, "run", "-q", "-m", self.model, "-d", "none", "--temp", "0", "-n", N, *words]
        return first_byte(command, self.env(home, **more))

    def new(self) -> str:
        """Return a short prompt that was not asked before."""
        return f"Name {self.random.randint(3, 99)} things that begin with {self.random.choice('abcdefghijklmnoprst')}."

    def note(self, what: str, act: Callable[[], float]) -> None:
        """Measure something once."""
        self.seconds[what].append(act())

    def short(self) -> None:
        """Short prompts."""
        with self.servers() as (ours, theirs):
            self.run("warm", "--keep-alive", "10m", "--no-save", ASKED)
            acts: dict[str, Callable[[], float]] = {
                "python -c pass": lambda: first_byte([sys.executable, "-c", "print()"], self.env("warm")),
                "run, the model is loaded": lambda: self.run("cold", "--no-save", self.new()),
                "run, warm, same": lambda: self.run("warm", "--no-save", ASKED),
                "run, warm, new": lambda: self.run("warm", "--no-save", self.new()),
            }
            for name, url in (("serve", ours), ("llama-server", theirs)):
                if url:
                    asked(url, ASKED)
                    acts[f"curl to {name}, same"] = lambda url=url: asked(url, ASKED)
                    acts[f"curl to {name}, new"] = lambda url=url: asked(url, self.new())
            for _ in range(self.rounds):
                for what in self.random.sample(sorted(acts), len(acts)):
                    self.note(what, acts[what])
        subprocess.run([*LOCALSPEC, "stop"], env=self.env("warm"), check=False, capture_output=True)

    def chat(self) -> None:
        """A conversation of 3 000 tokens that goes on, each time in a new engine."""
        text = self.folder / "text"
        text.write_text(STORY * 125)
        self.run("talk", "-f", str(text), "Who counts?")
        for i in range(self.rounds):
            self.note("run -c, 3 000 tokens, from disk", lambda i=i: self.run("talk", "-c", f"Say {i}."))
        self.note("run -c, 3 000 tokens, read anew", lambda: self.run("talk", "-c", "Say x.", LOCALSPEC_CACHE_DISK="0"))

    def paste(self) -> None:
        """A paste of 1 500 tokens that is read ahead while a person types."""
        sampling = Sampling(temperature=0.0)
        with Worker() as worker:
            for _ in worker.load(LoadSettings(str(Path(self.model).absolute()), name="model", cache_disk="0")):
                pass
            for i in range(1 + self.rounds):
                text = f"{i} {STORY * 62}"
                request = Request((Message("user", text),), max_tokens=int(N), sampling=sampling, shorten=True)
                if i:
                    self._read_ahead(worker, replace(request, reads_ahead=True))
                asked = replace(request, messages=(Message("user", f"{text} What does she count?"),))
                what = "paste of 1 500 tokens, read ahead" if i else "paste of 1 500 tokens, read when sent"
                self.note(what, lambda asked=asked: first_pass(worker, asked))

    def _read_ahead(self, worker: Worker, request: Request) -> None:
        ends = time.monotonic() + TYPING
        enter = threading.Timer(TYPING, worker.cancel)
        enter.start()
        for _ in worker.generate(request):
            pass
        enter.cancel()
        time.sleep(max(0.0, ends - time.monotonic()))

    @contextlib.contextmanager
    def servers(self) -> Iterator[tuple[str, str]]:
        """Serve the model by localspec and by llama-server; "" where there is none. Yields their addresses."""
        with contextlib.ExitStack() as stack:
            words = (self.model, "-d", "none", "--temp", "0")
            addresses = [stack.enter_context(localspec_server(self.env("serve"), *words)).url, ""]
            if self.program is not None:
                words = (self.program, "-m", self.model, "-c", "4096")
                addresses[1] = stack.enter_context(llama_server(*words)).url
            yield addresses[0], addresses[1]

    def table(self) -> str:
        """Return the medians with their range."""
        lines = ["| first text of | median (s) | range | n |", "|---|---|---|---|"]
        for what, found in self.seconds.items():
            lines.append(
                f"| {what} | {statistics.median(found):.2f} | {min(found):.2f} to {max(found):.2f} | {len(found)} |"
            )
        return "\n".join(lines) + "\n"


def first_byte(command: list[str], env: dict[str, str]) -> float:
    """Return the seconds until a command writes its first byte; wait for its end."""
    began = time.monotonic()
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    has_begun, seconds = process.stdout.read(1), time.monotonic() - began
    process.communicate()
    assert has_begun, command
    return seconds


def asked(url: str, text: str) -> float:
    """Return the seconds until curl has the first text of a chat's stream."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "max_tokens": int(N), "stream": True}
    command = ["curl", "-sN", f"{url}/v1/chat/completions", "-H", "Content-Type: application/json", "-d",
               json.dumps({**body, "temperature": 0})]  # fmt: skip
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    seconds = None
    for line in process.stdout:
        if seconds is None and line.startswith(b"data: {"):
            choices = json.loads(line[6:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                seconds = time.monotonic() - began
    process.wait()
    assert seconds is not None, url
    return seconds


def first_pass(worker: Worker, request: Request) -> float:
    """Return the seconds until the first token of an answer."""
    began, seconds = time.monotonic(), 0.0
    for event in worker.generate(request):
        if isinstance(event, Committed) and not seconds:
            seconds = time.monotonic() - began
    return seconds


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="a GGUF file")
    parser.add_argument("--llama-server", help="the program")
    parser.add_argument("--rounds", type=int, default=7, help="of short prompts; other parts have half of them")
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(str(Path(options.model).absolute()), options.llama_server, Path(folder), options.rounds)
        try:
            for part in options.part or PARTS:
                bench.rounds = options.rounds if part == "short" else max(1, options.rounds // 2)
                getattr(bench, part)()
        finally:
            sys.stdout.write(bench.table())


if __name__ == "__main__":
    main()
