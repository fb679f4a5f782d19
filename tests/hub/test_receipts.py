"""Receipts: a blob that looks changed is hashed again, and one that is as it was keeps what was found."""

import os
from pathlib import Path

import pytest

from localspec.models.hub.pulled import Receipts
from tests.hub.machine import sha256

BYTES = b"GGUF" * 100


@pytest.fixture
def receipts(tmp_path: Path) -> Receipts:
    return Receipts(tmp_path / "receipts")


@pytest.fixture
def blob(tmp_path: Path, receipts: Receipts) -> Path:
    blob = tmp_path / "blob"
    blob.write_bytes(BYTES)
    receipts.write(blob, blob.stat(), sha256=sha256(BYTES), repo="a/b", commit="c", file="d.gguf", pulled=True)
    return blob


def test_a_blob_that_was_only_touched_is_unchanged(receipts: Receipts, blob: Path) -> None:
    before = receipts.of(blob)
    assert receipts.is_unchanged(blob)
    assert [path.name for path in receipts.folder.iterdir()] == [f"{sha256(os.fsencode(blob))[:32]}.json"]
    assert receipts.folder.stat().st_mode & 0o777 == 0o700
    os.utime(blob, ns=(1, 1))
    assert receipts.of(blob) is None
    assert receipts.any(blob) == before
    assert receipts.is_unchanged(blob)
    found = receipts.of(blob)
    assert found is not None, "its time is noted"
    assert (found.mtime_ns, found.sha256, found.pulled) == (1, sha256(BYTES), True)


@pytest.mark.parametrize("after", [BYTES[:-1] + b"x", BYTES[:-1], BYTES + b"x"])
def test_other_bytes_are_a_change(receipts: Receipts, blob: Path, after: bytes) -> None:
    blob.write_bytes(after)
    os.utime(blob, ns=(1, 1))
    assert not receipts.is_unchanged(blob)
    assert receipts.of(blob) is None


def test_a_blob_that_looks_as_it_was_is_not_hashed(receipts: Receipts, blob: Path) -> None:
    """It may have many gigabytes: size and time tell."""
    status = blob.stat()
    blob.write_bytes(b"g" * len(BYTES))
    os.utime(blob, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert receipts.is_unchanged(blob)


def test_what_has_no_receipt_or_a_broken_one_counts_as_unchanged(receipts: Receipts, blob: Path) -> None:
    other = blob.with_name("other")
    other.write_bytes(b"x")
    assert receipts.is_unchanged(other)
    (file,) = receipts.folder.iterdir()
    for text in ("", "[1]", "{}", "[" * 100_000, file.read_text().replace(str(blob), str(other))):
        file.write_text(text)
        assert receipts.any(blob) is None
        assert receipts.is_unchanged(blob)


def test_a_receipt_goes_with_its_bytes(receipts: Receipts, blob: Path) -> None:
    to = blob.with_name("moved")
    blob.rename(to)
    receipts.move(blob, to)
    assert receipts.any(blob) is None
    moved = receipts.of(to)
    assert moved is not None
    assert (moved.blob, moved.sha256) == (str(to), sha256(BYTES))
    receipts.move(blob, to)
    assert receipts.of(to) == moved, "nothing was noted of what is moved there"
    assert len(list(receipts.folder.iterdir())) == 1
    receipts.remove(to)
    assert list(receipts.folder.iterdir()) == []
