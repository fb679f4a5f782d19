"""Removing models from the hub's cache: their links at every commit, and the bytes that nothing else uses.

The hub's library unlinks and sweeps: bytes that it shares among repositories go once none refers to them.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError, ResourceError
from localspec.models.hub.cache import PARTIAL, Cache, CachedFile, blob_lock, real_place
from localspec.models.hub.files import select
from localspec.models.hub.pulled import Receipts
from localspec.models.names import HubName
from localspec.sanitize import shown


@dataclass(frozen=True, slots=True)
class Removal:
    """The links and bytes of what is to go.

    `foreign` are those that another program brought; `freed` are the bytes that nothing else uses.
    """

    files: tuple[CachedFile, ...]
    partials: tuple[Path, ...]
    foreign: tuple[CachedFile, ...]
    freed: int

    @property
    def bytes(self) -> int:
        return self.freed + sum(_size(partial) for partial in self.partials)


def plan_removal(wanted: Iterable[HubName], cache: Cache, receipts: Receipts) -> Removal:
    """Return all cached files of the models named, at every commit unless one is named."""
    everything, repos = list(cache.all()), cache.repos()
    files: list[CachedFile] = []
    partials: list[Path] = []
    for typed in wanted:
        name = replace(typed, repo=_spelt(typed.repo, repos))
        commit = None if name.revision is None else cache.commit_of(name.repo, name.revision)
        commits = {file.commit for file in everything if file.repo == name.repo}
        for each in sorted(commits if name.revision is None else commits & {commit}):
            there = {file.name: file for file in everything if (file.repo, file.commit) == (name.repo, each)}
            files += _of_model(there, name)
        if name.quant is None and name.file is None:
            partials += cache.folder(name.repo).glob(f"blobs/*{PARTIAL}")
    files = list(dict.fromkeys(files))
    foreign = [file for file in files if (receipt := receipts.any(file.blob)) is None or not receipt.pulled]
    return Removal(tuple(files), tuple(partials), tuple(foreign), _freed(files, cache))


def _freed(files: list[CachedFile], cache: Cache) -> int:
    """Return the bytes that no link leads to but those of these files, by whatever name."""
    users, going = cache.users(), {file.link for file in files}
    blobs = {Path(os.path.realpath(file.blob)) for file in files}
    return sum(blob.stat().st_size for blob in blobs if users.get(blob, set()) <= going)


def _spelt(repo: str, repos: list[str]) -> str:
    """Return a repository as its folder has it: the hub takes it in any case, and so do some file systems."""
    alike = [name for name in repos if name.lower() == repo.lower()]
    return alike[0] if len(alike) == 1 else repo


def _of_model(there: dict[str, CachedFile], name: HubName) -> list[CachedFile]:
    if name.quant is None and name.file is None:
        return list(there.values())
    try:
        return [there[file] for file in select(sorted(there), name)]
    except LocalspecError:
        return []


def carry_out(removal: Removal, cache: Cache, receipts: Receipts) -> None:
    """Remove. A file that is being downloaded just now is left, which is an error. Raises ResourceError.

    Each file is done with before the next: bytes without a link would never be found again.
    """
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
    """Remove a link, and the repository's blob with it where no other link leads there."""
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
    """Hold a blob's lock, or refuse at once."""
    from filelock import Timeout

    path = cache.lock(repo, blob)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with blob_lock(path, 0.2):
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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
