"""How the hub is asked: when a connection is tried first, how long each question may take, what bounds an answer."""

import importlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import HfApi, constants, get_session

from localspec.errors import NetworkError
from localspec.models.hub import remote
from localspec.models.hub.files import Listing, RepoFile
from localspec.models.hub.remote import Hub
from tests.hub.machine import Machine

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
OLD = 30.0


class Asked(Exception):
    """Ends a question that a test only looks at."""


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({}, [2.0]),
        ({"HF_HUB_DOWNLOAD_TIMEOUT": "30"}, [OLD]),
        ({"HTTP_PROXY": "http://proxy"}, [2.0]),
        ({"HTTPS_PROXY": "http://proxy"}, []),
        ({"ALL_PROXY": "http://proxy"}, []),
        ({"ALL_PROXY": "http://proxy", "NO_PROXY": "hub.example"}, [2.0]),
    ],
    ids=str,
)
def test_a_connection_is_tried_once_where_there_is_no_proxy(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], seconds: list[float]
) -> None:
    asked: list[float] = []
    for name in (*PROXIES, "HF_HUB_DOWNLOAD_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, text in env.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", OLD)
    monkeypatch.setattr(remote, "_answers", lambda _endpoint, seconds: not asked.append(seconds))
    hub = Hub("https://hub.example")
    hub.reach()
    hub.reach()
    assert asked == seconds


def test_a_short_time_of_the_hubs_does_not_shorten_the_first_try(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "1")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1.0)
    monkeypatch.setattr(remote, "_answers", lambda _endpoint, seconds: bool(asked.append(seconds)))
    with pytest.raises(NetworkError, match="offline"):
        Hub("https://hub.example").reach()
    assert asked == [2.0]


@pytest.mark.parametrize(
    ("endpoint", "port"), [("https://h.example", 443), ("http://h.example", 80), ("https://h.example:81", 81)]
)
def test_the_port_of_an_address(monkeypatch: pytest.MonkeyPatch, endpoint: str, port: int) -> None:
    asked: list[Any] = []

    def connect(*args: Any, **options: Any) -> Any:
        asked.append((args, options))
        raise OSError

    monkeypatch.setattr(socket, "create_connection", connect)
    assert not remote._answers(endpoint, 1.0)
    assert asked == [((("h.example", port),), {"timeout": 1.0})]


def test_each_question_ends_after_the_time_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float | None] = []

    def ask(*_: Any, timeout: float | None = None, **more: Any) -> Any:
        asked.append(timeout)
        raise Asked

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", OLD)
    monkeypatch.setattr(HfApi, "model_info", ask)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", ask)
    session = SimpleNamespace(stream=ask)
    hub, file = Hub("http://hub.example"), RepoFile("x.gguf", 1, None)
    monkeypatch.setattr(hub, "reach", lambda: None)
    listing = Listing("a/b", "main", "c" * 40, (file,))
    with pytest.raises(Asked):
        hub.listing("a/b", None)
    with pytest.raises(Asked):
        hub.check(listing, file)
    monkeypatch.setattr(remote, "_session", lambda: session)
    with pytest.raises(Asked), hub.body(listing, file, 0):
        pass
    assert asked == [OLD] * 3


@pytest.mark.parametrize(
    ("start", "end", "asked", "status", "told", "began"),
    [
        (0, None, None, 206, {}, 0),
        (0, 100, "bytes=0-99", 206, {"Content-Range": "bytes 0-99/200"}, 0),
        (7, None, "bytes=7-", 206, {"Content-Range": "bytes 7-199/200"}, 7),
        (7, None, "bytes=7-", 206, {"Content-Range": "bytes 6-199/200"}, 0),
        (7, None, "bytes=7-", 206, {"Content-Range": "bytes 70-199/200"}, 0),
        (7, None, "bytes=7-", 200, {"Content-Range": "bytes 7-199/200"}, 0),
        (7, None, "bytes=7-", 206, {}, 0),
    ],
)
def test_which_bytes_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
    start: int,
    end: int | None,
    asked: str | None,
    status: int,
    told: dict[str, str],
    began: int,
) -> None:
    """A part that does not say where it begins is taken for the whole."""
    ranges: list[str | None] = []

    @contextmanager
    def stream(_method: str, url: str, *, headers: dict[str, str], **_: Any) -> Iterator[Any]:
        ranges.append(headers.get("Range"))
        http = importlib.import_module(type(get_session()).__module__.partition(".")[0])
        yield http.Response(status, headers=told, content=b"x", request=http.Request("GET", url))

    monkeypatch.setattr(remote, "_session", lambda: SimpleNamespace(stream=stream))
    file = RepoFile("x.gguf", 200, "0" * 64)
    with Hub("http://hub.example").body(Listing("a/b", "main", "c" * 40, (file,)), file, start, end) as body:
        assert (body.start, b"".join(body.chunks)) == (began, b"x")
    assert ranges == [asked]


def test_a_command_is_told_whole() -> None:
    file = RepoFile(f"{'x' * 600}.gguf", 200, "0" * 64)
    assert remote._by_hf(Listing("a/b", "main", "c" * 40, (file,)), file).endswith(f" {file.name}")


class Answer:
    """Three chunks of ten bytes; `status_code` as a file has it, or an error."""

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code
        self.asked: int | None = None

    def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
        self.asked = chunk_size
        yield from [b"x" * 10] * 3


@pytest.mark.parametrize(
    ("is_asking", "status", "most", "seconds", "is_ended"),
    [
        pytest.param(False, 200, 5, 1e9, False, id="a file"),
        pytest.param(True, 200, 29, 0.0, True, id="a long answer"),
        pytest.param(True, 200, 30, 20.0, False, id="no longer than it may be"),
        pytest.param(True, 200, 30, 20.1, True, id="a slow answer"),
        pytest.param(False, 400, 29, 0.0, True, id="a refusal"),
        pytest.param(False, 399, 29, 0.0, False, id="no refusal"),
    ],
)
def test_what_is_no_file_is_bounded(
    monkeypatch: pytest.MonkeyPatch, is_asking: bool, status: int, most: int, seconds: float, is_ended: bool
) -> None:
    """In bytes, and in seconds: a minute for three chunks, each of which takes so many."""
    now = [0.0]

    def clock() -> float:
        now[0] += seconds
        return now[0] - seconds

    monkeypatch.setattr(remote, "MAX_ANSWER", most)
    monkeypatch.setattr(remote.time, "monotonic", clock)
    monkeypatch.setattr(remote._asking, "is_on", is_asking)
    answer = Answer(status)
    remote._bound(answer)
    chunks = answer.iter_bytes(7)
    if is_ended:
        with pytest.raises(NetworkError, match="does not end"):
            list(chunks)
    else:
        assert len(list(chunks)) == 3
    assert answer.asked == 7


def test_the_bound_is_set_once(machine: Machine) -> None:
    for _ in range(2):
        machine.hub().search("tales")
    assert get_session().event_hooks["response"].count(remote._bound) == 1
