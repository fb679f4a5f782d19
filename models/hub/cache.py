"""The cache of the hub on this machine, which all its programs share: nothing of it is ours alone.

    models--ORG--REPO/refs/BRANCH                a commit
    models--ORG--REPO/snapshots/COMMIT/FILE      a link to
    models--ORG--REPO/blobs/SHA256               the bytes, or a link to
    blobs/XX/XETHASH                             bytes that several repositories share, which the hub's library keeps

Invariant: a blob is written elsewhere and renamed once its hash is right, a link is made after its blob. A link that
leads out of the cache is no file of it; the folder of a repository may be a link to another disk, though. Where a file
system has no links, the blob itself is moved to the link's place.
"""

import errno
import os
import stat
import uuid
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import IntegrityError, LocalspecError
from localspec.models.hub.files import is_model, select
from localspec.models.hub.problems import hub_settings
from localspec.models.hub.remote import COMMIT, MAIN
from localspec.models.names import HubName, check_file_name
from localspec.sanitize import shown

PARTIAL = ".localspec-part"  # after a blob's name: what a pull has of it. `hf cache prune` deletes *.incomplete
_MOST_STEPS = 8  # of links to links; more are a circle
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # what file systems without links answer


@dataclass(frozen=True, slots=True)
class CachedFile:
    """One model file in the cache: its name in the repository, the link in the snapshot, and the blob behind it. The
    blob is the repository's own: where the library shares its bytes with others, it is a link itself."""

    repo: str
    commit: str
    name: str
    link: Path
    blob: Path
    size: int


def must_stay_offline() -> bool:
    return bool(hub_settings().HF_HUB_OFFLINE)


