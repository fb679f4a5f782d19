"""`/v1/verify`: who may come in, what is said of what the server holds, and what hostile edges can do: nothing."""

import contextlib
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from localspec.errors import IncompatibleError, LocalspecError, NetworkError, NotFoundError, UsageError
from localspec.models.gguf.header import bare
from localspec.remote.connection import KEY, Address, Connection
from localspec.remote.messages import (
    MOST_IDS,
    VERSION,
    Bye,
    Cancel,
    Error,
    Fetch,
    Hello,
    Look,
    Prefix,
    Result,
    Verify,
    Welcome,
    digest_of,
    encode,
)
from localspec.remote.vocabulary import fetched, look, vocabulary_of
from localspec.server import verifying
from tests.cli.harness import PAIR, REAL, TIMEOUT, localspec, wait_for
from tests.server.certificates import self_made
from tests.server.serving import Server, chat, serving

TARGET = PAIR / "target-q8_0.gguf"
LINE = "Once upon a time"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake may take long beside other programs."""
    monkeypatch.setattr("localspec.remote.connection.OPENING", TIMEOUT)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--temp", "0") as server:
        yield server


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    opened = Connection.open(address(server))
    yield opened
    opened.close()


def address(server: Server, **more: str) -> Address:
    return Address(server.url.replace("http", "ws", 1), **more)


def first_round(connection: Connection, ids: tuple[int, ...] = (1, 2, 3)) -> Result:
    """Open a session, and return the verdict that draws its first token."""
    hello = Hello(VERSION, look(connection).vocabulary, seed=7, prompt_n=len(ids))
    assert isinstance(connection.ask(hello), Welcome)
    connection.send(Prefix(0, ids))
    reply = connection.ask(Verify(1, len(ids), digest_of(ids)))
    assert isinstance(reply, Result)
    return reply


def test_what_it_holds(connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its vocabulary is fetched once, and is that of its file."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    facts = look(connection)
    assert facts.vocabulary == vocabulary_of(bare(TARGET))[0]
    assert (facts.name, facts.bytes) == ("storyteller", TARGET.stat().st_size)
    assert facts.max_rows > 1
    path = fetched(connection, facts)
    assert path.read_bytes() == bare(TARGET)
    connection.close()
    assert fetched(connection, facts) == path


def test_a_damaged_vocabulary_is_not_kept(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    facts = msgspec.structs.replace(look(connection), vocabulary="0" * 64)
    with pytest.raises(LocalspecError, match="damaged"):
        fetched(connection, facts)
    assert not list(tmp_path.rglob("*.gguf"))


def test_a_round(connection: Connection) -> None:
    """The same session gives the same verdict; asked twice, it is told twice and drawn once."""
    found = first_round(connection)
    assert found.length == 4
    connection.send(Verify(1, 3, digest_of((1, 2, 3))))
    again = connection.receive(TIMEOUT)
    assert isinstance(again, Result)
    assert (again.node, again.token, again.length) == (found.node, found.token, found.length)


def test_rounds_wait_for_no_answers() -> None:
    """Four answers are under way, for as long as an edge's text takes."""
    with serving("--parallel", "4", "--temp", "0.8", "--ctx", "4096") as server:
        endless = chat(stream=True, max_tokens=3000, ignore_eos=True)
        streams = [server.open("/v1/chat/completions", **endless) for _ in range(4)]
        for stream in streams:
            while b"delta" not in stream.recv(1 << 16):
                pass
        opened = Connection.open(address(server))
        found = first_round(opened)
        ids = (1, 2, 3, found.token)
        for number in range(2, 6):
            opened.send(Prefix(len(ids) - 1, ids[-1:]))
            reply = opened.ask(Verify(number, len(ids), digest_of(ids)))
            assert isinstance(reply, Result)
            ids = (*ids, reply.token)
        assert server.queue() == (True, 0)
        assert int(re.findall(rb"requests_answered_now (\d+)", server.read("/metrics"))[0]) == 4
        opened.close()
        for stream in streams:
            stream.close()


@pytest.mark.parametrize(
    ("hello", "told"),
    [
        (Hello(VERSION + 1, "v"), "version"),
        (Hello(VERSION, "0" * 64), "another model"),
        (Hello(VERSION, "v", model="0"), "another model"),
    ],
)
def test_another_version_or_model_is_one_line(connection: Connection, hello: Hello, told: str) -> None:
    with pytest.raises(IncompatibleError, match=told) as raised:
        connection.ask(hello)
    assert raised.value.hint


