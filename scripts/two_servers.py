"""`localspec serve` and llama-server on one model, each on a free port, for measurements of both."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

LOCALSPEC = [sys.executable, "-m", "localspec"]


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

    @property
    def children(self) -> list[int]:
        """Return the numbers of the processes that it started."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(word) for path in tasks for word in path.read_text().split()]


@contextlib.contextmanager
def localspec_server(env: Mapping[str, str], *words: str) -> Iterator[Serving]:
    """Serve a pair, named by the first of the words, by localspec."""
    command = [*LOCALSPEC, "serve", *words, "--port", "0", "--json", "-q"]
    with _ended(subprocess.Popen(command, env=env, stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        yield Serving(str(json.loads(process.stdout.readline())["url"]), process.pid)


@contextlib.contextmanager
def llama_server(program: str, *words: str) -> Iterator[Serving]:
    """Serve by llama-server, with one slot."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, *words, "--port", str(port), "-np", "1"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with _ended(subprocess.Popen(command, **quiet)) as process:
        url = f"http://127.0.0.1:{port}"
        while process.poll() is None:
            with contextlib.suppress(OSError), urlopen(f"{url}/health") as response:
                if response.status == 200:
                    break
            time.sleep(0.1)
        yield Serving(url, process.pid)


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End a process, whatever happens."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
