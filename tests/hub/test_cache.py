"""The cache over time: what was whole stays found, and what is removed leaves nothing behind."""

import errno
import os
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from localspec.errors import IntegrityError, NetworkError, ResourceError
from localspec.models.hub.cache import PARTIAL, blob_lock
from localspec.models.hub.remote import Body
from localspec.models.hub.remove import carry_out, plan_removal
from localspec.models.hub.transfer import Transfer
from localspec.models.names import HubName, parse_model
from tests.hub.machine import DRAFT, PARTS, TARGET, Machine, sha256
from tests.hub.models import DRAFT as DRAFT_BYTES
from tests.hub.models import TARGET as TARGET_BYTES
from tests.hub.models import parts
from tests.hub.server import Repo
from tests.hub.test_transfer import Seen

TALES = "tales/draft-GGUF"
NEW = "hf:tales/draft-GGUF:Q4_0"


def hub_name(text: str) -> HubName:
    name = parse_model(text)
    assert isinstance(name, HubName)
    return name


def test_another_quantisation_of_a_newer_commit_takes_nothing_away(machine: Machine) -> None:
    machine.pull(DRAFT)
    old = machine.server.repos[TALES].commit
    machine.server.repos[TALES] = Repo({"new-Q4_0.gguf": TARGET_BYTES, "sub/draft.Q8_0.gguf": TARGET_BYTES})
    machine.pull(NEW)
    assert machine.found(NEW) == [TARGET_BYTES]
    assert machine.found(DRAFT) == [DRAFT_BYTES], "the newer one was not pulled"
    assert machine.found(f"hf:{TALES}@main:Q8_0") == [], "a revision that is named is meant"
    assert machine.json("run", "-n", "2", "-m", DRAFT, "--offline", "hi")["pair"]["name"].endswith(f"@{old[:7]}:Q8_0")
    machine.pull(DRAFT)
    assert machine.found(DRAFT) == [TARGET_BYTES]


