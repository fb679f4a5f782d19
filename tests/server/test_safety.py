"""Who is answered: no page of another origin, no name that is not this machine's, and with a key nobody without it."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.server.guard import Rules
from localspec.server.listening import listener
from localspec.server.refusal import Refusal
from tests.cli.harness import TIMEOUT, assert_one_line, localspec, needs_pair, run
from tests.recorded import recorded_expressions
from tests.server.serving import Server, chat, serving

CHAT = "/v1/chat/completions"
PAGE = "https://evil.example"


def status(rules: Rules, path: str = CHAT, **headers: str) -> int:
    """Return the status that the rules refuse with, 200 if they do not."""
    try:
        rules.judge(path, {name.replace("_", "-"): value for name, value in headers.items()})
    except Refusal as refusal:
        return refusal.status
    return 200


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080"])
def test_names_of_this_machine(host: str) -> None:
    assert status(Rules(), host=host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "", "0.0.0.0", "::1"],
)
def test_a_name_that_was_made_to_lead_here(host: str) -> None:
    assert status(Rules(), host=host) == 403


@pytest.mark.parametrize(
    ("key", "headers", "code", "more"),
    [
        (None, {"host": "evil.example"}, "host", {}),
        (None, {"host": "localhost", "origin": PAGE}, "origin", {}),
        (None, {"host": "localhost", "sec-fetch-site": "same-site"}, "origin", {}),
        ("s3cret", {}, "invalid_api_key", {"WWW-Authenticate": "Bearer"}),
    ],
)
def test_a_refusal_has_a_word_for_programs(
    key: str | None, headers: dict[str, str], code: str, more: dict[str, str]
) -> None:
    with pytest.raises(Refusal) as caught:
        Rules(key).judge(CHAT, headers)
    assert (caught.value.code, caught.value.headers) == (code, more)


def test_pages() -> None:
    """A page may ask if it is the server's own, or let in."""
    rules, host = Rules(origins=frozenset([PAGE])), "localhost:8080"
    assert status(Rules(), host=host, origin=PAGE) == 403
    assert status(Rules(), host=host, origin="null") == 403
    assert status(Rules(), host=host, origin="http://localhost:9090") == 403
    assert status(Rules(), host=host, origin="http://localhost:8080") == 200
    assert status(Rules(), host=host, sec_fetch_site="cross-site") == 403
    assert status(Rules(), host=host, origin="https://localhost:8080") == 200
    assert status(Rules(), host=host, sec_fetch_site="none") == 200
    assert status(Rules(), host=host, sec_fetch_site="same-origin") == 200
    assert status(Rules(origins=frozenset("*")), host=host, origin=PAGE) == 200
    assert status(rules, host=host, origin=PAGE, sec_fetch_site="cross-site") == 200
    assert status(rules, host=host, origin=f"{PAGE}.com") == 403
    ports = Rules(origins=frozenset(["http://localhost:*", "app://*"]))
    for origin, code in (
        ("http://localhost:3000", 200), ("app://obsidian.md", 200), ("http://localhost:3000/x", 403),
        ("http://localhost.evil:1", 403), ("https://localhost:3000", 403),
    ):  # fmt: skip
        assert status(ports, host=host, origin=origin) == code


def test_a_key() -> None:
    """With a key any name leads here, and nothing but the health is told without it."""
    rules = Rules(key="s3cret")
    assert status(rules, host="box.lan") == 401
    assert status(rules, host="box.lan", authorization="Bearer wrong") == 401
    assert status(rules, host="box.lan", authorization="s3cret") == 401
    assert status(rules, host="box.lan", authorization="Bearer s3cret\xe9") == 401
    assert status(rules, host="box.lan", authorization="Bearer s3cret") == 200
    assert status(rules, host="box.lan", x_api_key="s3cret") == 200, "as Anthropic's clients send it"
    assert status(rules, host="box.lan", x_api_key="wrong") == 401
    for path in ("/", "/health", "/v1/health"):
        assert status(rules, path, host="box.lan") == 200
    assert status(rules, host="box.lan", authorization="Bearer s3cret", origin=PAGE) == 403
    assert len(Rules().page_key) == 22, "128 bits"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--api-key", "s3cret", "--cors", PAGE) as server:
        yield server


@needs_pair
def test_the_rules_stand_before_every_path(server: Server) -> None:
    for method, path in (
        ("POST", CHAT),
        ("POST", "/v1/completions"),
        ("GET", "/v1/models"),
        ("GET", "/nowhere"),
        ("PUT", CHAT),
    ):
        found, told, _ = server.ask(method, path, chat() if method == "POST" else None)
        assert (found, told["error"]["code"]) == (401, "invalid_api_key")
    assert server.ask("GET", "/health")[0] == 200
    for path in ("/status/", "//status", "/ollama/status"):
        assert server.ask("GET", path)[0] == 401


