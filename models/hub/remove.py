"""Removing models from the hub's cache: their links at every commit, and the bytes that nothing else uses."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError, ResourceError
from localspec.models.hub.cache import PARTIAL, Cache, CachedFile, blob_lock
from localspec.models.hub.files import select
from localspec.models.hub.receipts import Receipts
from localspec.models.names import HubName
from localspec.sanitize import shown


@dataclass(frozen=True, slots=True)
class Removal:
    """The links and bytes of what is to go.

    `foreign` are those that another program brought; `kept` are blobs that other links lead to as well.
    """

    files: tuple[CachedFile, ...]
    partials: tuple[Path, ...]
    foreign: tuple[CachedFile, ...]
    kept: frozenset[Path]

    @property
    def bytes(self) -> int:
        """Return how many bytes become free."""
        freed = {file.blob: file.size for file in self.files if file.blob not in self.kept}
        return sum(freed.values()) + sum(_size(one) for one in self.partials)


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
    kept = frozenset(file.blob for file in set(everything) - set(files))
    return Removal(tuple(files), tuple(partials), tuple(foreign), kept)


def _spelt(repo: str, repos: list[str]) -> str:
    """Return a repository as its folder has it: the hub takes it in any case, and so do some file systems."""
    alike = [one for one in repos if one.lower() == repo.lower()]
    return alike[0] if len(alike) == 1 else repo


def _of_model(there: dict[str, CachedFile], name: HubName) -> list[CachedFile]:
    """Return a snapshot's files of a model; all of its models where none is named."""
    if name.quant is None and name.file is None:
        return list(there.values())
    try:
        return [there[one] for one in select(sorted(there), name)]
    except LocalspecError:
        return []


def carry_out(removal: Removal, cache: Cache, receipts: Receipts) -> None:
    """Remove. A file that is being downloaded just now is left, which is an error. Raises ResourceError.

    Each file is done with before the next: bytes without a link would never be found again.
    """
    try:
        for file in removal.files:
            with _Alone(cache, file.repo, file.blob.name):
                file.link.unlink(missing_ok=True)
                if all(other.blob != file.blob for other in cache.all()):
                    file.blob.unlink(missing_ok=True)
                    receipts.remove(file.blob)
        for partial in removal.partials:
            repo = partial.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
            with _Alone(cache, repo, partial.name.removesuffix(PARTIAL)):
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise ResourceError(
            f"cannot remove from {shown(cache.root)}: {error.strerror or error}", hint="check whose files they are"
        ) from error
    finally:
        for repo in {file.repo for file in removal.files}:
            _tidy(cache, repo)


class _Alone:
    """Holds a blob's lock, or refuses at once."""

    def __init__(self, cache: Cache, repo: str, blob: str) -> None:
        path = cache.lock(repo, blob)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._repo = repo
        self._lock = blob_lock(path, 0.2)

    def __enter__(self) -> None:
        from filelock import Timeout

        try:
            self._lock.__enter__()
        except Timeout:
            raise ResourceError(
                f"a file of {self._repo} is being downloaded just now", hint="wait until that is over"
            ) from None

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(None, None, None)


def _tidy(cache: Cache, repo: str) -> None:
    """Remove folders that are empty now, and the branches of a repository of which nothing is left."""
    top = cache.folder(repo)
    for folder, _, _ in sorted(os.walk(top / "snapshots"), reverse=True):
        with suppress(OSError):
            os.rmdir(folder)
    if not (top / "snapshots").exists():
        for folder, _, names in sorted(os.walk(top / "refs"), reverse=True):
            for name in names:
                with suppress(OSError):
                    os.unlink(Path(folder) / name)
            with suppress(OSError):
                os.rmdir(folder)
        for name in ("blobs", ""):
            with suppress(OSError):
                os.rmdir(top / name)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