def test_a_branch_moves_once_all_files_are_here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three parts the last is another, and the hub loses it: the model that was whole is the model."""
    machine.pull(PARTS)
    before = machine.server.repos["tales/parts-GGUF"]
    files = dict(before.files)
    last = max(files)
    machine.server.repos["tales/parts-GGUF"] = Repo({**files, last: TARGET_BYTES})
    plan = machine.plan(PARTS)
    del machine.server.repos["tales/parts-GGUF"].files[last]
    monkeypatch.setattr("localspec.models.pull.PARALLEL", 1)
    with pytest.raises(NetworkError):
        machine.carry_out(plan)
    assert len(machine.links()) == 5, "two of the new commit are here"
    assert machine.cache.commit_of("tales/parts-GGUF", None) == before.commit
    assert machine.found(PARTS) == list(parts().values())


def test_a_repository_on_another_disk_is_found_and_pulled_into(machine: Machine) -> None:
    """Its folder is a link, as people make one who move it: huggingface_hub follows it too."""
    machine.pull(DRAFT)
    folder, elsewhere = machine.cache.folder(TALES), machine.folder / "other disk"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    assert machine.found(DRAFT) == [DRAFT_BYTES]
    assert [one["repo"] for one in machine.json("ls")["models"]] == [TALES]
    machine.server.repos[TALES].tags = {"v1": Repo({"sub/draft.Q8_0.gguf": TARGET_BYTES})}
    machine.pull(f"hf:{TALES}@v1:Q8_0")
    assert machine.found(f"hf:{TALES}@v1:Q8_0") == [TARGET_BYTES]
    assert machine.json("rm", "-y", f"hf:{TALES}@v1:Q8_0")["freed_bytes"] == len(TARGET_BYTES)
    assert machine.found(DRAFT) == [DRAFT_BYTES]
    assert folder.is_symlink()


def test_two_revisions_at_once(machine: Machine) -> None:
    machine.server.repos[TALES].tags = {"v1": Repo({"sub/draft.Q8_0.gguf": TARGET_BYTES})}
    pull = machine.pull(DRAFT, f"hf:{TALES}@v1:Q8_0")
    assert [item.listing.revision for item in pull.plan.items] == ["main", "v1"]
    assert machine.found(DRAFT) == [DRAFT_BYTES]
    assert machine.found(f"hf:{TALES}@v1:Q8_0") == [TARGET_BYTES]


def test_two_names_of_one_commit(machine: Machine) -> None:
    commit = machine.server.repos[TALES].commit
    pull = machine.pull(f"hf:{TALES}@{commit}:Q8_0", DRAFT)
    assert len(pull.plan.items) == 1
    assert machine.found(DRAFT) == [DRAFT_BYTES], "the branch has its commit"


def test_bytes_that_another_commit_uses_are_not_counted(machine: Machine) -> None:
    machine.pull(DRAFT)
    old = machine.server.repos[TALES].commit
    machine.server.repos[TALES].commit = "f" * 40
    machine.pull(DRAFT)
    assert machine.json("rm", "-y", f"hf:{TALES}@{old}:Q8_0")["freed_bytes"] == 0
    assert machine.json("rm", "-y", DRAFT)["freed_bytes"] == len(DRAFT_BYTES)


def test_a_link_that_leads_out_of_the_cache_or_nowhere_is_no_file_of_it(machine: Machine, tmp_path: Path) -> None:
    machine.pull(DRAFT)
    (file,) = machine.cache.all()
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    for name in ("mine", "nothing"):
        file.link.with_name(f"{name}-Q8_0.gguf").symlink_to(tmp_path / f"{name}.gguf")
    assert [one.link for one in machine.cache.all()] == [file.link]


def test_a_repository_is_removed_by_its_name_in_any_case(machine: Machine) -> None:
    """As some file systems find it. Where two differ by case alone, the one that is named goes."""
    other = hub_name("hf:Tales/Draft-gguf:Q8_0")
    machine.pull(DRAFT)
    (file,) = machine.cache.all()
    removal = plan_removal([other], machine.cache, machine.receipts)
    assert [one.link for one in removal.files] == [file.link]
    partial = file.blob.with_name(f"{'0' * 64}{PARTIAL}")
    partial.write_bytes(b"x")
    for one in (other, HubName(other.repo, file="sub/draft.Q8_0.gguf")):
        assert plan_removal([one], machine.cache, machine.receipts).partials == (), "of which file is not known"
    assert plan_removal([HubName(other.repo)], machine.cache, machine.receipts).partials == (partial,)
    machine.server.repos[other.repo] = machine.server.repos[TALES]
    machine.pull(str(other))
    both = {one.repo: one.link for one in machine.cache.all()}
    assert set(both) == {TALES, other.repo}
    for name in (hub_name(DRAFT), other):
        removal = plan_removal([name], machine.cache, machine.receipts)
        assert [one.link for one in removal.files] == [both[name.repo]]


def test_a_removal_that_is_refused_half_way_leaves_no_bytes_without_a_name(machine: Machine) -> None:
    """The last of three parts is being downloaded by another program."""
    machine.pull(PARTS)
    removal = plan_removal([hub_name(PARTS)], machine.cache, machine.receipts)
    lock = machine.cache.lock("tales/parts-GGUF", removal.files[-1].blob.name)
    with blob_lock(lock, 1.0), pytest.raises(ResourceError, match="just now") as caught:
        carry_out(removal, machine.cache, machine.receipts)
    assert caught.value.hint == "wait until that is over"
    (left,) = machine.cache.all()
    assert list(left.blob.parent.iterdir()) == [left.blob]
    assert machine.receipts.of(left.blob) is not None


def test_a_file_system_without_links(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "symlink", refuse)
    monkeypatch.setattr(os, "link", refuse)
    machine.pull(TARGET)
    assert machine.found(TARGET) == [TARGET_BYTES]
    machine.pull(TARGET)
    assert len(machine.server.downloads()) == 1
    (file,) = machine.cache.all()
    assert file.blob == file.link, "the bytes are there once"
    assert not list(machine.cache.root.glob("*/blobs/*"))
    receipt = machine.receipts.of(file.blob)
    assert receipt is not None
    assert receipt.pulled
    assert (machine.plan(TARGET).missing, machine.plan(TARGET).items[0].is_verified) == (0, True)
    file.link.write_bytes(TARGET_BYTES[:-1] + b"\0")
    with pytest.raises(IntegrityError, match="damaged"):
        machine.pull(TARGET)
    machine.pull(TARGET)
    removal = plan_removal([hub_name(TARGET)], machine.cache, machine.receipts)
    assert (removal.foreign, removal.bytes) == ((), len(TARGET_BYTES))
    carry_out(removal, machine.cache, machine.receipts)
    assert not list(machine.cache.root.glob("models--*"))


def test_a_link_that_cannot_be_made_leaves_nothing_beside(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the blob stays where other links may lead to it."""
    machine.pull(DRAFT)
    machine.server.repos["tales/draft-GGUF"].commit = "f" * 40
    replace = os.replace

    def full(source: str | Path, to: str | Path) -> None:
        if "snapshots" in str(to):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, to)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(ResourceError, match="full"):
            machine.pull(DRAFT)
    assert machine.found(DRAFT) == [DRAFT_BYTES]
    assert not [path for path in machine.cache.root.rglob(".*") if path.is_symlink()]


