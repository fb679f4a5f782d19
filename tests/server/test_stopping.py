"""A server that is told to go: an answer that does not end in time is told of it, as JSON and in a stream."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from localspec.chat.pair_loader import PairLoader
from localspec.server.app import Routes
from localspec.server.engine import LEAVING, ServerEngine
from localspec.server.listening import HttpServer, listener
from localspec.server.served_pairs import Pairs
from localspec.settings.request import LoadSettings
from tests.cli.fakes import FakeWorker
from tests.cli.harness import TIMEOUT, wait_for
from tests.server.test_fields import served


@contextmanager
def serving() -> Iterator[tuple[HttpServer, FakeWorker, http.client.HTTPConnection]]:
    worker = FakeWorker(pause=TIMEOUT)
    engine = ServerEngine(worker, PairLoader(worker), LoadSettings("/t.gguf", name="pair"), most_waiting=1)
    app = Routes(engine, Pairs(served("pair"))).app()
    told: list[int] = []
    server, door = HttpServer(app, engine, patience=0.0, on_wait=lambda: told.append(1)), listener("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([door],))
    thread.start()
    connection = http.client.HTTPConnection(*door.getsockname(), timeout=TIMEOUT)
    try:
        yield server, worker, connection
    finally:
        server.should_exit = True
        thread.join(TIMEOUT)
        engine.end(TIMEOUT)
    assert told == [1], "whoever waits for the answer is told of it"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_that_does_not_end_is_told_why(is_streamed: bool) -> None:
    """It was an empty body."""
    with serving() as (server, worker, connection):
        body = {"messages": [{"role": "user", "content": "Tell me"}], "stream": is_streamed}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        wait_for(lambda: worker.requests)
        if is_streamed:
            response = connection.getresponse()  # it has begun
            server.should_exit = True
            assert LEAVING in response.read().decode()
            return
        server.should_exit = True
        response = connection.getresponse()
        assert response.status == 503
        assert json.loads(response.read())["error"]["message"] == LEAVING
