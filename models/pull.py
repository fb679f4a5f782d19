"""Pulling models: planned whole, then brought in parallel.

A plan asks the hub for every file's size, hash and availability, and the disk for its space, before the first byte is
downloaded; so what cannot succeed is refused with its numbers.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localspec.errors import ResourceError
from localspec.models.hub.cache import Cache, size_of
from localspec.models.hub.files import Listing, RepoFile, full_name, select
from localspec.models.hub.pulled import Receipts
from localspec.models.hub.remote import Hub
from localspec.models.hub.transfer import DownloadCancelled, Transfer, writing
from localspec.models.names import HubName
from localspec.sanitize import one_line, shown

PARALLEL = 4
MARGIN = 1.05  # of what is missing: the disk is not only ours


@dataclass(frozen=True, slots=True)
class Item:
    """One file to pull. `have` bytes of it are here already; all of them where `is_cached`."""

    listing: Listing
    file: RepoFile
    have: int
    is_cached: bool
    is_verified: bool

    @property
    def missing(self) -> int:
        return 0 if self.is_cached else self.file.size - self.have


@dataclass(frozen=True, slots=True)
class PullPlan:
    """What a pull will do. `names` are the models with commit and quantisation, as the hub has them now. `listings` are
    what was asked of the hub: repositories, each at a branch or commit."""

    names: tuple[HubName, ...]
    items: tuple[Item, ...]
    folder: Path
    free: int
    listings: tuple[Listing, ...] = ()

    @property
    def missing(self) -> int:
        return sum(item.missing for item in self.items)

    def require_space(self) -> None:
        needed = int(self.missing * MARGIN)
        if self.missing and needed > self.free:
            raise ResourceError(
                f"the download needs {needed / 1e6:,.0f} MB in {shown(self.folder)}, and {self.free / 1e6:,.0f} MB are "
                f"free: {(needed - self.free) / 1e6:,.0f} MB short",
                hint="free some space, or keep the cache elsewhere with HF_HUB_CACHE=FOLDER",
                detail={"needed_bytes": needed, "free_bytes": self.free},
            )


def make_plan(wanted: Sequence[HubName], hub: Hub, cache: Cache, receipts: Receipts) -> PullPlan:
    """Ask the hub for everything that `wanted` takes. Raises NetworkError, UsageError, IntegrityError."""
    names, items, seen = [], [], set()
    listings: dict[tuple[str, str | None], Listing] = {}
    for name in wanted:
        key = (name.repo, name.revision)
        if key not in listings:
            listings[key] = hub.listing(name.repo, name.revision)
        listing = listings[key]
        parts = select([file.name for file in listing.files], name)
        names.append(full_name(name, listing.commit[:7], parts[0]))
        for part in parts:
            file = listing.file(part)
            if (listing.snapshot, part) not in seen:
                seen.add((listing.snapshot, part))
                items.append(_item(listing, file, hub, cache, receipts))
    return PullPlan(tuple(names), tuple(items), cache.root, _free(cache.root), tuple(listings.values()))


def _item(listing: Listing, file: RepoFile, hub: Hub, cache: Cache, receipts: Receipts) -> Item:
    hub.check(listing, file)
    assert file.sha256 is not None
    place = cache.place(listing.repo, listing.commit, file.name, file.sha256)
    receipt = receipts.of(place) if place.is_file() else None
    is_linked = cache.link(listing.repo, listing.commit, file.name).exists()
    is_verified = receipt is not None and receipt.sha256 == file.sha256 and is_linked
    have = min(file.size, size_of(cache.partial(listing.repo, file.sha256)))
    return Item(listing, file, have, place.is_file(), is_verified)


def _free(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


@dataclass(slots=True)
class DownloadProgress:
    """One file's progress; written by its transfer, read by whoever shows it."""

    item: Item
    pull: Pull = field(repr=False)
    name: str = "waiting"
    bytes: int = 0

    @property
    def is_cancelled(self) -> bool:
        return self.pull.is_cancelled

    def label(self, width: int) -> str:
        name = one_line(self.item.file.name.rpartition("/")[2])
        return name if len(name) <= width else f"…{name[1 - width :]}"

    def phase(self, name: str) -> None:
        self.name = name

    def at(self, n: int) -> None:
        self.bytes = n

    def warn(self, message: str) -> None:
        if message not in self.pull.warnings:
            self.pull.warnings.append(message)


@dataclass
class Pull:
    """A plan being carried out by threads. `start` it; its `files` tell the progress meanwhile. `warnings` are for
    whoever waits for its end."""

    plan: PullPlan
    hub: Hub
    cache: Cache
    receipts: Receipts
    is_cancelled: bool = False
    files: list[DownloadProgress] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _left: list[Item] = field(default_factory=list)
    _errors: list[Exception] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.files = [DownloadProgress(item, self, bytes=item.have) for item in self.plan.items]
        self._left = list(self.plan.items)

    def start(self) -> None:
        """Begin. The threads die with the process: what they leave half done is never taken for whole."""
        todo = list(self.files)
        for number in range(min(PARALLEL, len(todo))):
            thread = threading.Thread(target=self._work, args=(todo,), daemon=True, name=f"pull-{number}")
            self._threads.append(thread)
            thread.start()

    @property
    def is_over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def cancel(self, patience: float = 2.0) -> None:
        self.is_cancelled = True
        until = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def result(self) -> None:
        if self._errors:
            raise self._errors[0]

    def _work(self, todo: list[DownloadProgress]) -> None:
        while True:
            with self._lock:
                if not todo or self.is_cancelled:
                    return
                mine = todo.pop(0)
            try:
                Transfer(self.hub, self.cache, self.receipts, mine.item.listing, mine.item.file, mine).run()
                self._settle(mine.item)
            except DownloadCancelled:
                return
            except Exception as error:  # told by `result`, in the thread that asks
                with self._lock:
                    self._errors.append(error)
                self.is_cancelled = True
                return

    def _settle(self, item: Item) -> None:
        snapshot = item.listing.snapshot
        with self._lock, writing(self.cache):
            self._left.remove(item)
            if all(item_left.listing.snapshot != snapshot for item_left in self._left):
                for listing in self.plan.listings:
                    if listing.snapshot == snapshot:
                        self.cache.set_ref(listing.repo, listing.revision, listing.commit)


def pull_all(pull: Pull, watch: Callable[[Pull], None], interval: float = 0.1) -> None:
    """Carry a pull out, calling `watch` on the way. Whatever interrupts it leaves what has come to go on from."""
    pull.start()
    try:
        while not pull.is_over:
            watch(pull)
            time.sleep(interval)
    except BaseException:
        pull.cancel()
        raise
    watch(pull)
    pull.result()