def test_a_round_without_a_session_is_refused(connection: Connection) -> None:
    with pytest.raises(UsageError, match="say hello first"):
        connection.ask(Verify(1, 0, 0))


def test_a_text_longer_than_the_context_is_refused(connection: Connection) -> None:
    facts = look(connection)
    connection.ask(Hello(VERSION, facts.vocabulary))
    with pytest.raises(UsageError, match="longer than the context"):
        connection.ask(Prefix(0, (1,) * (facts.n_ctx + 1)))


def frames(rng: random.Random) -> Iterator[bytes | str]:
    """Yield what no edge sends: bytes of chance, broken messages, values out of range, messages out of turn."""
    whole = [
        encode(Hello(VERSION, "x" * 64)),
        encode(Prefix(5, tuple(range(40)))),
        encode(Verify(3, 9, 4, (1, 2), (0, 7), q=b"abc")),
        encode(Verify(2**52, 2**52, 2**63, tuple(range(1000)))),
        encode(Cancel(99)),
        encode(Bye()),
        encode(Fetch(2**40)),
        encode(Look(2**40)),
    ]
    while True:
        data = bytearray(rng.choice(whole))
        kind = rng.randrange(5)
        if kind == 0:
            yield rng.randbytes(rng.randrange(200))
        elif kind == 1:
            yield bytes(data[: rng.randrange(len(data))])
        elif kind == 2:
            data[rng.randrange(len(data))] = rng.randrange(256)
            yield bytes(data)
        elif kind == 3:
            yield bytes(data)
        else:
            yield rng.choice(
                ["text", b"\xdd\xff\xff\xff\xff" + b"\x00" * 50, b"\x91" * 500, encode(Prefix(0, (1,) * 9000))]
            )


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_session_leaves_a_line_where_it_begins_and_where_it_ends() -> None:
    """One that says goodbye, one that leaves without, and the one that takes it up again."""
    with serving("--temp", "0") as server:
        first = Connection.open(address(server))
        first_round(first)
        first.send(Bye())
        first_round(first)
        first.close()
        hello = Hello(VERSION, "", session="a" * 22, prompt_n=3)
        again = Connection.open(address(server))
        assert isinstance(again.ask(msgspec.structs.replace(hello, vocabulary=look(again).vocabulary)), Welcome)
        again.close()
        edge = Connection.open(address(server))
        edge.ask(Hello(VERSION, look(edge).vocabulary))  # as before passes are timed
        edge.close()
        server.process.send_signal(signal.SIGINT)
        said = server.process.communicate(timeout=TIMEOUT)[1].decode()
    assert "a measurement by an edge begins: the time of passes" in said
    assert "a measurement by an edge ended: 0 rounds" in said
    told = re.findall(r"session (\d) of an edge (begins|goes on|ended): (a prompt of|\d rounds?)", said)
    assert [one for one in told if one[0] == "1"] == [("1", "begins", "a prompt of"), ("1", "ended", "1 round")]
    assert [one for one in told if one[0] == "2"] == [("2", "begins", "a prompt of"), ("2", "ended", "1 round")]
    assert [one for one in told if one[0] == "3"] == [("3", "goes on", "a prompt of"), ("3", "ended", "0 rounds")]


def test_hostile_frames_change_nothing(server: Server) -> None:
    """200 frames over as many connections as it takes: no crash, no growth, and the next edge is served."""
    rng = random.Random(49)
    wrong = frames(rng)
    process = server.process.pid

    def send(n: int) -> None:
        sent = 0
        while sent < n:
            with connect(address(server).url + "/v1/verify", compression=None, proxy=None) as edge:
                for _ in range(verifying.MOST_WRONG):
                    sent += 1
                    try:
                        edge.send(next(wrong))
                    except Exception:  # it was closed, which is an answer
                        break

    send(100)
    engine, before = server.engine, (resident(process), server.descriptors())
    send(200)
    wait_for(lambda: server.descriptors() <= before[1])
    assert resident(process) - before[0] < 8 << 20
    assert server.engine == engine
    edge = Connection.open(address(server))
    assert first_round(edge).length == 4
    edge.close()


