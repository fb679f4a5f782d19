"""Bringing files: whatever the hub and the network do, the cache has the right bytes under a name, or no name."""

import errno
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from localspec import __version__
from localspec.errors import IntegrityError, LocalspecError, NetworkError, ResourceError
from localspec.models.hub.cache import PARTIAL, blob_lock
from localspec.models.hub.remote import Hub
from localspec.models.hub.remove import carry_out as remove
from localspec.models.hub.remove import plan_removal
from localspec.models.hub.transfer import DownloadCancelled, Transfer
from localspec.models.names import HubName
from localspec.models.pull import Pull, pull_all
from tests.hub.machine import DRAFT, PAIR, PARTS, TARGET, Machine, sha256
from tests.hub.models import DRAFT as DRAFT_BYTES
from tests.hub.models import TARGET as TARGET_BYTES
from tests.hub.models import parts
from tests.hub.server import Repo, Server


def partial_of(machine: Machine, data: bytes, repo: str = "tales/storyteller-GGUF") -> Path:
    path = machine.cache.blob(repo, sha256(data))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(path.name + PARTIAL)


def assert_fails(machine: Machine, error: type[LocalspecError], *words: str, name: str = TARGET) -> LocalspecError:
    with pytest.raises(error) as caught:
        machine.pull(name)
    for word in words:
        assert word in caught.value.message + caught.value.hint, caught.value.message
    assert caught.value.hint
    assert (caught.value.message + caught.value.hint).isprintable()
    assert machine.links() == []
    assert machine.found(name) == []
    return caught.value


def test_whole_and_in_parts(machine: Machine) -> None:
    machine.pull(TARGET, DRAFT, PARTS)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert machine.found(DRAFT) == [DRAFT_BYTES]
    assert machine.found(PARTS) == list(parts().values())
    assert len(machine.found(PARTS)) == 3
    assert not machine.partials()
    assert all(machine.receipts.of(file.blob) for file in machine.cache.all())
    assert {one.encoding for one in machine.server.downloads()} == {"identity"}, "packed bytes have another length"
    assert {one.range for one in machine.server.downloads()} == {None}
    asked = [one for one in machine.server.requests if one.method == "GET"]
    assert all(f"localspec/{__version__}" in str(one.agent) for one in asked)


