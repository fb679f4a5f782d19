"""A partial file has on the disk what it counts."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from localspec.models.hub import pulled
from localspec.models.hub.pulled import hash_of, partial_file

DATA = bytes(range(250)) * 4


@pytest.mark.parametrize("most", [1, 7, 100, 999])
def test_a_disk_that_takes_a_part_of_a_chunk_gets_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """One write may take less than it was given; what `is_right` says must lie there."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data)[:most]))
    path = tmp_path / "part"
    with partial_file(path, len(DATA), hashlib.sha256(DATA).hexdigest()) as part:
        part.add(DATA[:300])
        part.add(DATA[300:])
        assert part.is_right
    assert path.read_bytes() == DATA


def test_it_is_right_only_whole(tmp_path: Path) -> None:
    with partial_file(tmp_path / "part", len(DATA), hashlib.sha256(DATA).hexdigest()) as part:
        part.add(DATA[:-1])
        assert not part.is_right
        part.add(DATA[-1:])
        assert part.is_right
        part.clear()
        assert part.path.read_bytes() == b""
        part.add(DATA[::-1])
        assert not part.is_right
        assert part.path.read_bytes() == DATA[::-1]
    with pytest.raises(OSError, match="Bad file descriptor"):
        part.clear()


@pytest.mark.parametrize(("folder", "file"), [(0o700, 0o600), (0o755, 0o644), (0o777, 0o666)])
def test_who_may_read_the_folder_may_read_the_file(tmp_path: Path, folder: int, file: int) -> None:
    """And nobody may run it."""
    tmp_path.chmod(folder)
    with partial_file(tmp_path / "part", len(DATA), hashlib.sha256(DATA).hexdigest()) as part:
        part.add(DATA)
        assert part.path.stat().st_mode & 0o111 == 0
        part.settle()
    assert (tmp_path / "part").stat().st_mode & 0o777 == file


@pytest.mark.parametrize("is_known", [True, False])
def test_what_the_disk_did_not_take_is_not_left_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """Where the system can be told so. Either way the disk's error comes through."""
    asked: list[tuple[int, ...]] = []

    def fail(_handle: int) -> None:
        raise OSError(errno.EIO, "an error of the disk")

    monkeypatch.setattr(os, "fsync", fail)
    if is_known:
        monkeypatch.setattr(os, "posix_fadvise", lambda _handle, *rest: asked.append(rest))
    else:
        monkeypatch.delattr(os, "posix_fadvise")
    with partial_file(tmp_path / "part", 9, "") as part, pytest.raises(OSError, match="of the disk"):
        part.settle()
    assert asked == [(0, 0, os.POSIX_FADV_DONTNEED)] * is_known


def test_who_waits_for_a_hash_is_asked_at_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of bytes that are hashed again, and of those that a pull goes on from."""
    assert pulled.BLOCK == 1 << 20
    monkeypatch.setattr(pulled, "BLOCK", 300)
    path, looks = tmp_path / "part", []
    path.write_bytes(DATA)
    right = hashlib.sha256(DATA).hexdigest()
    assert hash_of(path, looks.append) == right
    with partial_file(path, len(DATA), right) as part:
        part.resume(lambda: looks.append(2))
        assert part.is_right
    assert looks == [300, 600, 900, len(DATA)] + [2] * 4
