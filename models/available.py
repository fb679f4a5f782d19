"""What a person can choose from: pairs of the catalogue, models of the hub's cache, files of a folder.

Sizes of what is not here are the catalogue's, which are approximate. Nothing here touches the network or opens a file.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.models.catalog import Catalog, CatalogModel, CatalogPair
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model, size_on_disk
from localspec.models.hub.cache import Cache, CachedFile
from localspec.models.hub.files import quant_of, select
from localspec.models.lookup import placed
from localspec.models.names import DraftChoice, HubName, PairName, PathName, parse
from localspec.models.ollama import is_blob
from localspec.models.other_programs import OLLAMA, ForeignModel, foreign_models, models_in
from localspec.models.pair_check import require_fit
from localspec.models.recent import recent_pairs
from localspec.models.store import BUNDLED, PairRef, expand, find_model, locate
from localspec.sanitize import shown
from localspec.settings.request import LoadSettings

Where = Literal["here", "hub", "gone"]
NONE = DraftChoice.NONE.value  # a pair that was told to have no draft


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailablePair:
    """One pair. `ref` is what to type for it; sizes are in bytes, 0 where nothing is known, and `is_about` a guess.
    `where` is "here" if all its files are on this machine, "gone" if one of a path is not. `draft` is what would draft,
    in words."""

    name: str
    ref: str
    origin: str  # recent, yours, bundled, catalogue, cache, file, or the program that keeps it
    where: Where = "here"
    target_bytes: int
    draft_bytes: int = 0
    is_about: bool = False
    quant: str = ""
    draft: str = ""
    license: str = ""
    context: int = 0
    is_tested: bool = False
    notes: str = ""
    file: Path | None = None  # of one that is a file of the folder
    target: Path | None = None  # the target's first file, where it is one of this machine and known

    @property
    def bytes(self) -> int:
        return self.target_bytes + self.draft_bytes

    def has(self, words: Iterable[str]) -> bool:
        known = (self.name, self.ref, self.origin, self.where, self.draft, self.license, self.notes)
        text = " ".join(known).casefold()
        return all(word in text for word in words)


def listed(catalog: Catalog, folder: Path | None = None) -> list[AvailablePair]:
    """Return what a person chooses from: the pairs loaded last, then everything that there is. A file has one row: its
    own is left out where a pair with it was loaded, unless that was told to have no draft. One of Ollama's has a row
    for each of its names. Rows of one name begin with the folder of their file."""
    everything = offers(catalog, folder)
    known = {offer.ref: offer for offer in everything}
    recent = [known.get(offer.ref, offer) for offer in recent_offers()]  # the catalogue knows more of its own
    seen = {_file_of(offer) for offer in recent if offer.draft != NONE} - {None}
    rows = list(recent)
    for offer in everything:
        if offer not in recent and _file_of(offer) not in seen:
            rows.append(offer)
            seen |= {_file_of(offer)} - {None}
    names = [(offer.name, offer.draft) for offer in rows]
    return [
        replace(offer, name=f"{offer.target.parent.name}/{offer.name}")
        if offer.target is not None and names.count((offer.name, offer.draft)) > 1
        else offer
        for offer in rows
    ]


def _file_of(offer: AvailablePair) -> tuple[str, str] | None:
    if offer.target is None:
        return None
    return os.path.realpath(offer.target), offer.name if is_blob(offer.target) else ""


def offers(catalog: Catalog, folder: Path | None = None) -> list[AvailablePair]:
    models = [(model, _model(model, catalog)) for model in catalog.models.values()]
    here = [offer for _, offer in models if offer.where == "here"]
    known = {model.repo.lower() for model, offer in models if offer.where == "here"}
    cached = [
        _of_file(ForeignModel(str(name), "cache", files[0].link, sum(file.size for file in files), name))
        for name, files in whole_models(Cache())
        if name.repo.lower() not in known
    ]
    return [
        *(_pair(pair) for pair in catalog.pairs.values()),
        *map(_bundled, BUNDLED),
        *here,
        *cached,
        *map(_of_file, foreign_models()),
        *files_of(folder),
        *(offer for _, offer in models if offer.where != "here"),
    ]


def whole_models(cache: Cache) -> Iterator[tuple[HubName, list[CachedFile]]]:
    """Yield what is in the cache as whole models, parts together; incomplete ones are left out."""
    snapshots: dict[tuple[str, str], dict[str, CachedFile]] = {}
    for file in cache.all():
        snapshots.setdefault((file.repo, file.commit), {})[file.name] = file
    for (repo, commit), files in snapshots.items():
        left = dict(files)
        while left:
            first = min(left)
            try:
                parts = select(sorted(files), HubName(repo, commit, file=first))
            except (UsageError, LookupError):
                parts = (first,)
            except Exception:  # a part is missing
                del left[first]
                continue
            for part in parts:
                left.pop(part, None)
            quant = quant_of(first)
            same = [name for name in files if quant_of(name) == quant and name not in parts]
            is_clear = quant != "?" and not same
            name = HubName(repo, commit[:7], quant if is_clear else None, None if is_clear else first)
            yield name, [files[part] for part in parts]


def is_here(pair: PairName) -> bool:
    """Whether target and draft, if one is named, are on this machine. Raises IntegrityError for a changed file."""
    plain = PairName(pair.target, DraftChoice.NONE if pair.draft is DraftChoice.AUTO else pair.draft)
    try:
        locate(plain)
    except NotFoundError:
        return False
    return True


def where(named: PairName | str) -> Where:
    try:
        pair = expand(named) if isinstance(named, str) else named
        files = [each for each in (pair.target, pair.draft) if isinstance(each, PathName)]
        if any(not os.path.lexists(os.path.expanduser(placed(each).path)) for each in files):
            return "gone"
        return "here" if is_here(pair) else "hub"
    except NotFoundError:  # a file of a folder, or of another program's
        return "gone"
    except LocalspecError:
        return "hub"  # pulling it again mends it


def find(wanted: AvailablePair | str, *, must_draft: bool = False) -> PairRef:
    """Find the files of an offer or of any pair that is written down; without a draft, the best is taken, as by `auto`.
    `must_draft`: one that loses, too. Raises as `parse_pair`."""
    if isinstance(wanted, str) or wanted.file is None:
        pair = expand(wanted if isinstance(wanted, str) else wanted.ref)
    else:  # whose name may have a '+' in it
        pair = PairName(PathName(str(wanted.file), wanted.ref if wanted.origin == OLLAMA else ""))
    if pair.draft is DraftChoice.UNSET:
        with suppress(LocalspecError):  # loading says what is wrong with the target
            return locate(PairName(pair.target, DraftChoice.AUTO), must_draft=must_draft)
    return locate(pair, must_draft=must_draft)


def edge_draft(name: str | None) -> Path | None:
    """Return the file of the draft that is named where the target is a verifier's; None and none are copies alone.
    Raises UsageError for a pair, and as `parse_pair`."""
    if name in (None, NONE):
        return None
    assert name is not None
    if name == DraftChoice.AUTO.value or parse(name).draft is not DraftChoice.UNSET:
        message = f"the verifier has the target, and {shown(name)} names no draft alone"
        raise UsageError(message, hint="name one model, DRAFT.gguf, or none: copies are drafted then")
    return find_model(name)


def another(settings: LoadSettings, wanted: AvailablePair | str) -> tuple[LoadSettings, str]:
    """Return how to load another pair with the other settings of this one, and the pair's remark. In an edge the name
    is the draft's. Raises as `find`, and what a load would of headers that are damaged or do not go together."""
    from localspec.models.candidates import look, require_sound  # late: they read headers

    if settings.verifier is None:
        pair = find(wanted)
        require_sound(pair.target, pair.draft)
        draft = None if pair.draft is None else str(pair.draft.absolute())
        return replace(settings, target=str(pair.target.absolute()), draft=draft, name=pair.name), pair.remark
    drafting = edge_draft(wanted if isinstance(wanted, str) else str(wanted.file or wanted.ref))
    target = settings.name if settings.draft is None else settings.name.removesuffix(f"+{Path(settings.draft).stem}")
    if drafting is None:
        return replace(settings, draft=None, name=target), ""
    vocabulary = model_info(read_model(Path(settings.target)), needs_weights=False)
    require_fit(vocabulary, look(drafting, may_be_head=True))
    return replace(settings, draft=str(drafting.absolute()), name=f"{target}+{drafting.stem}"), ""