def test_frames_of_a_megabyte_are_read_and_longer_ones_cut_the_line(connection: Connection) -> None:
    connection.send(Prefix(0, (2**31 - 1,) * MOST_IDS))
    reply = connection.receive(TIMEOUT)
    assert isinstance(reply, Error)
    with contextlib.suppress(ConnectionClosed):  # it may be cut before all is sent
        connection._socket.send(bytes(5 << 20))
    with pytest.raises(NetworkError):
        connection.ask(Look(VERSION))


def test_too_many_edges_are_refused(server: Server) -> None:
    opened = [Connection.open(address(server)) for _ in range(verifying.MOST_EDGES)]
    with pytest.raises(NetworkError, match="no room"):
        Connection.open(address(server))
    for each in opened:
        each.close()
    wait_for(lambda: _opens(server))


def _opens(server: Server) -> bool:
    try:
        Connection.open(address(server)).close()
    except NetworkError:
        return False
    return True


def test_a_page_of_another_origin_may_not_ask(server: Server) -> None:
    with pytest.raises(Exception, match="403"):
        connect(address(server).url + "/v1/verify", origin="https://evil.example", proxy=None)  # type: ignore[arg-type]


def test_other_paths_have_no_socket(server: Server) -> None:
    with pytest.raises(Exception, match="40"):
        connect(address(server).url + "/v1/chat/completions", proxy=None)


def test_key_and_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the key, with a wrong one, without the certificate, without TLS: one line each. With both: served."""
    certificate, key = self_made(tmp_path)
    file = tmp_path / "api-key"
    file.write_text("secret\n")
    with serving("--api-key", "secret", "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)) as server:
        assert server.url.startswith("https://")
        monkeypatch.delenv(KEY, raising=False)
        safe = {"ca": str(certificate)}
        with pytest.raises(NetworkError, match="wants its API key") as raised:
            Connection.open(address(server, **safe))
        assert KEY in raised.value.hint
        monkeypatch.setenv(KEY, "wrong")
        with pytest.raises(NetworkError, match="does not take this key"):
            Connection.open(address(server, **safe))
        with pytest.raises(NetworkError, match="certificate") as raised:
            Connection.open(address(server, key_file=str(file)))
        assert "--verifier-ca" in raised.value.hint
        with pytest.raises(NetworkError, match=r"cannot be reached|WebSocket|gone"):
            Connection.open(Address(address(server).url.replace("wss", "ws"), str(file)))
        edge = Connection.open(address(server, key_file=str(file), **safe))
        assert first_round(edge).length == 4
        edge.close()
        monkeypatch.setenv(KEY, "secret")
        Connection.open(address(server, **safe)).close()


def test_a_key_and_a_certificate_that_come_through_pipes(tmp_path: Path) -> None:
    """As from the shell's <(command). Only the command has the pipes, and each can be read once."""
    certificate, key = self_made(tmp_path)
    line = f'exec "$@" --verifier-key-file <(echo secret) --verifier-ca <(cat {certificate})'
    with serving("--api-key", "secret", "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)) as server:
        words = ["run", "--no-save", "-n", "3", "Once", "--verifier", address(server).url]
        ended = localspec(*words, program=["bash", "-c", line, "bash", *REAL])
    assert (ended.returncode, bool(ended.stdout)) == (0, True), ended.stderr.decode()


def test_files_that_hold_no_key_or_certificate(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(UsageError, match="no key"):
        Connection.open(Address("ws://127.0.0.1:1", key_file=str(empty)))
    with pytest.raises(NotFoundError, match="cannot be read"):
        Connection.open(Address("ws://127.0.0.1:1", key_file=str(tmp_path / "none")))
    with pytest.raises(UsageError, match="holds no certificates"):
        Connection.open(Address("wss://127.0.0.1:1", ca=str(empty)))
    with pytest.raises(NotFoundError, match="cannot be read"):
        Connection.open(Address("wss://127.0.0.1:1", ca=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("url", "told"),
    [("ws://127.0.0.1:1", "cannot be reached: Connection refused"), ("ws://nobody.invalid:80", "no machine called")],
)
def test_nobody_there_is_one_line(url: str, told: str) -> None:
    with pytest.raises(NetworkError, match=told) as raised:
        Connection.open(Address(url))
    assert raised.value.hint
