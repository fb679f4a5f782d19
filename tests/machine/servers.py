"""RPC servers on loopback, each a process of its own: real second devices on a machine that has none."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """`localspec rpc-serve` on a free port."""

    def __init__(self, *, limit: int | None = None) -> None:
        """Start it; `limit` bytes are all the address space it may take."""
        self.endpoint = f"127.0.0.1:{free_port()}"
        port = self.endpoint.rpartition(":")[2]
        command = [sys.executable, "-m", "localspec", "rpc-serve", "--port", port, "--threads", "1", "--json"]
        if limit is not None:
            command = ["prlimit", f"--as={limit}", *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, start_new_session=True
        )
        assert self.process.stdout is not None
        self.told = json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        """End it without a word, and the process that computes in it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def servers(n: int, *, limit: int | None = None) -> Iterator[list[Server]]:
    """Start `n` servers and end them."""
    started: list[Server] = []
    try:
        for _ in range(n):
            started.append(Server(limit=limit))
        yield started
    finally:
        for server in started:
            server.close()