def test_a_receipt_that_cannot_be_written_costs_no_download(machine: Machine) -> None:
    """It is said once, whatever is pulled."""
    machine.receipts.folder.parent.mkdir(parents=True)
    machine.receipts.folder.write_bytes(b"a file where the folder should be")
    pull = machine.pull(TARGET, DRAFT)
    assert (machine.found(TARGET), machine.found(DRAFT)) == ([TARGET_BYTES], [DRAFT_BYTES])
    assert len(pull.warnings) == 1
    assert str(machine.receipts.folder) in pull.warnings[0]
    assert machine.pull(TARGET).warnings == pull.warnings, "found right again, and again not noted"
    assert len(machine.server.downloads()) == 2


def test_what_other_programs_left_is_told_apart(machine: Machine) -> None:
    blob = machine.cache.blob(TALES, sha256(DRAFT_BYTES))
    blob.parent.mkdir(parents=True)
    blob.with_name(f"{blob.name}.01234567.incomplete").write_bytes(b"x" * 2_000_000)
    said = machine.call("ls").stdout.decode()
    assert said.startswith("unfinished downloads of other programs: 1, 2.0 MB; rm leaves them")
    assert "interrupted" not in said
    blob.with_name(f"{blob.name}.localspec-part").write_bytes(b"x" * 1_000_000)
    lines = machine.call("ls").stdout.decode().split("\n\n")[0].splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "interrupted downloads: 1, 1.0 MB",
        "unfinished downloads of other programs: 1, 2.0 MB",
    ]
    assert sorted(one["pulled"] for one in machine.json("ls")["interrupted"]) == [False, True]


def test_a_file_that_two_names_mean_is_told_once(machine: Machine) -> None:
    machine.pull(TARGET)
    (file,) = machine.cache.all()
    machine.receipts.remove(file.blob)
    removal = plan_removal([hub_name(TARGET), HubName(file.repo)], machine.cache, machine.receipts)
    assert removal.files == removal.foreign == (file,)
    assert removal.bytes == len(TARGET_BYTES)


def test_a_commit_is_known_by_seven_characters_of_its_own(machine: Machine) -> None:
    snapshots = machine.cache.folder(TALES) / "snapshots"
    one, other = "a" * 7 + "b" * 33, "a" * 8 + "c" * 32
    for commit in (one, other, "a" * 7 + "no commit"):
        (snapshots / commit).mkdir(parents=True)
    assert machine.cache.commit_of(TALES, one[:8]) == one
    assert machine.cache.commit_of(TALES, "a" * 7) is None, "two are meant"
    assert machine.cache.commit_of(TALES, one[:7]) is None
    (snapshots / other).rmdir()
    assert machine.cache.commit_of(TALES, one[:7]) == one
    assert machine.cache.commit_of(TALES, one[:6]) is None
    machine.cache.set_ref(TALES, one, one)
    assert not (machine.cache.folder(TALES) / "refs").exists(), "a commit is no branch"
    machine.cache.set_ref(TALES, "refs/pr/1", one)
    assert machine.cache.commit_of(TALES, "refs/pr/1") == one
    (machine.cache.folder(TALES) / "refs" / "main").write_text("no commit")
    assert machine.cache.commit_of(TALES, None) is None


