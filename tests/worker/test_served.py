"""A client of a scripted server whose answers break, or are none, and who leaves before it is connected."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from localspec.engine.events import Finished
from localspec.errors import NetworkError
from localspec.settings.jobs import ForkQuestion, Generate
from localspec.settings.request import Request
from localspec.worker.codec import event_wire
from localspec.worker.served import ServedWorker

REQUEST = Request(prompt="x")
FORK = ForkQuestion(REQUEST, (1, 2), (1, 3), seed=1)
WHOLE = json.dumps(event_wire(Finished("length", "", wall_ms=1.0, ttft_ms=1.0, peak_memory=0), 0)).encode()
RESET = struct.pack("ii", 1, 0)


class Scripted(BaseHTTPRequestHandler):
    """Sends `body` to any job. None: the connection is reset instead of an answer; "": it is closed."""

    body: bytes | str | None = WHOLE

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if isinstance(self.body, bytes):
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.body) + self.body.endswith(b"cut")))
            self.end_headers()
            self.wfile.write(self.body)
        elif self.body is None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def worker(request: pytest.FixtureRequest) -> Iterator[ServedWorker]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("", (Scripted,), {"body": getattr(request, "param", WHOLE)}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield ServedWorker(f"http://127.0.0.1:{server.server_address[1]}")
    server.shutdown()
    thread.join()
    server.server_close()


BROKEN = [None, "", b"", b"{", b"[1]", b"3", b"null", b"{} cut"]


@pytest.mark.parametrize("worker", [*BROKEN, b'{"type":"refused"}', b'{"type":"refused","status":"x"}'], indirect=True)
def test_a_broken_answer_is_one_line(worker: ServedWorker) -> None:
    with pytest.raises(NetworkError) as raised:
        list(worker.start(Generate(REQUEST)))
    assert "\n" not in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize("worker", BROKEN, indirect=True)
def test_a_broken_answer_to_a_question_is_one_line(worker: ServedWorker) -> None:
    """As of `race --server`, which asks where two answers fork."""
    with pytest.raises(NetworkError) as raised:
        list(worker.start(FORK))
    assert "\n" not in raised.value.message


def test_cancelled_before_the_first_event(worker: ServedWorker) -> None:
    events = worker.start(Generate(REQUEST))
    worker.cancel()
    assert [each.reason for each in events if isinstance(each, Finished)] == ["interrupted"]
    questions = worker.start(FORK)
    worker.cancel()
    assert not list(questions)


def test_cancelled_while_it_connects(worker: ServedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server would answer; the one who left is not told that."""
    connect = socket.create_connection

    def cancelled(*args: Any) -> socket.socket:
        worker.cancel()
        return connect(*args)

    monkeypatch.setattr(socket, "create_connection", cancelled)
    for _ in range(2):
        last = list(worker.start(Generate(REQUEST)))[-1]
        assert isinstance(last, Finished)
        assert last.reason == "interrupted"
        assert not list(worker.start(FORK))
    monkeypatch.undo()
    (last,) = worker.start(Generate(REQUEST))
    assert isinstance(last, Finished)
    assert last.reason == "length", "the next answer is not cancelled"
