"""Which models could draft for a target: by vocabulary and size, among files here, the catalogue and the hub.

A candidate's header decides: of a file here it is read, of one on the hub its first megabytes are fetched and kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.errors import LocalspecError, NotFoundError
from localspec.models.foreign import foreign_models
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.head import KINDS, LOW_BIT, MASKS, MTP
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.shards import read_model, size_on_disk
from localspec.models.heads import head_for
from localspec.models.hub.cache import Cache
from localspec.models.hub.files import is_model, part_number
from localspec.models.hub.remote import Hub
from localspec.models.low_bit import copies_of
from localspec.models.names import HubName
from localspec.models.pairs import PairReport, check_pair, require_fit
from localspec.models.plan.memory_use import LONGEST_DRAFT, assumed
from localspec.models.plan.search import ACCEPTANCE
from localspec.models.remote_header import HEADERS, remote_info
from localspec.sanitize import shown
from localspec.settings.folders import cache_folder

if TYPE_CHECKING:
    from localspec.control.profile import Learned

MAX_RATIO = 0.5  # of the target's bytes: a larger draft cannot pay
LOSES = "does not pay"
MEASURED, ASSUMED = "measured", "assumed"


@dataclass(frozen=True, slots=True)
class Known:
    """A number, and its basis: MEASURED on this machine, or ASSUMED."""

    value: float
    basis: str


@dataclass(frozen=True, slots=True)
class DraftCandidate:
    """A model that might draft. `where` is here, catalogue or hub; `name` what to type for it after --draft.

    `bytes` is its size; `about_bytes` instead where only the catalogue tells. `report` is None where the header was not
    looked at, and `reason` says why. `kind` is that of a head, "" for models. `learned` is what loads of the pair
    measured here, None where there was none.
    """

    name: str
    where: str
    bytes: int | None
    about_bytes: float | None = None
    report: PairReport | None = None
    reason: str = ""
    path: Path | None = None
    kind: str = ""
    learned: Learned | None = None

    @property
    def size(self) -> float:
        """Return the bytes, known or about."""
        return float(self.bytes if self.bytes is not None else self.about_bytes or 0)

    @property
    def use(self) -> float:
        """The share of a sample text that it can draft; 0 where its header was not looked at."""
        if self.report is None:
            return 0.0
        return 1.0 if self.report.overlap is None else self.report.overlap.use

    @property
    def acceptance(self) -> Known:
        """The chance that its token stands: as measured, else as assumed, times the share that it can write."""
        if self.learned is not None and self.learned.accepted is not None:
            return Known(self.learned.accepted, MEASURED)
        return Known(ACCEPTANCE * self.use, ASSUMED)

    def guess(self, target_bytes: int) -> Known:
        """Return the plain passes that a guess costs: as measured, else by the bytes of its own tokens for one."""
        if self.learned is not None and self.learned.guess is not None:
            return Known(self.learned.guess, MEASURED)
        shared = None if self.report is None else self.report.overlap
        spelled = 1.0 if shared is None else max(1.0, shared.spelled)
        return Known(spelled * self.size / target_bytes, ASSUMED)

    def gain(self, target_bytes: int) -> float:
        """Return the tokens a pass over its price, in plain passes, at the best length; 0 of one that cannot draft.

        A pass of more rows costs what was measured, else nothing more.
        """
        if not self.can_draft(target_bytes) or self.kind == MASKS:
            return 0.0
        known = None if self.learned is None else self.learned.rows
        guess, rows = self.guess(target_bytes).value, known or (1.0,) * (1 + LONGEST_DRAFT)
        tokens = accumulate(assumed(self.acceptance.value), initial=1.0)
        speeds = [n / (row + k * guess) for k, (n, row) in enumerate(zip(tokens, rows, strict=False))]
        return max(speeds[1:])

    def verdict(self, target_bytes: int) -> str:
        """Return "fits", "does not fit" with the reason, or why it is not known."""
        if self.report is None:
            return f"not looked at: {self.reason}"
        if not self.report.fits:
            return f"does not fit: {self.report.reasons[0]}"
        shared = self.report.overlap
        fits = "fits" if shared is None else f"has another vocabulary: it drafts {shared}"
        if self.size > MAX_RATIO * target_bytes:
            return f"{fits}, but is too large to pay: {100 * self.size / target_bytes:.0f} % of the target"
        return fits

    def worth(self, target_bytes: int) -> str:
        """Return the gain with what it rests on, "" of one that has none or whose guesses are a head's."""
        gain, accepted, guess = self.gain(target_bytes), self.acceptance, self.guess(target_bytes)
        if not gain or self.kind:
            return ""
        each = f"{100 * accepted.value:.0f} % accepted ({accepted.basis}), a guess {guess.value:.2g} ({guess.basis})"
        told = f"{LOSES}: " if gain < 1.0 else ""
        return f"{told}{gain:.2f} tokens for the price of a pass: {each}"

    def is_good(self, target_bytes: int) -> bool:
        """Whether it fits, with the same vocabulary, and is small enough to pay. Masks cost a pass of many rows."""
        if self.kind == MASKS:
            return False
        return self.can_draft(target_bytes) and self.report is not None and self.report.overlap is None

    def can_draft(self, target_bytes: int) -> bool:
        """Whether it fits, with whatever vocabulary, and is small enough to pay."""
        fits = self.report is not None and self.report.fits
        return fits and self.size <= MAX_RATIO * target_bytes


