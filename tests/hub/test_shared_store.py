"""Bytes that several repositories share: found, linked, and removed only when nobody else refers to them."""

import errno
import fcntl
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import scan_cache_dir
from huggingface_hub.utils._shared_blobs import publish_blob_to_shared_store, try_link_from_shared_store

from localspec.errors import ResourceError
from localspec.models.hub.files import select
from localspec.models.hub.pulled import Partial
from localspec.models.hub.remove import carry_out, plan_removal
from localspec.models.names import HubName
from tests.hub.machine import DRAFT, Machine, sha256
from tests.hub.models import DRAFT as DATA

XET = "ab" * 32
COMMIT = "1" * 40
ONE, OTHER = "tales/draft-GGUF", "tales/copy-GGUF"


def shared(machine: Machine, folder: str, name: str, *, is_first: bool) -> Path:
    """Put a file into the cache as the hub's library does with one that came over Xet; return its link."""
    root = machine.cache.root
    blob = root / folder / "blobs" / sha256(DATA)
    blob.parent.mkdir(parents=True)
    how = {"blob_path": str(blob), "xet_hash": XET, "cache_dir": root, "expected_size": len(DATA)}
    if is_first:
        blob.write_bytes(DATA)
        assert publish_blob_to_shared_store(**how)
    else:
        assert try_link_from_shared_store(**how)
    link = root / folder / "snapshots" / COMMIT / name
    link.parent.mkdir(parents=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    (root / folder / "refs").mkdir()
    (root / folder / "refs/main").write_text(COMMIT)
    return link


def removed(machine: Machine, repo: str) -> int:
    removal = plan_removal([HubName(repo)], machine.cache, machine.receipts)
    carry_out(removal, machine.cache, machine.receipts)
    return removal.bytes


@pytest.fixture
def store(machine: Machine) -> Path:
    machine.cache.root.mkdir(parents=True)
    return machine.cache.root / "blobs" / XET[:2] / XET


def test_two_repositories(machine: Machine, store: Path) -> None:
    shared(machine, "models--tales--draft-GGUF", "draft.Q8_0.gguf", is_first=True)
    other = shared(machine, "models--tales--copy-GGUF", "copy.Q8_0.gguf", is_first=False)
    assert removed(machine, ONE) == 0
    assert not list(machine.cache.root.glob("models--tales--draft-GGUF"))
    assert other.read_bytes() == DATA
    assert "draft-GGUF" not in store.with_name(f"{XET}.refs").read_text(), "it is no reference any more"
    (left,) = scan_cache_dir(machine.cache.root).repos
    scan_cache_dir(machine.cache.root).delete_revisions(*(one.commit_hash for one in left.revisions)).execute()
    assert not store.exists(), "the library frees the bytes"


def test_the_last_repository_frees_the_bytes(machine: Machine, store: Path) -> None:
    shared(machine, "models--tales--draft-GGUF", "draft.Q8_0.gguf", is_first=True)
    assert removed(machine, ONE) == len(DATA)
    assert not store.exists()


def test_a_data_set_keeps_its_bytes(machine: Machine, store: Path) -> None:
    shared(machine, "models--tales--draft-GGUF", "draft.Q8_0.gguf", is_first=True)
    file = shared(machine, "datasets--tales--books", "draft.bin", is_first=False)
    assert removed(machine, ONE) == 0
    assert file.read_bytes() == DATA


def test_another_name_of_the_same_blob_keeps_it(machine: Machine) -> None:
    """A projector is no model, and its link is one all the same."""
    machine.pull(DRAFT)
    (file,) = machine.cache.all()
    other = file.link.with_name("mmproj-draft.gguf")
    other.symlink_to(os.readlink(file.link))
    assert removed(machine, ONE) == 0
    assert other.read_bytes() == DATA


def test_what_was_checked_is_known_as_such(machine: Machine, store: Path) -> None:
    machine.server.repos[ONE].commit = COMMIT
    shared(machine, "models--tales--draft-GGUF", "sub/draft.Q8_0.gguf", is_first=True)
    machine.pull(DRAFT)
    assert machine.json("ls")["models"][0]["verified"]
    assert not machine.server.downloads()


def test_a_prune_leaves_what_is_being_pulled(machine: Machine) -> None:
    partial = machine.cache.blob(ONE, sha256(DATA))
    partial = partial.with_name(f"{partial.name}.localspec-part")
    partial.parent.mkdir(parents=True)
    partial.write_bytes(DATA[:1000])
    assert not scan_cache_dir(machine.cache.root).incomplete_files
    assert machine.plan(DRAFT).missing == len(DATA) - 1000


def test_a_file_that_is_deleted_while_it_comes_is_told_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Partial.add

    def lose(self: Partial, chunk: bytes) -> None:
        self.path.unlink(missing_ok=True)
        add(self, chunk)

    monkeypatch.setattr(Partial, "add", lose)
    with pytest.raises(ResourceError, match=r"another program deleted sub/draft\.Q8_0\.gguf") as caught:
        machine.pull(DRAFT)
    assert caught.value.hint == "run the same command again, once that program has ended"
    assert not machine.links()


def test_leftovers_go_once_the_file_is_whole(machine: Machine) -> None:
    """A pull was stopped, and another program downloaded the file."""
    blob = machine.cache.blob(ONE, sha256(DATA))
    blob.parent.mkdir(parents=True)
    blob.with_name(f"{blob.name}.localspec-part").write_bytes(DATA[:1000])
    blob.write_bytes(DATA)
    machine.cache.publish(ONE, machine.server.repos[ONE].commit, "sub/draft.Q8_0.gguf", blob)
    machine.pull(DRAFT)
    assert [path.name for path in blob.parent.iterdir()] == [blob.name]


def test_locks_that_the_file_system_does_not_know(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_args: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with warnings.catch_warnings(record=True) as heard:
        warnings.resetwarnings()
        machine.pull(DRAFT)
        warnings.warn("another", UserWarning, stacklevel=1)
        warnings.warn("no flock", RuntimeWarning, stacklevel=1)
    assert machine.found(DRAFT) == [DATA]
    assert [str(one.message) for one in heard if one.category is not ResourceWarning] == ["another", "no flock"]
    assert capfd.readouterr().err == ""


NAMES = ["X-Q4_0.gguf", "X-MTP-Q4_0.gguf", "assistant/X-assistant-Q4_0.gguf", "X-NVFP4.gguf", "X-I-Compact.gguf"]


@pytest.mark.parametrize(("quant", "file"), [("Q4_0", 0), ("NVFP4", 3), ("I-COMPACT", 4)])
def test_any_ending_names_a_file_and_drafters_are_no_second_model(quant: str, file: int) -> None:
    assert select(NAMES, HubName("a/x-GGUF", quant=quant)) == (NAMES[file],)


def test_a_hint_names_a_file_that_exists() -> None:
    from localspec.errors import UsageError

    with pytest.raises(UsageError) as caught:
        select(["a/X-Q4_0.gguf", "b/X-Q4_0.gguf"], HubName("a/x-GGUF", quant="Q4_0"))
    assert caught.value.hint == "hf:a/x-GGUF/a/X-Q4_0.gguf"
