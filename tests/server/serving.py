"""A real server on the bundled pair, and what raw clients of it need."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from tests.cli.harness import ROOT, TIMEOUT, children, environment, wait_for

LONG = "Once upon a time there was a little girl who lived in the forest."


class Server:
    """`localspec serve` on a free port; `url` is its address. Answers wait for others unless it `is_usual`."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        pair: str = "storyteller",
        is_usual: bool = False,
    ) -> None:
        one = () if is_usual or "--parallel" in arguments else ("--parallel", "1")
        command = [sys.executable, "-m", "localspec", "serve", pair, "--port", "0", "--json", *one, *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
        self.process = subprocess.Popen(command, env=environment(env), cwd=ROOT, **pipes)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1].decode()
        self.told: dict[str, Any] = json.loads(line)
        self.url: str = self.told["url"]
        self.address = (str(urlsplit(self.url).hostname), int(urlsplit(self.url).port or 0))

    @property
    def engine(self) -> int:
        (pid,) = children(self.process.pid)
        return pid

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Send one request; return status, JSON and headers. Bytes are sent as they are."""
        connection = http.client.HTTPConnection(*self.address, timeout=TIMEOUT)
        try:
            raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, raw, headers or {})
            response = connection.getresponse()
            content = response.read()
            told = {name.lower(): value for name, value in response.getheaders()}
            is_json = told.get("content-type", "").startswith("application/json")
            return response.status, json.loads(content) if content and is_json else content, told
        finally:
            connection.close()

    def post(self, path: str, **body: Any) -> Any:
        status, answer, _ = self.ask("POST", path, body)
        assert status == 200, answer
        return answer

    def read(self, path: str) -> bytes:
        with urlopen(self.url + path, timeout=TIMEOUT) as response:
            found: bytes = response.read()
            return found

    def open(self, path: str, **body: Any) -> socket.socket:
        """Send a request and return the socket, from which nothing was read."""
        raw = json.dumps(body).encode()
        opened = socket.create_connection(self.address, timeout=TIMEOUT)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
        opened.sendall(head.encode() + raw)
        return opened

    def wait_until_waiting(self, n: int) -> None:
        """Wait until `n` requests are in the queue, besides the one that is answered."""
        wait_for(lambda: self.queue() == (True, n))

    def queue(self) -> tuple[bool, int]:
        status, told, _ = self.ask("GET", "/health")
        assert status == 200
        return told["is_busy"], told["waiting"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it with a signal; return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)

    def close(self) -> str:
        """End it, whatever it does; return what it wrote to stderr."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.communicate()[1].decode()


@contextmanager
def serving(*arguments: str, **given: Any) -> Iterator[Server]:
    """Start a server, as `Server` takes it, and end it."""
    server = Server(*arguments, **given)
    try:
        yield server
    finally:
        server.close()


def chat(text: str = LONG, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}
