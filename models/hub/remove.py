"""Removing models from the hub's cache: their links at every commit, and the bytes that nothing else uses.

The hub's library unlinks and sweeps: bytes that it shares among repositories go once none refers to them.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError, ResourceError
from localspec.models.hub.cache import PARTIAL, Cache, CachedFile, blob_lock, real_place, size_of
from localspec.models.hub.files import select
from localspec.models.hub.pulled import Receipts
from localspec.models.names import HubName
from localspec.sanitize import shown


@dataclass(frozen=True, slots=True)
class Removal:
    """The links and bytes of what is to go. `foreign` are those that another program brought; `freed` are the bytes
    that nothing else uses."""

    files: tuple[CachedFile, ...]
    partials: tuple[Path, ...]
    foreign: tuple[CachedFile, ...]
    freed: int

    @property
    def bytes(self) -> int:
        return self.freed + sum(map(size_of, self.partials))


def plan_removal(wanted: Iterable[HubName], cache: Cache, receipts: Receipts) -> Removal:
    everything, files, partials = list(cache.all()), list[CachedFile](), list[Path]()
    for name in wanted:
        # The hub takes a name in any case, and so do some file systems: the folder's own is meant.
        alike = [repo for repo in cache.repos() if repo.lower() == name.repo.lower()]
        repo = alike[0] if len(alike) == 1 else name.repo
        commit = None if name.revision is None else cache.commit_of(repo, name.revision)
        commits = {file.commit for file in everything if file.repo == repo}
        is_whole = name.quant is None and name.file is None
        for each in sorted(commits if name.revision is None else commits & {commit}):
            there = {file.name: file for file in everything if (file.repo, file.commit) == (repo, each)}
            with suppress(LocalspecError):
                files += [there[file] for file in (there if is_whole else select(sorted(there), name))]
        if is_whole:
            partials += cache.folder(repo).glob(f"blobs/*{PARTIAL}")
    files = list(dict.fromkeys(files))
    foreign = [file for file in files if (receipt := receipts.any(file.blob)) is None or not receipt.pulled]
    # Bytes go where no link leads to them but those of these files, by whatever name.
    users, going = cache.users(), {file.link for file in files}
    blobs = {Path(os.path.realpath(file.blob)) for file in files}
    freed = sum(blob.stat().st_size for blob in blobs if users.get(blob, set()) <= going)
    return Removal(tuple(files), tuple(partials), tuple(foreign), freed)


def carry_out(removal: Removal, cache: Cache, receipts: Receipts) -> None:
    """Remove. A file that is being downloaded just now is left, which is an error. Raises ResourceError. Each file is
    done with before the next: bytes without a link would never be found again."""
    try:
        for file in removal.files:
            with _alone(cache, file.repo, file.blob.name):
                _unlink(file, cache, receipts)
        for partial in removal.partials:
            repo = partial.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
            with _alone(cache, repo, partial.name.removesuffix(PARTIAL)):
                partial.unlink(missing_ok=True)
    except OSError as error:
        message = f"cannot remove from {shown(cache.root)}: {error.strerror or error}"
        raise ResourceError(message, hint="check whose files they are") from error
    finally:
        for repo in {file.repo for file in removal.files}:
            _tidy(cache, repo)


def _unlink(file: CachedFile, cache: Cache, receipts: Receipts) -> None:
    from huggingface_hub.utils import DeleteCacheStrategy

    is_own = file.blob.is_relative_to(cache.folder(file.repo))
    is_last = cache.users().get(real_place(file.blob), set()) <= {file.link}
    blobs = frozenset({file.blob} if is_own and is_last and file.blob != file.link else ())
    none = frozenset[Path]()
    DeleteCacheStrategy(0, blobs, none, none, none, frozenset({file.link}), cache.root).execute()
    left = next((blob for blob in blobs if os.path.lexists(blob)), None)
    if left is not None:
        left.unlink()  # the library says nothing of what it cannot remove
    if is_last:
        receipts.remove(file.blob)


@contextmanager
def _alone(cache: Cache, repo: str, blob: str) -> Iterator[None]:
    from filelock import Timeout

    try:
        with blob_lock(cache.lock(repo, blob), 0.2):
            yield
    except Timeout:
        raise ResourceError(f"a file of {repo} is being downloaded just now", hint="wait until that is over") from None


def _tidy(cache: Cache, repo: str) -> None:
    top = cache.folder(repo)
    for folder, _, _ in sorted(os.walk(top / "snapshots"), reverse=True):
        with suppress(OSError):
            os.rmdir(folder)
    if not (top / "snapshots").exists():
        shutil.rmtree(top / "refs", ignore_errors=True)
        for name in ("blobs", ""):
            with suppress(OSError):
                os.rmdir(top / name)
