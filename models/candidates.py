"""Which models could draft for a target: by vocabulary and size, among files here, the catalogue and the hub.

A candidate's header decides: of a file here it is read, of one on the hub its first megabytes are fetched and kept.
"""

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.control.chain import ALL_THE_SAME, MEASURED, Worth
from localspec.errors import LocalspecError, NotFoundError
from localspec.models.gguf.draft_kinds import KINDS, LOW_BIT, MASKS, MTP
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.shards import read_model, size_on_disk
from localspec.models.heads import head_for
from localspec.models.hub.cache import Cache
from localspec.models.hub.files import drafters, part_number
from localspec.models.hub.remote import Hub
from localspec.models.low_bit import copies_of, four_bit_copies
from localspec.models.names import HubName, ModelName
from localspec.models.other_programs import foreign_models, models_in
from localspec.models.pair_check import PairReport, check_pair, require_fit
from localspec.models.plan.models import ModelPart
from localspec.models.remote_header import HEADERS, remote_header
from localspec.models.worth import pair_models, worth
from localspec.sanitize import shown
from localspec.settings.folders import cache_folder

MAX_RATIO = 0.5  # of the target's bytes: a larger draft cannot pay, unless it was measured to


@dataclass(frozen=True, slots=True)
class DraftCandidate:
    """A model that might draft. `where` is here, catalogue or hub; `name` what to type for it after --draft.

    `bytes` is its size; `about_bytes` instead where only the catalogue tells. `report` is None where the header was not
    looked at, and `reason` says why. `kind` is that of a head, "" for models. `worth` is what it is worth where it
    fits. `copies` are the names of the same file in other places.
    """

    name: str
    where: str
    bytes: int | None
    about_bytes: float | None = None
    report: PairReport | None = None
    reason: str = ""
    path: Path | None = None
    kind: str = ""
    worth: Worth | None = None
    copies: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        return float(self.bytes if self.bytes is not None else self.about_bytes or 0)

    @property
    def fits(self) -> bool:
        return self.report is not None and self.report.fits

    def gain(self, target_bytes: int) -> float:
        """Return the tokens in the time of a plain pass; 0 of one that cannot draft, and of masks."""
        can = self.can_draft(target_bytes) and self.kind != MASKS
        return self.worth.gain if can and self.worth is not None else 0.0

    @property
    def is_untried(self) -> bool:
        """Whether its first load here would measure what it is worth: that of a head tries nothing."""
        return not self.kind and self.worth is not None and not self.worth.was_loaded

    @property
    def verdict(self) -> str:
        if self.report is None:
            return f"not looked at: {self.reason}"
        if not self.report.fits:
            return f"does not fit: {self.report.reasons[0]}"
        shared = self.report.overlap
        return "fits" if shared is None else f"has another vocabulary: it drafts {shared}"

    def too_large(self, target_bytes: int) -> str:
        is_told = self.worth is not None and self.worth.is_timed and self.worth.gain < 1.0
        if not self.fits or self.can_draft(target_bytes) or is_told:
            return ""
        return f"is too large to pay: {100 * self.size / target_bytes:.0f} % of the target"

    def worth_in_words(self, target_bytes: int) -> str:
        is_known = self.fits and self.kind != MASKS and self.worth is not None
        return self.too_large(target_bytes) or (self.worth.in_words if is_known and self.worth else "")

    def is_good(self, target_bytes: int) -> bool:
        """Whether it fits, with the same vocabulary, and is small enough to pay. Masks cost a pass of many rows."""
        is_same = self.report is not None and self.report.overlap is None
        return is_same and self.kind != MASKS and self.can_draft(target_bytes)

    def can_draft(self, target_bytes: int) -> bool:
        was_loaded = self.worth is not None and self.worth.was_loaded
        return self.fits and (self.size <= MAX_RATIO * target_bytes or was_loaded)


def look_at(path: Path, *, may_be_head: bool = False) -> ModelPart:
    header = read_model(path)
    return ModelPart.of(header, model_info(header, may_be_head=may_be_head))


def look(path: Path, *, may_be_head: bool = False) -> ModelInfo:
    return look_at(path, may_be_head=may_be_head).seen


def require_sound(target: Path, draft: Path | None) -> None:
    inspected = look(target)
    if draft is not None:
        require_fit(inspected, look(draft, may_be_head=True))


def local_candidates(target: ModelPart) -> Iterator[DraftCandidate]:
    """Yield every GGUF model on this machine that is smaller than the target: the hub's cache, the target's folder. A
    file that lies in several places is one candidate. Where a copy of it in four bits was made, that is it."""
    info = target.seen
    seen = {os.path.realpath(info.path)}
    beside = [] if info.path.parent == cache_folder(HEADERS) else [info.path.parent]
    same: dict[str, list[tuple[str, int, Path]]] = {}
    for name, path in _local_files(beside):
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        with suppress(OSError):
            size = size_on_disk(path)
            if size < info.bytes and part_number(path.name) == 1:
                same.setdefault(file_fingerprint(path), []).append((name, size, path))
    faster = four_bit_copies()
    for mark, ((name, size, path), *others) in same.items():
        if mark in faster:
            name, size, path = str(faster[mark].path), faster[mark].n_bytes, faster[mark].path
        try:
            checked = candidate(target, look_at(path, may_be_head=True), name, "here")
        except LocalspecError as error:
            checked = DraftCandidate(name, "here", size, reason=error.message, path=path)
        yield replace(checked, copies=tuple(other for other, _, _ in others))


