"""The edge's connection where the other end is silent, and keys that fit in no header."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from localspec.errors import NetworkError, UsageError
from localspec.remote import connection
from localspec.remote.connection import KEY, Address, Connection


def test_a_machine_that_takes_the_call_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of the network like any other: one that a broken session waits out."""
    monkeypatch.setattr(connection, "OPENING", 0.2)
    monkeypatch.delenv(KEY, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NetworkError, match="cannot be reached: timed out") as raised:
            Connection.open(Address(url))
    assert raised.value.hint


@pytest.mark.parametrize("key", ["sec\nret", "sec\rret", "sec\x1b[2Jret", "geheimnis-ß"])
def test_a_key_that_fits_in_no_header_is_told_without_it(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv(KEY, key)
    with pytest.raises(UsageError) as raised:
        Address("ws://127.0.0.1:1").key()
    assert KEY in raised.value.message
    assert key not in f"{raised.value.message} {raised.value.hint}"
    assert raised.value.hint == f"{KEY}=KEY"


def test_a_file_without_a_key_is_named_with_its_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)
    file = tmp_path / "key"
    file.write_text("\n")
    with pytest.raises(UsageError, match=r"the first line of .*key holds no key") as raised:
        Address("ws://127.0.0.1:1", key_file=str(file)).key()
    assert raised.value.hint == "--verifier-key-file FILE"


def test_white_space_around_a_key_is_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for held, key in (("secret\n", "secret"), ("", None), (" \n", None)):
        monkeypatch.setenv(KEY, held)
        assert Address("ws://127.0.0.1:1").key() == key