def _model(model: CatalogModel, catalog: Catalog) -> AvailablePair:
    drafts = catalog.drafts_of(model)
    pair = catalog.pair(model.name)
    assert pair is not None, "it is an entry"
    return AvailablePair(
        name=model.name,
        ref=model.name,
        origin="yours" if model.is_users else "catalogue",
        where=where(pair),
        target_bytes=round(1e9 * model.size_gb),
        draft_bytes=round(1e9 * drafts[0].size_gb) if drafts else 0,
        is_about=True,
        quant=next(iter(model.about_gb)),
        draft=drafts[0].name if drafts else model.builtin,
        license=model.license,
        context=model.context,
        is_tested=model.tested,
        notes=model.notes,
    )


def _pair(pair: CatalogPair) -> AvailablePair:
    draft = "" if isinstance(pair.pair.draft, DraftChoice) else str(pair.pair.draft)
    facts = {"draft": draft, "is_tested": pair.tested, "notes": pair.notes}
    return _named(pair.name, pair.pair, origin="yours", where=where(pair.pair), **facts)


def _bundled(name: str) -> AvailablePair:
    facts = {"quant": "Q8_0", "draft": "its own", "license": "mit", "is_tested": True}
    return _named(name, expand(name), origin="bundled", notes="Comes with localspec, for stories.", **facts)


def _named(name: str, pair: PairName, **facts: Any) -> AvailablePair:
    sizes = 0, 0
    with suppress(LocalspecError, OSError):  # it is not all here
        files = locate(pair)
        sizes = size_on_disk(files.target), 0 if files.draft is None else size_on_disk(files.draft)
    return AvailablePair(name=name, ref=name, target_bytes=sizes[0], draft_bytes=sizes[1], **facts)


def _of_file(model: ForeignModel) -> AvailablePair:
    return AvailablePair(
        name=model.label,
        ref=model.name,
        origin=model.program,
        target_bytes=model.bytes,
        quant=(model.hub and model.hub.quant) or quant_of(model.path.name),
        file=None if model.program == "cache" else model.path,
        target=model.path,
    )


def recent_offers() -> list[AvailablePair]:
    offers = []
    for each in recent_pairs():
        with suppress(OSError):
            target = Path(each.target)
            has_none = each.draft is None and each.name.endswith(f"+{NONE}")
            drafter = Path(each.draft).name if each.draft else NONE if has_none else ""
            name = each.name.removesuffix(f"+{drafter}")
            offer = _of_file(ForeignModel(each.pair, "recent", target, size_on_disk(target)))
            draft_bytes = size_on_disk(Path(each.draft)) if each.draft else 0
            offers.append(replace(offer, name=name, draft=drafter, draft_bytes=draft_bytes, file=None))
    return offers


def files_of(folder: Path | None) -> list[AvailablePair]:
    offers = []
    for path in () if folder is None else models_in(folder, 0):
        with suppress(OSError):  # a part of it is missing
            offers.append(_of_file(ForeignModel(str(path), "file", path, size_on_disk(path))))
    return offers
