"""`localspec serve` and llama-server on one model, each on a free port, and a client that reads as fast as it can."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

LOCALSPEC = [sys.executable, "-m", "localspec"]
START = 300.0  # seconds for a model to load
EVENT = b"data: "


@dataclass
class Streamed:
    """A streamed answer: when it was asked, when its first text came, when it ended, in seconds of one clock."""

    began: float
    first: float = 0.0
    ended: float = 0.0
    tokens: int = 0
    text: str = ""
    last: dict[str, Any] = field(default_factory=dict)  # the last event


@dataclass(frozen=True)
class Serving:
    """A server's address, and its process."""

    url: str
    pid: int

    def post(self, path: str, **body: Any) -> Any:
        """Return the answer to a request."""
        request = Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request) as response:
            return json.load(response)

    def stream(self, text: str, n: int, **body: Any) -> Streamed:
        """Ask a chat of one message for up to `n` tokens; raises OSError where the stream breaks off."""
        messages = [{"role": "user", "content": text}]
        given = {"messages": messages, "max_tokens": n, "stream": True, "stream_options": {"include_usage": True}}
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc)
        answer = Streamed(time.perf_counter())
        connection.request("POST", "/v1/chat/completions", json.dumps({**given, **body}),
                           {"Content-Type": "application/json"})  # fmt: skip
        with contextlib.closing(connection), connection.getresponse() as response:
            for line in response:
                if line.startswith(EVENT + b"{"):
                    self._take(answer, json.loads(line[len(EVENT) :]))
        answer.ended = time.perf_counter()
        if not answer.first or not answer.tokens:
            raise OSError(f"{self.url} gives no whole answer: {answer.last}")
        return answer

    def arrivals(self, path: str, **body: Any) -> list[float]:
        """Return when a request was sent, and when each part of its answer came."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc)
        times = [time.perf_counter()]
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        with contextlib.closing(connection), connection.getresponse() as response:
            if response.status != 200:
                raise OSError(f"{path} answers {response.status}: {response.read(200)!r}")
            while response.read1():
                times.append(time.perf_counter())
        return times

    @staticmethod
    def _take(answer: Streamed, event: dict[str, Any]) -> None:
        answer.last = event
        piece = "".join(choice["delta"].get("content") or "" for choice in event.get("choices") or ())
        if piece and not answer.first:
            answer.first = time.perf_counter()
        answer.text += piece
        answer.tokens = (event.get("usage") or {}).get("completion_tokens") or answer.tokens

    @property
    def children(self) -> list[int]:
        """The numbers of the processes that it started."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(word) for path in tasks for word in path.read_text().split()]


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process so far, without that of its children."""
    return 1e-9 * sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))


@contextlib.contextmanager
def localspec_server(home: Path | str, *words: str) -> Iterator[Serving]:
    """Serve a pair, named by the first of the words, by localspec with a home of its own."""
    command = [*LOCALSPEC, "serve", *words, "--port", "0", "--json", "-q"]
    with _ended(subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise OSError(f"localspec serve does not start: {' '.join(command)}")
        yield Serving(str(json.loads(line)["url"]), process.pid)


def environment(home: Path | str, **more: str) -> Mapping[str, str]:
    """Return this environment with localspec's settings replaced by those of a home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCALSPEC_")}
    return {**kept, "LOCALSPEC_HOME": str(home), **more}


@contextlib.contextmanager
def llama_server(program: Path | str, *words: str, name: str = "llama-server") -> Iterator[Serving]:
    """Serve by llama-server; raises OSError, with the name and what its log says, where it does not start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(program), *words, "--host", "127.0.0.1", "--port", str(port), "--offline"]
    with tempfile.TemporaryFile() as log, _ended(subprocess.Popen(command, stdout=log, stderr=log)) as process:
        serving, deadline = Serving(f"http://127.0.0.1:{port}", process.pid), time.monotonic() + START
        while not _answers(f"{serving.url}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                raise OSError(f"{name} does not start: {_reason(log.read().decode(errors='replace'))}")
            time.sleep(0.1)
        yield serving


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urlopen(url, timeout=5):
        return True
    return False


def _reason(log: str) -> str:
    """Return the first line of a log that names an error, or the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), (lines or ["its log is empty"])[-1])


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End a process, whatever happens."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
