"""Without a way to the hub: one short attempt, one word for it, and everything that is known without the hub."""

import json
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import OfflineModeIsEnabled

from localspec.errors import NetworkError, NotFoundError
from localspec.models.hub.problems import OFFLINE, translated
from localspec.models.hub.remote import Hub
from tests.cli.harness import PAIR, REAL, TIMEOUT, Terminal, assert_one_line, localspec, needs_pair

NOWHERE = "http://127.0.0.1:1"


def call(folder: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    env = {"LOCALSPEC_HOME": str(folder), "HF_HOME": str(folder / "hf"), "HF_ENDPOINT": NOWHERE, "NO_PROXY": "*"}
    return localspec(*args, env=env)


@pytest.mark.parametrize(
    "said",
    [
        "[Errno -2] Name or service not known",
        "[Errno -3] Temporary failure in name resolution",
        "[Errno 101] Network is unreachable",
        "[Errno 8] nodename nor servname provided, or not known",
    ],
)
def test_no_way_to_the_hub_is_one_word(said: str) -> None:
    with pytest.raises(NetworkError) as caught, translated("a/b", "https://hub.example"):
        raise ConnectionError(said)
    assert caught.value.message == "offline: the hub cannot be reached at https://hub.example"
    assert caught.value.detail["reason"] == OFFLINE


def test_no_error_has_its_number() -> None:
    with pytest.raises(NetworkError, match=r"cannot be reached: Connection refused$"), translated("a/b", NOWHERE):
        raise ConnectionError("[Errno 111] Connection refused")


def test_a_name_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking up a name takes as long as the system likes."""
    over, answered = threading.Event(), threading.Event()

    def silent(*args: Any, **kwargs: Any) -> Any:
        over.wait(TIMEOUT)
        answered.set()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    monkeypatch.setattr("localspec.models.hub.remote.KNOCK", 0.1)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("HF_HUB_DOWNLOAD_TIMEOUT", raising=False)
    hub = Hub("https://hub.example")
    for ask in (lambda: hub.listing("a/b", None), lambda: hub.search("b")):
        with pytest.raises(NetworkError, match="offline: the hub cannot be reached"):
            ask()
    assert [one.daemon for one in threading.enumerate() if one.name == "reach"] == [True, True], "no end waits for it"
    assert not answered.is_set()
    over.set()


@needs_pair
def test_suggest_lists_what_is_here(tmp_path: Path) -> None:
    for name in ("target", "draft"):
        (tmp_path / f"{name}.gguf").symlink_to(PAIR / f"{name}-q8_0.gguf")
    done = call(tmp_path, "plan", "--hub", str(tmp_path / "target.gguf"))
    assert done.returncode == 0
    text = done.stdout.decode()
    assert text.startswith("draft.gguf is ")
    assert text.endswith("\n\nno draft to download was found\n")
    warning = done.stderr.decode()
    assert warning.count("\n") == 1
    assert f"offline: the hub cannot be reached at {NOWHERE}" in warning


@needs_pair
def test_the_warning_stands_on_a_line_of_its_own(tmp_path: Path) -> None:
    env = {"LOCALSPEC_HOME": str(tmp_path), "HF_HOME": str(tmp_path), "HF_ENDPOINT": NOWHERE, "NO_PROXY": "*"}
    terminal = Terminal(["plan", "--hub", "storyteller"], program=REAL, env=env)
    assert terminal.wait() == 0
    assert any(line.startswith("localspec: warning: offline") for line in terminal.lines), terminal.lines


@pytest.mark.parametrize("args", [("pull", "hf:a/b"), ("pull", "hf:a/b", "--dry-run"), ("run", "-m", "hf:a/b", "hi")])
def test_what_needs_the_hub_says_so(tmp_path: Path, args: tuple[str, ...]) -> None:
    line = assert_one_line(call(tmp_path, *args), 4, f"offline: the hub cannot be reached at {NOWHERE}")
    assert "Errno" not in line


def test_a_dry_run_tells_the_catalogues_sizes(tmp_path: Path) -> None:
    done = call(tmp_path, "pull", "qwen3-8b", "--dry-run")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M  about 5.0 GB",
        "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0  about 640.0 MB",
        "about 5.6 GB to download",
    ]
    assert "offline" in done.stderr.decode()
    made = json.loads(call(tmp_path, "pull", "qwen3-8b", "--dry-run", "--json").stdout)
    assert (made["is_about"], made["download_bytes"]) == (True, 5_640_000_000)


def test_a_switch_that_forbids_the_network_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    said = "a/b is not on this machine, and HF_HUB_OFFLINE is set"
    with pytest.raises(NotFoundError, match=said) as caught, translated("a/b", "https://hub.example"):
        raise OfflineModeIsEnabled("no network")
    assert caught.value.hint == "unset HF_HUB_OFFLINE"