def local_drafts(target: ModelPart) -> dict[str, Path]:
    """Return all on this machine that can draft for the target, by what to type after --draft. Heads and low-bit copies
    are those that were made here of this very file, models those of any vocabulary that are small enough."""
    info = target.seen
    heads = {kind: head_for(info.path, kind) for kind in KINDS if kind != MASKS}
    drafts = {kind: path for kind, path in heads.items() if path is not None}
    if info.has_mtp:
        drafts.setdefault(MTP, info.path)
    for at, copy in enumerate(copies_of(info.path)):
        drafts[str(copy.path) if at else LOW_BIT] = copy.path
    models = {
        each.name: each.path for each in local_candidates(target) if each.can_draft(info.bytes) and each.kind != MASKS
    }
    return drafts | {name: path for name, path in models.items() if path is not None and path not in drafts.values()}


def best_local_draft(target: Path, *, must: bool = False) -> tuple[Path | None, str]:
    """Return the draft that `auto` stands for in a pair, and why there is none. Raises NotFoundError if none is here.

    It is a head that was trained here for this very file, or else the target's own block for further tokens, which is
    the target's file, or else the model that fits and gains most, or else a low-bit copy that was predicted to pay. A
    copy is several times as large as such a model, and right hardly more often: docs/benchmarks.md. A model of another
    vocabulary is taken once it was measured to pay. One that is assumed to lose is taken until a load has measured it,
    then only if one `must` be.
    """
    head = head_for(target)
    if head is not None:
        return head, ""
    part = look_at(target)
    info = part.seen
    if info.has_mtp:
        return target, ""
    here = [each for each in local_candidates(part) if each.can_draft(info.bytes) and each.kind != MASKS]
    good = [each for each in here if each.is_good(info.bytes) or (each.worth and each.worth.how == MEASURED)]
    best = max(good, key=lambda each: each.gain(info.bytes), default=None)
    if best is not None and best.gain(info.bytes) >= 1.0:
        return best.path, ""
    copy = next((each for each in copies_of(target) if each.pays), None)
    if copy is not None:
        return copy.path, ""
    if best is not None and (must or best.is_untried):
        return best.path, ""
    if best is None:
        raise _no_draft(target, info, max(here, key=lambda each: each.gain(info.bytes), default=None))
    name = shown(best.name)
    return None, f"no draft is loaded: {name} {best.worth_in_words(info.bytes)}; -d {shlex.quote(name)} {ALL_THE_SAME}"


def _no_draft(target: Path, info: ModelInfo, other: DraftCandidate | None) -> NotFoundError:
    if other is None:
        hint = f"localspec plan {shown(str(target))} --hub, or --draft none"
        return NotFoundError(f"no draft for {info.label} is on this machine", hint=hint)
    message = f"no draft with the vocabulary of {info.label} is on this machine"
    return NotFoundError(message, hint=f"--draft {shown(other.name)}, which has another vocabulary, or --draft none")


def _local_files(folders: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    cache = Cache()
    newest: dict[tuple[str, str], tuple[str, Path]] = {}
    for file in cache.all():
        if cache.commit_of(file.repo, None) in (file.commit, None):
            newest[file.repo, file.name] = (str(HubName(file.repo, file=file.name)), file.link)
    yield from newest.values()
    yield from ((model.name, model.path) for model in foreign_models())
    yield from ((str(path), path) for folder in folders for path in models_in(folder, 0))


def drafters_beside(target: ModelName, hub: Hub) -> tuple[HubName, ...]:
    if isinstance(target, HubName):
        with suppress(LocalspecError):
            return drafters([file.name for file in hub.listing(target.repo, target.revision).files], target)
    return ()


def remote_candidate(target: ModelPart, name: HubName, where: str, hub: Hub) -> DraftCandidate:
    try:
        header, full = remote_header(name, hub)
        part = ModelPart.of(header, model_info(header, may_be_head=True))
    except LocalspecError as error:
        return DraftCandidate(str(name), where, None, reason=error.message)
    return candidate(target, part, str(full), where)


def candidate(target: ModelPart, draft: ModelPart, name: str, where: str) -> DraftCandidate:
    info = draft.seen
    kind, report = "" if info.head is None else info.head.kind, check_pair(target.seen, info)
    value = worth(*pair_models(target, draft)) if report.fits else None
    return DraftCandidate(name, where, info.bytes, report=report, path=info.path, kind=kind, worth=value)