def blob_lock(path: Path, patience: float) -> AbstractContextManager[object]:
    """Return the lock that the hub's library takes too. Entering raises filelock.Timeout after `patience` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    from huggingface_hub.utils import WeakFileLock, logging

    # Where the file system knows no locks, both libraries fall back to a file, and say so, which helps no person.
    warnings.filterwarnings("ignore", message=".*flock", category=UserWarning)
    logging.get_logger("huggingface_hub.utils._fixes").setLevel(logging.ERROR)
    return WeakFileLock(path, timeout=patience)


class Cache:
    def __init__(self, root: Path | None = None) -> None:
        if root is None:
            root = Path(hub_settings().HF_HUB_CACHE)
        self.root = Path(os.path.realpath(root))  # blobs are compared by their real paths

    def folder(self, repo: str) -> Path:
        return self.root / f"models--{repo.replace('/', '--')}"

    def blob(self, repo: str, sha256: str) -> Path:
        return self.folder(repo) / "blobs" / sha256

    def partial(self, repo: str, sha256: str) -> Path:
        return self.folder(repo) / "blobs" / f"{sha256}{PARTIAL}"

    def lock(self, repo: str, sha256: str) -> Path:
        """Return the file whose lock the hub's own programs hold while they download these bytes."""
        return self.root / ".locks" / self.folder(repo).name / f"{sha256}.lock"

    def link(self, repo: str, commit: str, name: str) -> Path:
        assert not check_file_name(name), "names are checked where they come from"
        return self.folder(repo) / "snapshots" / commit / name

    def place(self, repo: str, commit: str, name: str, sha256: str) -> Path:
        blob, link = self.blob(repo, sha256), self.link(repo, commit, name)
        is_moved = not blob.exists() and link.is_file() and not link.is_symlink()
        return link if is_moved else blob

    def users(self) -> dict[Path, set[Path]]:
        """Return, of each file that a link of any snapshot leads to, directly or over others, those links."""
        links: dict[Path, set[Path]] = {}
        with suppress(OSError):
            for top in sorted(self.root.glob("*--*/snapshots")):
                for folder, _, names in os.walk(top):
                    for link in (Path(folder) / name for name in names):
                        for step in self._steps(link):
                            links.setdefault(step, set()).add(link)
        return links

    def _steps(self, link: Path) -> list[Path]:
        """Return what a link leads to, step by step, by the folders' real paths; [] for a file, or a circle."""
        steps: list[Path] = []
        while link.is_symlink() and len(steps) < _MOST_STEPS:
            link = real_place(link.parent / os.readlink(link))
            steps.append(link)
        return steps

    def require_inside(self, path: Path) -> None:
        """Raise IntegrityError if the folder that `path` is to be written in is a link that leads out of the cache."""
        real = Path(os.path.realpath(path.parent))
        top = path.relative_to(self.root).parts[0]
        if not (real.is_relative_to(self.root) or real.is_relative_to(os.path.realpath(self.root / top))):
            raise IntegrityError(
                f"{shown(path.parent)} leads out of the cache, to {shown(real)}, where nothing is written",
                hint="remove the link there; to keep the cache elsewhere: HF_HUB_CACHE=FOLDER",
            )

    def commit_of(self, repo: str, revision: str | None) -> str | None:
        """Return the commit that a branch or a short hash stood for when it was last asked, None if it never was."""
        asked = MAIN if revision is None else revision
        with suppress(OSError, UnicodeDecodeError):
            ref = (self.folder(repo) / "refs" / asked).read_bytes()[:64].decode("ascii").strip()
            if COMMIT.fullmatch(ref):
                return ref
        with suppress(OSError):
            there = [name for name in os.listdir(self.folder(repo) / "snapshots") if COMMIT.fullmatch(name)]
            matching = [name for name in there if len(asked) >= 7 and name.startswith(asked)]
            return matching[0] if len(matching) == 1 else None
        return None

    def find(self, wanted: HubName) -> tuple[CachedFile, ...] | None:
        """Return the files of a model, all parts of it, None if they are not all there. Where no revision is named, a
        model that the branch's commit lacks is that of the newest commit that has it whole: the branch moves with
        whatever was pulled last, and takes nothing away."""
        commit = self.commit_of(wanted.repo, wanted.revision)
        if commit is None:
            return None
        others = self._newest_first(wanted.repo) if wanted.revision is None else ()
        by_commit = (self._whole(wanted, each) for each in (commit, *others))
        return next((files for files in by_commit if files is not None), None)

    def repos(self) -> list[str]:
        with suppress(OSError):
            folders = sorted(self.root.glob("models--*--*"))
            return [folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders]
        return []

    def all(self) -> Iterator[CachedFile]:
        for repo in self.repos():
            with suppress(OSError):
                for commit in sorted(os.listdir(self.folder(repo) / "snapshots")):
                    if COMMIT.fullmatch(commit):
                        yield from self._snapshot(repo, commit)

    def partials(self) -> Iterator[Path]:
        with suppress(OSError):
            for end in (".incomplete", PARTIAL):
                yield from sorted(self.root.glob(f"models--*/blobs/*{end}"))

    def publish(self, repo: str, commit: str, name: str, blob: Path) -> Path:
        """Make a finished blob found under its name, and return the link; without links, the blob in its place."""
        link = self.link(repo, commit, name)
        if link.is_file() and os.path.samefile(link, blob):
            return link
        link.parent.mkdir(parents=True, exist_ok=True)
        beside = link.with_name(f".{uuid.uuid4().hex}")
        try:
            os.symlink(os.path.relpath(blob, link.parent), beside)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            beside = blob  # moved, as the hub's library does: where nothing can link to it, nothing does
        try:
            os.replace(beside, link)
        finally:
            if beside != blob:
                beside.unlink(missing_ok=True)
        return link

    def set_ref(self, repo: str, revision: str, commit: str) -> None:
        if revision == commit:
            return
        ref = self.folder(repo) / "refs" / revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        beside = ref.with_name(f".{uuid.uuid4().hex}")
        try:
            beside.write_text(commit, "ascii")
            beside.replace(ref)
        finally:
            beside.unlink(missing_ok=True)

    def _newest_first(self, repo: str) -> list[str]:
        times: dict[str, float] = {}
        with suppress(OSError):
            for entry in os.scandir(self.folder(repo) / "snapshots"):
                if COMMIT.fullmatch(entry.name):
                    times[entry.name] = entry.stat().st_mtime
        return sorted(times, key=times.__getitem__, reverse=True)

    def _whole(self, wanted: HubName, commit: str) -> tuple[CachedFile, ...] | None:
        files = {file.name: file for file in self._snapshot(wanted.repo, commit)}
        with suppress(LocalspecError):
            return tuple(files[name] for name in select(sorted(files), wanted))
        return None

    def _snapshot(self, repo: str, commit: str) -> Iterator[CachedFile]:
        top = self.folder(repo) / "snapshots" / commit
        for folder, _, names in os.walk(top):
            for each in names:
                link = Path(folder) / each
                name = link.relative_to(top).as_posix()
                if is_model(name) and not check_file_name(name):
                    file = self._file(repo, commit, name, link)
                    if file is not None:
                        yield file

    def _file(self, repo: str, commit: str, name: str, link: Path) -> CachedFile | None:
        try:
            real = link.resolve()
            status = real.stat()
            blob = real_place(link.parent / os.readlink(link)) if link.is_symlink() else real_place(link)
        except (OSError, RuntimeError):  # a link that leads nowhere, or in a circle
            return None
        folder = self.folder(repo)
        home = Path(os.path.realpath(folder))
        if not (real.is_relative_to(home) or real.is_relative_to(self.root)):
            return None
        if blob.is_relative_to(home):
            blob = folder / blob.relative_to(home)  # as receipts and locks know it, also where the folder is a link
        if not stat.S_ISREG(status.st_mode):
            return None
        return CachedFile(repo, commit, name, link, blob, status.st_size)


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def real_place(path: Path) -> Path:
    return Path(os.path.realpath(path.parent)) / path.name