def test_what_stands_in_the_place_of_a_file_is_none(machine: Machine) -> None:
    machine.pull(DRAFT)
    (file,) = machine.cache.all()
    file.link.with_name("folder-Q8_0.gguf").mkdir()
    os.mkfifo(file.link.with_name("pipe-Q8_0.gguf"))
    round_about = file.link.with_name("round-Q8_0.gguf")
    round_about.symlink_to(round_about.name)
    no_commit = machine.cache.folder(TALES) / "snapshots" / "no commit" / "a-Q8_0.gguf"
    no_commit.parent.mkdir()
    for link in (file.link.with_name("two\nlines-Q8_0.gguf"), no_commit):
        link.symlink_to(file.blob)
    assert list(machine.cache.all()) == [file]
    assert len(machine.cache._steps(round_about)) == 8
    links = {path for path in file.blob.parents[1].rglob("*.gguf") if path.is_symlink()} - {round_about}
    assert machine.cache.users() == {file.blob: links, round_about: {round_about}}


def test_where_the_bytes_of_a_file_are(machine: Machine, tmp_path: Path) -> None:
    """A blob comes first; a file in the link's place is taken where there is none, and a link never."""
    cache, sha = machine.cache, "a" * 64
    blob, link = cache.blob(TALES, sha), cache.link(TALES, "b" * 40, "x-Q8_0.gguf")
    elsewhere = tmp_path / "elsewhere"
    for path in (blob, link, elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")
    assert cache.place(TALES, "b" * 40, "x-Q8_0.gguf", sha) == blob
    blob.unlink()
    assert cache.place(TALES, "b" * 40, "x-Q8_0.gguf", sha) == link
    link.unlink()
    assert cache.place(TALES, "b" * 40, "x-Q8_0.gguf", sha) == blob
    link.symlink_to(elsewhere)
    assert cache.place(TALES, "b" * 40, "x-Q8_0.gguf", sha) == blob


def test_of_older_commits_the_newest_is_meant(machine: Machine) -> None:
    """Where the branch's own lacks the model. What is named otherwise is no commit."""
    folder = machine.cache.folder(TALES) / "snapshots"
    for age, name in enumerate(("a" * 40, "no commit", "c" * 40, "b" * 40, "d" * 40), start=1):
        (folder / name).mkdir(parents=True)
        if name[0] != "a":
            (folder / name / "x-Q8_0.gguf").write_text(name)
        os.utime(folder / name, (1000 - age, 1000 - age))
    machine.cache.set_ref(TALES, "main", "a" * 40)
    assert machine.found(DRAFT) == [b"c" * 40]


def test_what_is_written_within_the_cache_stays_there(machine: Machine, tmp_path: Path) -> None:
    """A folder may be a link to another of the cache; a branch that is no text stands for nothing."""
    (machine.cache.root / "shared").mkdir(parents=True)
    folder = machine.cache.folder(TALES)
    folder.mkdir()
    (folder / "blobs").symlink_to(machine.cache.root / "shared")
    machine.pull(DRAFT)
    assert machine.found(DRAFT) == [DRAFT_BYTES]
    (folder / "refs" / "main").write_bytes(b"\xff" * 40)
    assert machine.cache.commit_of(TALES, None) is None


def test_two_dashes_in_the_name_of_a_folder(machine: Machine) -> None:
    """The first two end the owner's name. The hub has no such repository, and a person may have made the folder."""
    name = "tales/two--dashes"
    partial = machine.cache.blob(name, "0" * 64).with_name(f"{'0' * 64}{PARTIAL}")
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"x")
    assert machine.cache.repos() == [name]
    removal = plan_removal([HubName(name)], machine.cache, machine.receipts)
    lock = machine.cache.lock(name, "0" * 64)
    lock.parent.mkdir(parents=True)
    with blob_lock(lock, 1.0), pytest.raises(ResourceError, match=f"a file of {name} is being"):
        carry_out(removal, machine.cache, machine.receipts)
    assert partial.exists()