def look(path: Path, *, may_be_head: bool = False) -> ModelInfo:
    """Read a model's header, of a split model those of all parts. A draft may be a head."""
    return model_info(read_model(path), may_be_head=may_be_head)


def require_sound(target: Path, draft: Path | None) -> None:
    """Read the headers of a pair; raises what a load would, if they are damaged or do not go together."""
    found = look(target)
    if draft is not None:
        require_fit(found, look(draft, may_be_head=True))


def local_candidates(target: ModelInfo, folders: Iterable[Path] = ()) -> Iterator[DraftCandidate]:
    """Yield every GGUF model on this machine that is smaller than the target: the hub's cache, the target's folder.

    `folders` are looked into as well.
    """
    seen = {os.path.realpath(target.path)}
    beside = [] if target.path.parent == cache_folder(HEADERS) else [target.path.parent]
    for name, path in _local_files([*beside, *folders]):
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        with suppress(OSError):
            size = size_on_disk(path)
            if size < target.bytes and part_number(path.name) == 1:
                yield _checked(target, name, "here", size, path)


def local_drafts(target: ModelInfo) -> dict[str, Path]:
    """Return all on this machine that can draft for the target, by what to type after --draft.

    Heads and low-bit copies are those that were made here of this very file, models those of any vocabulary that are
    small enough.
    """
    heads = {kind: head_for(target.path, kind) for kind in KINDS if kind != MASKS}
    found = {kind: path for kind, path in heads.items() if path is not None}
    if target.has_mtp:
        found.setdefault(MTP, target.path)
    for at, copy in enumerate(copies_of(target.path)):
        found[str(copy.path) if at else LOW_BIT] = copy.path
    models = {
        one.name: one.path for one in local_candidates(target) if one.can_draft(target.bytes) and one.kind != MASKS
    }
    return found | {name: path for name, path in models.items() if path is not None and path not in found.values()}


def best_local_draft(target: Path) -> Path:
    """Return the draft that `auto` stands for in a pair. Raises NotFoundError if there is none on this machine.

    It is a head that was trained here for this very file, or else the target's own block for further tokens, which is
    the target's file, or else the model that fits and gains most, or else a low-bit copy that was predicted to pay. A
    copy is several times as large as such a model, and right hardly more often: docs/benchmarks.md.
    """
    head = head_for(target)
    if head is not None:
        return head
    info = look(target)
    if info.has_mtp:
        return target
    here = [one for one in local_candidates(info) if one.can_draft(info.bytes)]
    found = [one for one in here if one.is_good(info.bytes)]
    copy = next((one for one in copies_of(target) if one.pays), None)
    if not found and copy is not None:
        return copy.path
    if not found:
        raise _no_draft(target, info, max(here, key=lambda one: one.gain(info.bytes), default=None))
    best = max(found, key=lambda one: one.gain(info.bytes)).path
    assert best is not None, "it is on this machine"
    return best


def _no_draft(target: Path, info: ModelInfo, other: DraftCandidate | None) -> NotFoundError:
    """Say that no draft is here, and name the one of another vocabulary that gains most."""
    if other is None:
        hint = f"localspec pairs suggest {shown(str(target))}, or --draft none"
        return NotFoundError(f"no draft for {info.label} is on this machine", hint=hint)
    return NotFoundError(
        f"no draft with the vocabulary of {info.label} is on this machine",
        hint=f"--draft {shown(other.name)}, which has another vocabulary, or --draft none",
    )


def _local_files(folders: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield names and first parts of the models in the hub's cache and in some folders."""
    cache = Cache()
    newest: dict[tuple[str, str], tuple[str, Path]] = {}
    for file in cache.all():
        if cache.commit_of(file.repo, None) in (file.commit, None):
            newest[file.repo, file.name] = (str(HubName(file.repo, file=file.name)), file.link)
    yield from newest.values()
    yield from ((one.name, one.path) for one in foreign_models())
    for folder in folders:
        with suppress(OSError):
            for path in sorted(folder.iterdir()):
                if is_model(path.name) and path.is_file():
                    yield str(path), path


def _checked(target: ModelInfo, name: str, where: str, size: int, path: Path) -> DraftCandidate:
    try:
        found = look(path, may_be_head=True)
        kind = "" if found.head is None else found.head.kind
        known, report = None if kind else learned(target.path, path), check_pair(target, found)
        return DraftCandidate(name, where, size, report=report, path=path, kind=kind, learned=known)
    except LocalspecError as error:
        return DraftCandidate(name, where, size, reason=error.message, path=path)


def remote_candidate(target: ModelInfo, name: HubName, where: str, hub: Hub) -> DraftCandidate:
    """Compare the target with a model on the hub, of which only the header is fetched."""
    try:
        info, size, full = remote_info(name, hub, may_be_head=True)
    except LocalspecError as error:
        return DraftCandidate(str(name), where, None, reason=error.message)
    return DraftCandidate(str(full), where, size, report=check_pair(target, info))


def worth_of(target: ModelInfo, draft: ModelInfo) -> str:
    """Return what a draft that fits gains by what was measured or is assumed here, in words; "" where none is known."""
    return _checked(target, "", "here", draft.bytes, draft.path).worth(target.bytes)


def learned(target: Path, draft: Path) -> Learned | None:
    """Return what the profiles of these files say, None where there is none."""
    folder = cache_folder("profiles")
    if not folder.is_dir():
        return None
    from localspec.control.profile import learned_of  # late: it brings numpy

    with suppress(OSError):
        return learned_of(folder, [file_fingerprint(target), file_fingerprint(draft)])
    return None
