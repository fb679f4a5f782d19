"""Bringing one file of the hub into the cache.

The bytes go to a file beside their place, named after their hash; only when the hash of the whole is right is it
renamed, so what has the name is right. Whatever ended a transfer, a full disk too, the next one goes on from what is
there: if that turns out wrong, it begins anew, once. Only bytes that are known to be wrong are removed. One process at
a time: the lock is that of the hub's own programs, freed by the system when its holder dies.
"""

import errno
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from localspec.errors import IntegrityError, NetworkError, ResourceError
from localspec.models.hub.cache import PARTIAL, Cache, blob_lock, size_of
from localspec.models.hub.files import Listing, RepoFile
from localspec.models.hub.problems import is_passing, translated, wait_wanted
from localspec.models.hub.pulled import LostError, Partial, Receipts, hash_of, partial_file
from localspec.models.hub.remote import Hub
from localspec.sanitize import shown

LOCK_WAIT = 0.5  # seconds between two looks at a lock that another process holds
FRUITLESS = 5  # tries in a row that brought nothing, before the transfer fails
LONGEST_PAUSE = 120.0  # seconds that a server may ask to wait; a longer wait is told, and ends the transfer
STALE = 3600.0  # seconds without a change after which what another program left is taken for abandoned
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class DownloadCancelled(Exception):
    """Whoever wanted the file wants it no longer. What has come is kept."""


class Watch(Protocol):
    """Sees a transfer's progress, and can end it."""

    @property
    def is_cancelled(self) -> bool: ...

    def phase(self, name: str) -> None:
        """Tell what is done now: waiting for another process, hashing, downloading, or done. A "pause" of so long is
        one that the hub asks for; "again in" so long is the wait after a failure."""

    def at(self, n: int) -> None:
        """Tell how many bytes there are."""

    def warn(self, message: str) -> None:
        """Tell what is not as it should be, and hinders nothing."""