@needs_pair
def test_a_page_that_was_let_in_can_read(server: Server) -> None:
    wanted = "authorization,content-type,x-stainless-os,x-api-key"  # as the package `openai` asks in a browser
    allowed = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
    found, _, headers = server.ask("OPTIONS", CHAT, headers=allowed)
    assert (found, headers["access-control-allow-origin"]) == (204, PAGE)
    assert "POST" in headers["access-control-allow-methods"]
    assert headers["access-control-allow-headers"] == wanted
    assert "authorization" in headers["access-control-allow-headers"]
    key = {"Authorization": "Bearer s3cret", "Origin": PAGE}
    found, answer, headers = server.ask("POST", CHAT, chat(max_tokens=2), key)
    assert (found, answer["usage"]["completion_tokens"]) == (200, 2)
    assert headers["access-control-allow-origin"] == PAGE
    found, _, headers = server.ask("OPTIONS", CHAT, headers={"Origin": "https://other.example"})
    assert (found, headers.get("access-control-allow-origin")) == (403, None)


@needs_pair
def test_a_body_has_a_limit(server: Server) -> None:
    """Told or not told beforehand."""
    key = {"Authorization": "Bearer s3cret"}
    found, told, _ = server.ask("POST", CHAT, b" " * (2**22 + 1), key)
    assert (found, told["error"]["code"]) == (413, "body_too_long")
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\n"
    with socket.create_connection(server.address, timeout=TIMEOUT) as opened:
        opened.sendall(f"{head}Content-Length: 99999999999999999999\r\n\r\n".encode())
        assert b" 413 " in opened.recv(100)
    with socket.create_connection(server.address, timeout=TIMEOUT) as opened:
        opened.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        for _ in range(65):
            opened.sendall(chunk)
        assert b" 413 " in opened.recv(100)


@needs_pair
@pytest.mark.parametrize(
    "raw", [b"\x16\x03\x01\x00\xa5", b"GET / HTTP/9\r\n\r\n", b"GET /" + b"a" * 100_000, b"\r\n" * 100 + b"\0" * 100]
)
def test_what_is_no_http(server: Server, raw: bytes) -> None:
    with socket.create_connection(server.address, timeout=TIMEOUT) as opened:
        opened.sendall(raw)
        opened.shutdown(socket.SHUT_WR)
        assert b" 200 " not in opened.recv(4096)
    assert server.ask("GET", "/health")[0] == 200


def test_other_machines_need_a_key() -> None:
    assert_one_line(run("serve", "--host", "0.0.0.0", "--port", "0"), 2, "needs a key", "--api-key KEY")


def test_wrong_options(tmp_path: Path) -> None:
    empty = tmp_path / "key"
    empty.write_text("\n")
    for words, told in (
        (("--api-key", ""), "empty"),
        (("--api-key-file", str(empty)), "empty"),
        (("--api-key", "a", "--api-key-file", str(empty)), "exclude"),
        (("--cors", "*"), "every page"),
        (("--cors", "localhost"), "no origin"),
        (("--cors", "http://*"), "no origin"),
        (("--host", "no.such.host.invalid"), "no address"),
        (("--host", "192.0.2.1"), "cannot listen"),
        (("--temp", "-1"), "--temp"),
        (("--method", "nonsense"), "nonsense"),
    ):
        assert_one_line(run("serve", "--port", "0", *words), 2, told)
    assert_one_line(run("serve", "--port", "0", "--api-key-file", str(tmp_path / "none")), 3, "--api-key-file")
    assert_one_line(run("serve", "--port", "0", "no-such-pair"), 3, "no-such-pair")


@needs_pair
def test_a_port_that_is_taken() -> None:
    """Told before a model loads."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert_one_line(localspec("serve", "storyteller", "--port", port), 7, f"port {port} is taken", "--port N")


@needs_pair
def test_a_key_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-a-file\nsecond line\n")
    with serving("--api-key-file", str(file)) as server:
        assert server.told["needs_key"]
        assert server.ask("GET", "/v1/models")[0] == 401
        assert server.ask("GET", "/v1/models", headers={"Authorization": "Bearer from-a-file"})[0] == 200


def test_an_address_of_another_machine_is_refused_with_one_of_this() -> None:
    """192.0.2.1 is kept for documents (RFC 5737): nobody has it."""
    with pytest.raises(UsageError, match=r"cannot listen at 192\.0\.2\.1:8080") as caught:
        listener("192.0.2.1", 8080)
    assert caught.value.hint == "--host 127.0.0.1"


test_what_is_recorded = recorded_expressions(__file__, Rules, status)
