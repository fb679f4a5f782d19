"""What reading a header may cost: bytes, time, and no more than the file has."""

import os
import time
from pathlib import Path

import pytest

from localspec.errors import IntegrityError
from localspec.models.gguf.header import Limits, read_header
from localspec.models.gguf.info import model_info
from tests.models.gguf_files import File, assert_fails, inspect, model, pair, raw, tensor, u32, u64, words


def test_a_file_that_shrinks_while_it_is_read_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model().write(tmp_path / "m.gguf")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: pread(fd, min(n, 100 - at), at))
    assert_fails(path, IntegrityError, "is cut off")


class Counter:
    """Counts the bytes that go through `os.pread`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        self._pread = os.pread
        monkeypatch.setattr(os, "pread", self._count)

    def _count(self, fd: int, n: int, at: int) -> bytes:
        chunk = self._pread(fd, n, at)
        self.bytes += len(chunk)
        return chunk


def test_the_weights_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model().with_tensors(tensor("t", (1 << 30,)), data=b"").write(tmp_path / "big.gguf")
    os.truncate(path, read_size := path.stat().st_size + (4 << 30))
    counter = Counter(monkeypatch)
    assert read_header(path).size == read_size
    assert counter.bytes < 1 << 20


def test_a_large_vocabulary_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(f"token number {i}" for i in range(256_000)).write(tmp_path / "v.gguf")
    counter = Counter(monkeypatch)
    info = inspect(path)
    assert info.n_vocab == 256_000
    assert info.vocab.tokens[-1] == b"token number 255999"
    assert counter.bytes <= path.stat().st_size


@pytest.mark.parametrize("kind", ["string", "strings", "numbers"])
def test_metadata_beyond_the_limit_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    n = 65 << 20
    fields = {
        "string": [u32(8), u64(n)],
        "strings": [u32(9), u32(8), u64(2), u64(n)],
        "numbers": [u32(9), u32(0), u64(n)],
    }[kind]
    path = tmp_path / "long.gguf"
    path.write_bytes(b"GGUF" + u32(3) + u64(0) + u64(1) + b"".join(raw("k", *fields)))
    os.truncate(path, 80 << 20)
    counter = Counter(monkeypatch)
    assert_fails(path, IntegrityError, "")
    assert counter.bytes < 1 << 20


def test_the_limit_on_metadata_is_kept_entry_by_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(words(60_000)).write(tmp_path / "m.gguf")
    counter = Counter(monkeypatch)
    with pytest.raises(IntegrityError, match=r"beyond|more than a header"):
        read_header(path, limits=Limits(metadata=300_000))
    assert counter.bytes <= 300_000


@pytest.mark.parametrize(
    "content", [model(words(60_000)), File(pairs={f"k{i}": pair(f"k{i}", "u32", i) for i in range(5000)})]
)
def test_time_is_limited(tmp_path: Path, content: File) -> None:
    now = iter(range(10**6))
    path = content.write(tmp_path / "slow.gguf")
    with pytest.raises(IntegrityError, match="within 2 s"):
        read_header(path, clock=lambda: float(next(now)))


def test_a_disk_or_another_program_may_take_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only work counts: waiting makes no file malformed."""
    path, read = model().write(tmp_path / "m.gguf"), os.pread

    def slow(fd: int, n: int, offset: int) -> bytes:
        time.sleep(0.6)
        return read(fd, n, offset)

    monkeypatch.setattr(os, "pread", slow)
    assert len(read_header(path, limits=Limits(seconds=0.5)).tensors) == 3


def test_the_number_of_entries_is_limited(tmp_path: Path) -> None:
    n = 1 << 18
    path = tmp_path / "many.gguf"
    for n_tensors, n_pairs, text in ((0, n, f"{n} metadata entries"), (n, 0, f"{n} tensors")):
        path.write_bytes(b"GGUF" + u32(3) + u64(n_tensors) + u64(n_pairs))
        os.truncate(path, 8 << 20)
        assert "no more than" in assert_fails(path, IntegrityError, text).message


def test_the_number_of_tokens_is_limited(tmp_path: Path) -> None:
    empty = [u32(9), u32(8), u64(n := (1 << 20) + 1), bytes(8 * n)]
    file = model()
    file.pairs["tokenizer.ggml.tokens"] = raw("tokenizer.ggml.tokens", *empty)
    path = file.write(tmp_path / "many.gguf")
    with pytest.raises(IntegrityError, match=f"{n} tokens"):
        model_info(read_header(path, limits=Limits(seconds=60)))