@dataclass(frozen=True, slots=True)
class Transfer:
    hub: Hub
    cache: Cache
    receipts: Receipts
    listing: Listing
    file: RepoFile
    watch: Watch

    def run(self) -> Path:
        """Return where the file is found, once it is whole and its hash right. Raises NetworkError, IntegrityError for
        bytes that are not those promised and for a cache that leads elsewhere, ResourceError for a disk that is full or
        cannot be written, DownloadCancelled."""
        repo, commit, name = self.listing.repo, self.listing.commit, self.file.name
        blob = self.cache.blob(repo, self.sha256)
        with writing(self.cache, self):
            self.cache.require_inside(blob)
            self.cache.require_inside(self.cache.link(repo, commit, name))
            blob.parent.mkdir(parents=True, exist_ok=True)
            with self._alone():
                place = self.cache.place(repo, commit, name, self.sha256)
                if place.exists():
                    self._verify(place)
                else:
                    self._bring(place)
                link = self.cache.publish(repo, commit, name, place)
                if place != link and not link.is_symlink():
                    with self._noting():
                        self.receipts.move(place, link)
                _clean(blob)
        self.watch.phase("done")
        return link

    @property
    def sha256(self) -> str:
        assert self.file.sha256 is not None, "files without a hash are refused when the pull is planned"
        return self.file.sha256

    @property
    def _partial(self) -> Path:
        return self.cache.partial(self.listing.repo, self.sha256)

    def bytes_left(self) -> int:
        return size_of(self._partial)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        from filelock import Timeout

        while True:
            self._look()
            held = blob_lock(self.cache.lock(self.listing.repo, self.sha256), LOCK_WAIT)
            try:
                held.__enter__()
                break
            except Timeout:
                self.watch.phase("waiting")
        try:
            yield
        finally:
            held.__exit__(None, None, None)

    def _verify(self, blob: Path) -> None:
        receipt = self.receipts.of(blob)
        if receipt is None or receipt.sha256 != self.sha256:
            self.watch.phase("hashing")
            if hash_of(blob, self._look) != self.sha256:
                blob.unlink()
                self.receipts.remove(blob)
                message = f"{shown(self.file.name)} in the cache is damaged: its hash is not the hub's; it was removed"
                raise IntegrityError(message, hint="run the same command again: it downloads the file")
            before = self.receipts.any(blob)
            self._receive(blob, blob, is_ours=before is not None and before.pulled)
        self.watch.at(self.file.size)

    def _bring(self, blob: Path) -> None:
        path = self._partial
        try:
            with partial_file(path, self.file.size, self.sha256) as part:
                self.watch.phase("hashing")
                part.resume(self._look)
                was_resumed = part.size > 0
                self._download(part)
                if was_resumed and not part.is_right:
                    part.clear()  # what an earlier pull left was not the start of this file
                    self._download(part)
                if not part.is_right:
                    raise self._wrong(part)
                part.settle()
            self._receive(blob, path, is_ours=True)  # before the name: killed in between, the file is still known
            os.replace(path, blob)
        except IntegrityError:
            path.unlink(missing_ok=True)
            raise
        except LostError:
            raise ResourceError(
                f"another program deleted {shown(self.file.name)} while it came: a cleaner of {shown(self.cache.root)}",
                hint="run the same command again, once that program has ended",
            ) from None

    def _download(self, part: Partial) -> None:
        self.watch.at(part.size)
        self.watch.phase("downloading")
        fruitless = 0
        while part.size < self.file.size:
            before = part.size
            try:
                with translated(self.listing.repo, self.hub.endpoint):
                    self._stream(part)
            except NetworkError as error:
                cause = error.__cause__
                if cause is None or not is_passing(cause) or wait_wanted(cause) > LONGEST_PAUSE:
                    raise
                fruitless = 0 if part.size > before else fruitless + 1
                if fruitless >= FRUITLESS:
                    raise
                wanted = wait_wanted(cause)
                self._rest(wanted or 0.5 * 2**fruitless, "pause" if wanted else "again in")
                continue
            fruitless = 0 if part.size > before else fruitless + 1
            if fruitless >= FRUITLESS:
                message = f"the hub ends {shown(self.file.name)} after {part.size} bytes of {self.file.size}"
                raise NetworkError(message, hint="run the same command again; it continues there")

    def _stream(self, part: Partial) -> None:
        with self.hub.body(self.listing, self.file, part.size) as body:
            if body.start != part.size:
                part.clear()  # the server ignores ranges: it gives the whole, from the start
            for chunk in body.chunks:
                self._look()
                if part.size + len(chunk) > part.total:
                    raise self._wrong(part, surplus=len(chunk))
                part.add(chunk)
                self.watch.at(part.size)

    def _wrong(self, part: Partial, surplus: int = 0) -> IntegrityError:
        came, due = f"the hash {part.digest[:12]}…", f"{part.sha256[:12]}…"
        if surplus:
            came, due = f"more than {part.total} bytes", "as many"
        return IntegrityError(
            f"{shown(self.file.name)} came with {came} instead of {due}; it was removed, and nothing uses it",
            hint="run the same command again; if it repeats, do not use this repository",
            detail={"file": shown(self.file.name), "sha256": part.sha256},
        )

    def _receive(self, blob: Path, now: Path, *, is_ours: bool) -> None:
        origin = {"repo": self.listing.repo, "commit": self.listing.commit, "file": self.file.name}
        status = os.stat(now)
        with self._noting():
            self.receipts.write(blob, status, sha256=self.sha256, pulled=is_ours, **origin)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Go on where a receipt cannot be written: the file is as right without one."""
        try:
            yield
        except OSError as error:
            self.watch.warn(
                f"what is pulled cannot be noted in {shown(self.receipts.folder)}: {error.strerror or error}; rm will "
                "want --force for it. To keep notes elsewhere: LOCALSPEC_HOME=FOLDER"
            )

    def _rest(self, seconds: float, why: str) -> None:
        while seconds > 0:
            self._look()
            self.watch.phase(f"{why} {math.ceil(seconds)} s")
            self.hub.pause(min(seconds, LOCK_WAIT))
            seconds -= LOCK_WAIT
        self.watch.phase("downloading")

    def _look(self, _done: int = 0) -> None:
        if self.watch.is_cancelled:
            raise DownloadCancelled


@contextmanager
def writing(cache: Cache, transfer: Transfer | None = None) -> Iterator[None]:
    """Tell whoever writes in the cache why that fails, as a ResourceError, and what is kept of a transfer."""
    try:
        yield
    except OSError as error:
        raise _unwritable(cache.root, error, transfer) from error


def _clean(blob: Path) -> None:
    """Remove what is left of downloads of this file, which is whole; the caller holds its lock."""
    with suppress(OSError):
        blob.with_name(blob.name + PARTIAL).unlink()
    for left in blob.parent.glob(f"{blob.name}.*incomplete"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE:
                left.unlink()


def _unwritable(folder: Path, error: OSError, transfer: Transfer | None) -> ResourceError:
    if error.errno in _FULL:
        message, mend = f"the disk of {shown(folder)} is full", "free some space"
    else:
        message = f"cannot write to {shown(folder)}: {error.strerror or error}"
        mend = "give yourself the right" if error.errno in _FORBIDDEN else "check that folder and its disk"
    n_bytes = 0 if transfer is None else transfer.bytes_left()
    if transfer is not None and n_bytes:
        message += f"; the {n_bytes / 1e6:,.0f} MB that came of {shown(transfer.file.name)} are kept"
        mend += f" (localspec rm hf:{transfer.listing.repo} removes them, with every model of that repository)"
        mend += " and run the same command again"
    return ResourceError(
        message,
        hint=f"{mend}, or keep the cache elsewhere with HF_HUB_CACHE=FOLDER",
        detail={"kept_bytes": n_bytes},
    )