def test_a_blob_that_could_not_be_moved_stays(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no links, and the bytes cannot be given the link's name either."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    machine.cache.link(TALES, machine.server.repos[TALES].commit, "sub/draft.Q8_0.gguf").mkdir(parents=True)
    monkeypatch.setattr(os, "symlink", refuse)
    with pytest.raises(ResourceError, match="cannot write"):
        machine.pull(DRAFT)
    assert machine.cache.blob(TALES, sha256(DRAFT_BYTES)).read_bytes() == DRAFT_BYTES


def test_what_a_link_leads_to_in_another_repository_is_not_removed_with_it(machine: Machine) -> None:
    """Nothing else of the repository is here: it has no branch, and no bytes of its own."""
    blob = machine.cache.blob("tales/other", sha256(DRAFT_BYTES))
    blob.parent.mkdir(parents=True)
    blob.write_bytes(DRAFT_BYTES)
    link = machine.cache.link(TALES, "b" * 40, "sub/draft.Q8_0.gguf")
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    (file,) = machine.cache.all()
    assert (file.repo, file.blob) == (TALES, blob)
    carry_out(plan_removal([HubName(TALES)], machine.cache, machine.receipts), machine.cache, machine.receipts)
    assert not machine.cache.folder(TALES).exists()
    assert blob.read_bytes() == DRAFT_BYTES


def test_a_link_that_the_disk_refuses_is_an_error(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where there are no links at all the bytes are moved instead."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "symlink", full)
    with pytest.raises(ResourceError, match="full"):
        machine.pull(DRAFT)
    assert machine.cache.blob(TALES, sha256(DRAFT_BYTES)).read_bytes() == DRAFT_BYTES
    assert machine.links() == []


def test_a_model_that_some_commits_lack_is_removed_from_the_others(machine: Machine) -> None:
    machine.pull(DRAFT)
    machine.server.repos[TALES] = Repo({"new-Q4_0.gguf": TARGET_BYTES})
    machine.pull(NEW)
    removal = plan_removal([hub_name(DRAFT)], machine.cache, machine.receipts)
    assert [file.name for file in removal.files] == ["sub/draft.Q8_0.gguf"]
    carry_out(removal, machine.cache, machine.receipts)
    assert machine.found(NEW) == [TARGET_BYTES]
    assert plan_removal([hub_name(f"hf:{TALES}@nobranch:Q4_0")], machine.cache, machine.receipts).files == ()


def test_what_cannot_be_removed_is_an_error(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library only logs it. A partial file that has gone meanwhile is none."""
    machine.pull(DRAFT)
    (file,) = machine.cache.all()
    partial = file.blob.with_name(f"{'0' * 64}{PARTIAL}")
    partial.write_bytes(b"12345")
    removal = plan_removal([HubName(TALES)], machine.cache, machine.receipts)
    assert removal.bytes == len(DRAFT_BYTES) + 5
    partial.unlink()
    assert removal.bytes == len(DRAFT_BYTES)
    remove = os.remove

    def refuse(path: Path, *, dir_fd: int | None = None) -> None:
        if path == file.blob:
            raise PermissionError(errno.EPERM, "not permitted")
        remove(path, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "remove", refuse)
        patch.setattr(os, "unlink", refuse)
        with pytest.raises(ResourceError, match=r"cannot remove from .*: not permitted") as caught:
            carry_out(removal, machine.cache, machine.receipts)
    assert caught.value.hint == "check whose files they are"
    assert machine.receipts.of(file.blob) is not None
    carry_out(removal, machine.cache, machine.receipts)
    assert not list(machine.cache.root.glob("models--*"))


def test_a_search_names_repositories(machine: Machine) -> None:
    assert sorted(machine.hub().search("tales gguf")) == sorted(machine.server.repos)
    assert machine.hub().search("tales gguf", limit=1) == machine.hub().search("tales gguf")[:1]
    assert machine.hub().search("nothing") == []
    asked = parse_qs(urlsplit(machine.server.requests[-1].path).query)
    assert (asked["filter"], asked["sort"], asked["limit"]) == (["gguf"], ["downloads"], ["20"])


def test_what_is_told_of_the_hub_does_not_change(machine: Machine) -> None:
    machine.pull(DRAFT)
    (file,) = machine.cache.all()
    (item,) = machine.plan(DRAFT).items
    removal = plan_removal([hub_name(DRAFT)], machine.cache, machine.receipts)
    transfer = Transfer(machine.hub(), machine.cache, machine.receipts, item.listing, item.file, Seen())
    for told in (file, machine.receipts.of(file.blob), item.listing, item.file, removal, transfer, Body(0, iter(()))):
        with pytest.raises(FrozenInstanceError):
            setattr(told, fields(told)[0].name, None)
        assert not hasattr(told, "__dict__")


def test_a_link_that_is_right_stays(machine: Machine) -> None:
    machine.pull(DRAFT)
    (file,) = machine.cache.all()
    before = file.link.lstat()
    machine.pull(DRAFT)
    assert file.link.lstat() == before
