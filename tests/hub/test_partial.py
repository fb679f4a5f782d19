"""A partial file has on the disk what it counts."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from localspec.models.hub.pulled import partial_file

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
        part.add(DATA[::-1])
        assert not part.is_right


@pytest.mark.parametrize(("folder", "file"), [(0o700, 0o600), (0o755, 0o644), (0o777, 0o666)])
def test_who_may_read_the_folder_may_read_the_file(tmp_path: Path, folder: int, file: int) -> None:
    """And nobody may run it."""
    tmp_path.chmod(folder)
    with partial_file(tmp_path / "part", len(DATA), hashlib.sha256(DATA).hexdigest()) as part:
        part.add(DATA)
        part.settle()
    assert (tmp_path / "part").stat().st_mode & 0o777 == file
