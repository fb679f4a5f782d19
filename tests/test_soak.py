"""scripts/soak: what its verdict counts. The soak itself takes hours and is not run here."""

import signal
import socket
import subprocess
import threading
from collections import Counter
from random import Random

import pytest
from soak import CLIENTS, EDGES, Soak
from soaking.clients import Client, Record, talk

ADDRESS = ("127.0.0.1", 1)


@pytest.fixture
def soak() -> Soak:
    return Soak(None, 1.0, 1, {})  # type: ignore[arg-type]  # no work begins that needs a machine


@pytest.mark.parametrize("error", [subprocess.TimeoutExpired("localspec pull", 240.0), OSError("no more memory")])
def test_a_work_that_dies_is_lost(soak: Soak, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise error

    monkeypatch.setattr(soak, "_harm", dies)
    assert soak.is_well
    (harm,) = (each for each in soak._threads(ADDRESS) if each.name == "harm")
    harm.start()
    harm.join()
    assert not soak.is_well
    assert f"harm: {type(error).__name__}" in soak.record.lost[0]


def test_who_takes_part(soak: Soak) -> None:
    assert Counter(each.name for each in soak._threads(ADDRESS)) == {
        "client": CLIENTS, "edge": EDGES, "run": 1, "chat": 1, "pull": 1, "harm": 1,
    }  # fmt: skip


def test_an_error_behind_a_sign_of_life_is_a_refusal() -> None:
    """The server has begun the answer, tells the error and breaks off, so that nobody takes it for the whole."""
    told = b'{"error":{"message":"the engine was killed"}}'
    parts = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (b" ", told))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + parts)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):  # what is left unread would reset the connection
                    pass

        threading.Thread(target=serve, daemon=True).start()
        given = (None, server.getsockname(), Record(), Random(1), threading.Event())
        assert Client(*given).whole() == "refused"  # type: ignore[arg-type]


class Same(Random):
    """Draws the first of everything, and SIGTERM of the signals; what it draws by bits differs."""

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return signal.SIGTERM if signal.SIGTERM in seq else seq[0]

    def uniform(self, a: float, b: float) -> float:
        return 0.0

    def choices(self, population, **_):  # type: ignore[no-untyped-def]
        return [population[0]]


class Ending:
    """Starts a program that has said its text, and then ends by SIGTERM as Python does at its end."""

    def start(self, *_: str, **streams: int) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(["sh", "-c", "echo a text; kill -TERM $$"], **streams)  # type: ignore[call-overload]
        process.wait()
        return process  # type: ignore[no-any-return]


def test_a_program_that_is_terminated_at_its_end_has_given_its_answer() -> None:
    """The answer must be kept, under a prompt that no other client has."""
    record = Record()
    for seed in (1, 2):
        over = threading.Event()
        over.wait = lambda _=0.0, over=over: over.set()  # type: ignore[method-assign, misc, assignment]
        talk(Ending(), record, Same(seed), over)  # type: ignore[arg-type]
    assert not record.lost
    assert [*record.said.values()] == ["a text", "a text"]