def test_the_library_finds_what_was_pulled(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is that of all programs of the hub, in their form."""
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    machine.pull(TARGET)
    found = try_to_load_from_cache("tales/storyteller-GGUF", "storyteller-Q8_0.gguf", cache_dir=machine.cache.root)
    assert Path(str(found)).read_bytes() == TARGET_BYTES
    report = scan_cache_dir(machine.cache.root)
    assert [repo.repo_id for repo in report.repos] == ["tales/storyteller-GGUF"]
    assert not report.warnings


def test_what_the_library_pulled_is_found_and_checked_once(machine: Machine) -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download(
        "tales/storyteller-GGUF",
        "storyteller-Q8_0.gguf",
        cache_dir=machine.cache.root,
        endpoint=machine.server.endpoint,
    )
    assert machine.found(TARGET) == [TARGET_BYTES]
    n = len(machine.server.downloads())
    item = machine.plan(TARGET).items[0]
    assert (item.is_cached, item.is_verified) == (True, False)
    machine.pull(TARGET)
    assert len(machine.server.downloads()) == n
    item = machine.plan(TARGET).items[0]
    assert (item.is_cached, item.is_verified) == (True, True)
    receipt = machine.receipts.of(next(iter(machine.cache.all())).blob)
    assert receipt is not None
    assert not receipt.pulled


def test_a_damaged_file_in_the_cache_is_removed_and_pulled_anew(machine: Machine) -> None:
    machine.pull(TARGET)
    blob = next(iter(machine.cache.all())).blob
    blob.write_bytes(TARGET_BYTES[:-1] + b"\0")
    assert_fails(machine, IntegrityError, "damaged")
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]


@pytest.mark.parametrize("at", [1, 100_000, len(TARGET_BYTES) - 1])
def test_it_goes_on_from_what_is_there(machine: Machine, at: int) -> None:
    assert machine.plan(TARGET).missing == len(TARGET_BYTES)
    partial_of(machine, TARGET_BYTES).write_bytes(TARGET_BYTES[:at])
    assert machine.plan(TARGET).missing == len(TARGET_BYTES) - at
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert [one.range for one in machine.server.downloads()] == [f"bytes={at}-"]


@pytest.mark.parametrize(
    "left", [b"?", b"\0" * 100_000, TARGET_BYTES + b"more", b"x" * len(TARGET_BYTES), TARGET_BYTES[:50_000] + b"?"]
)
def test_what_is_there_may_be_wrong(machine: Machine, left: bytes) -> None:
    """Only the hash of the whole decides; then it begins anew."""
    partial_of(machine, TARGET_BYTES).write_bytes(left)
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert not machine.partials()


def test_a_whole_file_without_its_name(machine: Machine) -> None:
    """Killed between the last byte and the renaming."""
    partial_of(machine, TARGET_BYTES).write_bytes(TARGET_BYTES)
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert not machine.server.downloads()


def test_a_link_where_the_start_of_a_file_would_be_is_not_followed(machine: Machine, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"not ours")
    partial_of(machine, TARGET_BYTES).symlink_to(theirs)
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert theirs.read_bytes() == b"not ours"


def test_broken_connections(machine: Machine) -> None:
    machine.server.faults.cuts = [1_000_000, 0, 700_000, 1]
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    starts = [int((one.range or "bytes=0-")[6:-1]) for one in machine.server.downloads()]
    assert starts == sorted(starts)
    assert len(starts) == 5


def test_connections_that_break_for_ever(machine: Machine) -> None:
    machine.server.faults.cuts = [300_000, *[0] * 50]
    assert_fails(machine, NetworkError, "cannot be reached")
    assert len(machine.server.downloads()) < 12
    machine.server.faults.cuts = []
    assert 0 < machine.plan(TARGET).items[0].have <= 300_000
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_server_that_fails_for_a_while(machine: Machine, status: int) -> None:
    machine.server.faults.cdn = [(status, {"Retry-After": "1"})] * 3
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert sum(machine.pauses) >= 3


def shown_pauses(machine: Machine) -> list[str]:
    """Pull the target; return what was shown of it in each wait."""
    shown: list[str] = []

    def pause(seconds: float) -> None:
        machine.pauses.append(seconds)
        shown.append(pull.files[0].name)

    pull = Pull(machine.plan(TARGET), Hub(machine.server.endpoint, pause), machine.cache, machine.receipts)
    pull_all(pull, lambda _: None, 0.01)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert pull.files[0].name == "done"
    return shown


def test_the_pause_that_the_hub_asks_for_is_made_and_shown(machine: Machine) -> None:
    machine.server.faults.cdn = [(429, {"RateLimit": '"resolvers";r=0;t=120'})]
    shown = shown_pauses(machine)
    assert sum(machine.pauses) == 120
    assert (shown[0], shown[-1]) == ("pause 120 s", "pause 1 s")


def test_a_wait_that_nobody_asked_for_is_no_pause_of_the_hubs(machine: Machine) -> None:
    machine.server.faults.cdn = [(502, {}), (503, {"Retry-After": "3"})]
    machine.server.faults.cuts = [0, 0]
    asked = ["pause 3 s", "pause 3 s", "pause 2 s", "pause 2 s", "pause 1 s", "pause 1 s"]
    shown = shown_pauses(machine)
    assert [one for one in shown if one.startswith("pause")] == asked
    others = [one for one in shown if not one.startswith("pause")]
    assert others == [f"again in {left} s" for wait in (1, 4, 8) for left in range(wait, 0, -1) for _ in range(2)]


def test_a_longer_pause_is_told(machine: Machine) -> None:
    machine.server.faults.cdn = [(429, {"RateLimit": '"resolvers";r=0;t=121'})]
    partial_of(machine, TARGET_BYTES).write_bytes(TARGET_BYTES[:1000])
    assert_fails(machine, NetworkError, "fewer requests for 121 s", "HF_TOKEN")
    assert (machine.pauses, machine.plan(TARGET).items[0].have) == ([], 1000)


def test_a_server_that_ignores_ranges(machine: Machine) -> None:
    partial_of(machine, TARGET_BYTES).write_bytes(TARGET_BYTES[:1000])
    machine.server.faults.ignores_ranges = True
    machine.server.faults.cuts = [2_000_000]
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]


def test_a_server_that_knows_no_such_range(machine: Machine) -> None:
    partial_of(machine, TARGET_BYTES).write_bytes(TARGET_BYTES[:1])
    machine.server.faults.cdn = [(416, {})]
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]


def test_wrong_bytes(machine: Machine) -> None:
    machine.server.faults.lies = True
    assert_fails(machine, IntegrityError, "hash", "removed")
    assert len(machine.server.downloads()) == 1
    assert not machine.partials()
    assert not list(machine.cache.root.glob("*/blobs/*"))


def test_wrong_bytes_after_a_right_start(machine: Machine) -> None:
    partial_of(machine, TARGET_BYTES).write_bytes(TARGET_BYTES[:1000])
    machine.server.faults.lies = True
    assert_fails(machine, IntegrityError, "hash")
    assert len(machine.server.downloads()) == 2, "once from there, once from the start"


def test_more_bytes_than_promised(machine: Machine) -> None:
    machine.server.faults.surplus = b"x" * 100
    error = assert_fails(machine, IntegrityError, "more than 5160352 bytes")
    assert error.detail == {"file": "storyteller-Q8_0.gguf", "sha256": sha256(TARGET_BYTES)}
    assert not machine.partials()


def test_a_size_that_is_too_large(machine: Machine) -> None:
    machine.server.faults.lengths = [len(TARGET_BYTES) + 5] * 3
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]


def test_a_size_that_is_too_small(machine: Machine) -> None:
    """Answers end early, and say that they are whole."""
    machine.server.faults.lengths = [1000, 5, 70_000, 1, 1, 1, 1]
    machine.pull(DRAFT)
    assert machine.found(DRAFT) == [DRAFT_BYTES]


def test_answers_of_nothing(machine: Machine) -> None:
    machine.server.faults.lengths = [1000] + [0] * 20
    assert_fails(machine, NetworkError, "after 1000 bytes")
    assert machine.plan(TARGET).items[0].have == 1000


@pytest.mark.parametrize(("fault", "words"), [("lengths", "after 0 bytes"), ("cuts", "cannot be reached")])
def test_five_tries_in_a_row_that_bring_nothing_are_enough(machine: Machine, fault: str, words: str) -> None:
    setattr(machine.server.faults, fault, [0] * 20)
    assert_fails(machine, NetworkError, words)
    assert len(machine.server.downloads()) == 5


@dataclass
class Seen:
    """Keeps what a transfer tells."""

    is_cancelled: bool = False
    phases: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def at(self, n: int) -> None:
        self.sizes.append(n)

    def warn(self, message: str) -> None:
        raise AssertionError(message)


def test_what_is_done_is_told_after_a_wait_and_of_a_file_that_is_there(machine: Machine) -> None:
    machine.server.faults.cdn = [(429, {"Retry-After": "1"})]
    (item,) = machine.plan(TARGET).items
    pause = ["pause 1 s", "pause 1 s"]
    for phases, first in ((["hashing", "downloading", *pause, "downloading", "done"], 0), (["done"], item.file.size)):
        seen = Seen()
        Transfer(machine.hub(), machine.cache, machine.receipts, item.listing, item.file, seen).run()
        assert seen.phases == phases
        assert (seen.sizes[0], seen.sizes[-1]) == (first, item.file.size)


def test_a_file_is_not_bounded_as_other_answers_are(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where the thread that asked for them reads it."""
    monkeypatch.setattr("localspec.models.hub.remote.MAX_ANSWER", len(DRAFT_BYTES) // 2)
    (item,) = machine.plan(TARGET).items
    transfer = Transfer(machine.hub(), machine.cache, machine.receipts, item.listing, item.file, Seen())
    assert transfer.run().read_bytes() == TARGET_BYTES
    machine.pull(DRAFT)  # by threads that asked for nothing else
    assert machine.found(DRAFT) == [DRAFT_BYTES]


def test_a_transfer_that_waits_for_another_process_says_so_and_can_be_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.models.hub.transfer.LOCK_WAIT", 0.01)

    class Impatient(Seen):
        def phase(self, name: str) -> None:
            super().phase(name)
            self.is_cancelled = len(self.phases) == 2

    (item,) = machine.plan(TARGET).items
    seen = Impatient()
    transfer = Transfer(machine.hub(), machine.cache, machine.receipts, item.listing, item.file, seen)
    lock = machine.cache.lock(item.listing.repo, sha256(TARGET_BYTES))
    lock.parent.mkdir(parents=True)
    with blob_lock(lock, 1.0), pytest.raises(DownloadCancelled):
        transfer.run()
    assert seen.phases == ["waiting", "waiting"]
    seen.is_cancelled = False
    assert transfer.run().read_bytes() == TARGET_BYTES


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_file_that_was_touched_stays_whose_it_was(machine: Machine, is_ours: bool) -> None:
    """And a receipt of another hash is none: the file is hashed, and noted anew."""
    machine.pull(TARGET)
    (file,) = machine.cache.all()
    known: dict[str, Any] = {"repo": file.repo, "commit": file.commit, "file": file.name, "pulled": is_ours}
    for told in (sha256(TARGET_BYTES), "0" * 64):
        machine.receipts.write(file.blob, file.blob.stat(), sha256=told, **known)
        if told == sha256(TARGET_BYTES):
            os.utime(file.blob, (1, 1))
        machine.pull(TARGET)
        receipt = machine.receipts.of(file.blob)
        assert receipt is not None
        assert (receipt.sha256, receipt.pulled) == (sha256(TARGET_BYTES), is_ours)
    removal = plan_removal([HubName(file.repo)], machine.cache, machine.receipts)
    assert removal.foreign == (() if is_ours else (file,))


def test_the_token_goes_to_the_hub_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    machine.server.repos["tales/storyteller-GGUF"].gate = "gated"
    machine.pull(TARGET)
    assert {one.authorization for one in machine.server.requests if one.server == "hub"} == {"Bearer hf_right"}
    assert {one.authorization for one in machine.server.downloads()} == {None}


def test_one_transfer_for_many_pulls(machine: Machine) -> None:
    """Eight pulls at once, each with a lock file handle of its own: one brings the file, the others wait for it."""
    machine.server.faults.rate = 2e7
    plan = machine.plan(TARGET)
    pulls = [Pull(plan, machine.hub(), machine.cache, machine.receipts) for _ in range(8)]
    for pull in pulls:
        pull.start()
    while not all(pull.is_over for pull in pulls):
        threading.Event().wait(0.05)
    for pull in pulls:
        pull.result()
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert machine.server.sent == len(TARGET_BYTES)


def test_what_others_left_goes_once_it_is_old(machine: Machine) -> None:
    blob = machine.cache.blob("tales/storyteller-GGUF", sha256(TARGET_BYTES))
    blob.parent.mkdir(parents=True)
    old, new = (blob.with_name(f"{blob.name}.{end}.incomplete") for end in ("0123abcd", "4567abcd"))
    for path in (old, new):
        path.write_bytes(b"half")
    now = time.time()
    for path, age in ((old, 3700), (new, 3500)):
        os.utime(path, (now - age, now - age))
    machine.pull(TARGET)
    assert machine.partials() == [new]


def test_too_little_space_is_known_before(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(machine.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=6_000_000))
    plan = machine.plan(PAIR.partition("+")[0], DRAFT)
    with pytest.raises(ResourceError, match="MB short") as caught:
        plan.require_space()
    assert caught.value.detail == {"needed_bytes": int(plan.missing * 1.05), "free_bytes": 6_000_000}
    machine.plan(TARGET).require_space()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    except FileNotFoundError:
        is_mounted = False
    if not is_mounted:
        pytest.skip("this user may not mount")  # a test cannot give itself the right to
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=10)


def test_a_disk_that_fills_up_meanwhile(hub: Server, small_disk: Path) -> None:
    """What had come is kept, and the removal that the error names makes room."""
    machine = Machine(hub, small_disk)
    assert_fails(machine, ResourceError, "full", "are kept", "localspec rm hf:tales/storyteller-GGUF", "HF_HUB_CACHE")
    assert machine.partials()
    wanted = HubName("tales/storyteller-GGUF")
    remove(plan_removal([wanted], machine.cache, machine.receipts), machine.cache, machine.receipts)
    assert not machine.partials()
    machine.pull(DRAFT)
    assert machine.found(DRAFT) == [DRAFT_BYTES]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_a_write_that_fails_costs_nothing_of_what_came(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The disk takes a megabyte and fails; where it takes bytes again, the next pull goes on from there."""
    write, written = os.write, 0

    def fail(fd: int, data: memoryview) -> int:
        nonlocal written
        if len(data) > 1000 and written > 1_000_000:
            raise OSError(number, os.strerror(number))
        written += len(data)
        return write(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        error = assert_fails(
            machine,
            ResourceError,
            "are kept",
            "localspec rm hf:tales/storyteller-GGUF",
            "with every model of that repository",
        )
    assert ("full" in error.message) == (number == errno.ENOSPC)
    mend = {errno.ENOSPC: "free some space", errno.EIO: "check that folder", errno.EROFS: "give yourself the right"}
    assert error.hint.startswith(mend[number])
    (left,) = machine.partials()
    size = left.stat().st_size
    assert error.detail == {"kept_bytes": size}
    assert 1_000_000 < size < len(TARGET_BYTES)
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert machine.server.downloads()[-1].range == f"bytes={size}-"


def test_a_disk_that_fails_at_the_end_costs_no_download(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        assert_fails(machine, ResourceError, "are kept")
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert len(machine.server.downloads()) == 1


def test_what_nobody_foresaw_costs_no_download(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise RuntimeError("a mistake of ours")

    with monkeypatch.context() as patch:
        patch.setattr("localspec.models.hub.pulled.Partial.settle", fail)
        with pytest.raises(RuntimeError):
            machine.pull(TARGET)
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert len(machine.server.downloads()) == 1


def test_a_file_system_without_permissions(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drive of Windows below WSL: the bytes are as right there."""

    def refuse(_fd: int, _mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchmod", refuse)
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert not machine.partials()


def test_a_cache_that_cannot_be_written(hub: Server, tmp_path: Path) -> None:
    (tmp_path / "hf").write_bytes(b"a file where the folder should be")
    error = assert_fails(Machine(hub, tmp_path), ResourceError, "cannot write")
    assert "are kept" not in error.message
    assert error.detail == {"kept_bytes": 0}


def test_an_answer_to_the_download_that_refuses_it(machine: Machine) -> None:
    machine.server.faults.cdn = [(400, {})]
    assert_fails(machine, NetworkError, "refuses the request for tales/storyteller-GGUF (status 400)")


def test_a_branch_that_moved(machine: Machine) -> None:
    machine.pull(DRAFT)
    machine.server.repos["tales/draft-GGUF"] = Repo({"sub/draft.Q8_0.gguf": TARGET_BYTES})
    assert machine.found(DRAFT) == [DRAFT_BYTES], "what is here stays what it is until the next pull"
    machine.pull(DRAFT)
    assert machine.found(DRAFT) == [TARGET_BYTES]


def test_a_commit_that_is_named(machine: Machine) -> None:
    old = machine.server.repos["tales/draft-GGUF"].commit
    machine.pull(f"hf:tales/draft-GGUF@{old}:Q8_0")
    assert machine.found(f"hf:tales/draft-GGUF@{old[:8]}:Q8_0") == [DRAFT_BYTES]
    assert machine.found(DRAFT) == [], "its main branch was never asked for"


def test_a_link_out_of_the_cache_is_no_file_of_it(machine: Machine, tmp_path: Path) -> None:
    machine.pull(TARGET)
    file = next(iter(machine.cache.all()))
    outside = tmp_path / "outside.gguf"
    outside.write_bytes(TARGET_BYTES)
    for target in (outside, Path("nowhere"), file.link, Path("/dev/zero"), tmp_path):
        file.link.unlink()
        file.link.symlink_to(target)
        assert machine.found(TARGET) == []
    file.link.unlink()
    file.blob.unlink()
    file.link.symlink_to(outside)
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert file.blob.is_file()
    assert not outside.samefile(file.link)
