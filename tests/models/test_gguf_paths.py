"""Paths that are no readable file, and paths that are odd (cases B25 to B34)."""

import os
import socket
from pathlib import Path

import pytest

from localspec.errors import IntegrityError, NotFoundError
from tests.models.gguf_files import assert_fails, inspect, model


def test_missing_file(tmp_path: Path) -> None:
    assert_fails(tmp_path / "no.gguf", NotFoundError, "no.gguf does not exist")


def test_directory(tmp_path: Path) -> None:
    assert_fails(tmp_path, NotFoundError, "is a directory")


def test_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert_fails(tmp_path / "pipe.gguf", NotFoundError, "a pipe or a device")


def test_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path has to be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.gguf")
        assert_fails(Path("s.gguf"), NotFoundError, "a pipe or a device")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/random"])
def test_device(device: str) -> None:
    assert_fails(Path(device), NotFoundError, "a pipe or a device")


def test_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model().write(tmp_path / "secret.gguf")

    def refuse(*_: object) -> int:  # root may read everything, so the refusal is played
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert_fails(path, NotFoundError, "may not be read")


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "dangling.gguf").symlink_to("gone")
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    assert "link" in assert_fails(tmp_path / "dangling.gguf", NotFoundError, "does not exist").hint
    assert_fails(tmp_path / "loop.gguf", NotFoundError, "cannot be opened")


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "\udc80\ud800", "/".join(["d" * 200] * 30)])
def test_impossible_paths(tmp_path: Path, name: str) -> None:
    assert_fails(tmp_path / name, NotFoundError, "")


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "[red]", "🦙 llama", "\u202etxt", "-v", "a+b:c@d e"])
def test_odd_names_are_read_and_shown_escaped(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.gguf"
    model().write(path)
    assert inspect(path).label.isprintable()
    path.write_bytes(b"")
    assert assert_fails(path, IntegrityError, "is empty").message.isprintable()


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.gguf"))
    model().write(path)
    assert inspect(path).label == r"\udcff\udcfe.gguf"
