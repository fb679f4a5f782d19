"""From what a person types to the files of a pair, as far as they are on this machine.

`expand` replaces the catalogue's names, `locate` finds the files: a path as it is, a model of the hub in the hub's
cache. A draft may be named by its kind, such as eagle3: that is the head of this kind for the target.

Nothing here touches the network; what would have to be pulled first is a NotCachedError, which says so.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.models.gguf.draft_kinds import KINDS, LOW_BIT, MASKS, MTP
from localspec.models.lookup import find_cached, missing_file, placed, unknown_name, with_known_name
from localspec.models.names import Alias, DraftChoice, HubName, ModelName, PairName, PathName, parse, parse_draft
from localspec.models.ollama import named, spoken
from localspec.sanitize import shown
from localspec.settings.request import LoadSettings, Speculation

DEFAULT = "storyteller"
HERE = Path(__file__).parent  # the bundled models lie here


@dataclass(frozen=True)
class Bundled:
    """A pair that comes with the package: file names under models/. Heads lie in a folder of the pair's name. It is a
    demonstration: `speculation` drafts visibly where a person chose nothing, though no time is won."""

    target: str
    draft: str
    speculation: Speculation


BUNDLED: dict[str, Bundled] = {
    "storyteller": Bundled(
        "storyteller/target-q8_0.gguf",
        "storyteller/draft-q8_0.gguf",
        Speculation(method="draft-model", k=3),
    ),
}
INTRODUCTION = (
    "storyteller writes stories (5 million parameters); it is not an assistant. "
    "It is a demonstration: so small that drafting wins no time. What guesses gain here: localspec demo",
    "A real pair: localspec pairs list, then localspec pull NAME. "
    "A draft for a model that you have: localspec plan FILE.gguf --hub",
)


@dataclass(frozen=True)
class PairRef:
    """The files of a pair; `draft` is None without a draft model, `name` is what to call the pair on screen. Of a split
    model the first part stands for all. `remark` says why `auto` stands for no draft."""

    target: Path
    draft: Path | None
    name: str
    remark: str = ""


class NotCachedError(NotFoundError):
    """Models of the hub that are not on this machine; `wanted` are their names, `pair` the whole pair's."""

    def __init__(self, wanted: tuple[HubName, ...], pair: PairName) -> None:
        names = " and ".join(shown(str(name)) for name in wanted)
        are = "are" if len(wanted) > 1 else "is"
        super().__init__(
            f"{names} {are} not on this machine",
            hint=f"localspec pull {shown(str(pair))}",
            detail={"missing": [str(name) for name in wanted]},
        )
        self.wanted = wanted
        self.pair = pair


def parse_pair(ref: str | None = None, draft: str | None = None, *, must_draft: bool = False) -> PairRef:
    """Find the files that `ref` (the value of -m) and `draft` (of --draft) name; None means not given.

    Raises UsageError for a malformed reference, NotFoundError for an unknown name or a missing file, and NotCachedError
    for a model of the hub that was not pulled. Headers are read only for a draft that is to be chosen. Where none was
    named, a block for further tokens in the target's own file is the draft. `must_draft`: as `locate` has it.
    """
    return locate(expand(ref, draft), must_draft=must_draft)


def find_model(ref: str) -> Path:
    return locate(PairName(expand(ref).target)).target


def typed(ref: str | None = None, draft: str | None = None) -> PairName:
    """Return the pair that -m and --draft name together. Raises UsageError."""
    try:
        pair = parse(DEFAULT if ref is None else ref)
    except UsageError as error:
        raise with_known_name(error, ref or "") from None
    if draft is None:
        return pair
    if pair.draft is not DraftChoice.UNSET:
        raise UsageError("the draft is given twice: in -m and in --draft", hint="leave one of the two out")
    return PairName(pair.target, parse_draft(draft))


def expand(ref: str | None = None, draft: str | None = None) -> PairName:
    """Return the pair that -m and --draft name together, names of the catalogue replaced by what they stand for. The
    draft is UNSET only where none was named and none belongs to the target. AUTO stays where the files have to be
    looked at. Raises UsageError and NotFoundError."""
    pair = typed(ref, draft)
    target, own = _target(pair.target)
    chosen = pair.draft
    if chosen is DraftChoice.UNSET:
        chosen = own
    elif chosen is DraftChoice.AUTO:
        chosen = own if own is not DraftChoice.UNSET else _of_family(target)
    elif isinstance(chosen, Alias) and chosen.name not in BUNDLED:
        from localspec.models.catalog import load_catalog

        catalog = load_catalog()
        catalogued = catalog.draft(chosen.name)
        if catalogued is None and not is_kind(chosen):
            catalogued = _target(chosen)[0]
        chosen = catalogued or chosen
    return PairName(target, placed(chosen) if isinstance(chosen, PathName) else chosen)


def locate(pair: PairName, *, must_draft: bool = False) -> PairRef:
    """Find the files of a pair whose names were expanded. `must_draft`: auto takes a draft that loses, too."""
    missing = tuple(
        name for name in (pair.target, pair.draft) if isinstance(name, HubName) and find_cached(name) is None
    )
    if missing:
        raise NotCachedError(missing, pair)
    target, target_label = _file(pair.target, as_draft=False)
    draft = pair.draft
    if draft is DraftChoice.UNSET and _has_own_block(target):
        return PairRef(target, target, target_label)
    if draft is DraftChoice.AUTO:
        from localspec.models.candidates import best_local_draft  # reads headers

        own, why = best_local_draft(target, must=must_draft)
        return PairRef(target, own, f"{target_label}+{'none' if own is None else spoken(own, briefly=True)}", why)
    if isinstance(draft, DraftChoice):
        end = "+none" if draft is DraftChoice.NONE else ""
        return PairRef(target, None, target_label + end)
    if is_kind(draft):
        return PairRef(target, _head(pair.target, target, str(draft)), f"{target_label}+{draft}")
    draft_path, draft_label = _file(draft, as_draft=True)
    is_bundled = isinstance(pair.target, Alias) and pair.target == draft
    return PairRef(target, draft_path, target_label if is_bundled else f"{target_label}+{draft_label}")


def _target(name: ModelName) -> tuple[ModelName, ModelName | DraftChoice]:
    if not isinstance(name, Alias):
        return placed(name) if isinstance(name, PathName) else name, DraftChoice.UNSET
    if name.name in BUNDLED:
        return name, name
    from localspec.models.catalog import load_catalog
    from localspec.models.other_programs import by_part  # late: it reads what other programs keep

    catalog = load_catalog()
    pair = catalog.pair(name.name)
    if pair is None:
        foreign = named(name.name)
        if foreign is not None:
            return PathName(str(foreign.weights()), foreign.name), DraftChoice.UNSET
        if os.path.isdir(name.name):
            return PathName(f"./{name}"), DraftChoice.UNSET
        local = None if os.path.exists(name.name) else by_part(name.name)
        if local is not None:
            return PathName(str(local.path), "" if local.name == str(local.path) else local.name), DraftChoice.UNSET
        raise unknown_name(name.name, [*BUNDLED, *catalog.names()])
    for each, known in ((pair.target, tuple(BUNDLED)), (pair.draft, (*BUNDLED, *KINDS, LOW_BIT))):
        if isinstance(each, Alias) and each.name not in known:
            raise unknown_name(each.name, [*BUNDLED, *catalog.names()])
    is_whole = pair.draft is DraftChoice.UNSET and isinstance(pair.target, Alias) and pair.target.name in BUNDLED
    return pair.target, pair.target if is_whole else pair.draft


def _of_family(target: ModelName) -> ModelName | DraftChoice:
    """Return the catalogue's draft for a model of the hub; AUTO where it has none, and where it is here: its worth is
    compared with that of others."""
    if isinstance(target, HubName):
        from localspec.models.catalog import load_catalog

        catalog = load_catalog()
        model = catalog.of_repo(target.repo)
        draft = catalog.drafts_of(model)[0].source if model is not None and model.drafts else None
        if draft is not None and (find_cached(draft) is None or find_cached(target) is None):
            return draft
    return DraftChoice.AUTO


def _file(name: ModelName, *, as_draft: bool) -> tuple[Path, str]:
    if isinstance(name, HubName):
        cached = find_cached(name)
        assert cached is not None, "it was looked for before"
        return cached[0], str(cached[1])
    if isinstance(name, PathName):
        path = os.path.expanduser(name.path)
        if not os.path.lexists(path) or "\0" in path:
            raise missing_file(name.path)
        if os.path.isdir(path):
            from localspec.models.other_programs import only_model  # late, as above

            path = str(only_model(Path(path)))
        return Path(path), shown(name.label) or spoken(path, briefly=True)
    files = BUNDLED.get(name.name)
    if files is None:
        raise unknown_name(name.name, list(BUNDLED))
    own = HERE / (files.draft if as_draft else files.target)
    if not own.is_file():
        message = f"the bundled model {files.draft if as_draft else files.target} is missing from this installation"
        raise NotFoundError(message, hint="Install localspec again.")
    return own, name.name


def _has_own_block(target: Path) -> bool:
    from localspec.models.gguf.architectures import MTP_ARCHS
    from localspec.models.gguf.header import read_architecture  # late: few commands look into a file before its load

    with suppress(LocalspecError, OSError):
        return read_architecture(target) in MTP_ARCHS and _has_own_head(target)
    return False


def _has_own_head(target: Path) -> bool:
    from localspec.models.gguf.head import has_own_head  # late, as above
    from localspec.models.gguf.shards import read_model

    return has_own_head(read_model(target))


def is_kind(draft: ModelName | DraftChoice) -> bool:
    return isinstance(draft, Alias) and draft.name in (*KINDS, LOW_BIT)


def bundled_head(name: str, kind: str) -> Path | None:
    path = HERE / name / f"{kind}-q8_0.gguf"
    return path if path.is_file() else None


def _head(name: ModelName, target: Path, kind: str) -> Path:
    from localspec.models.heads import head_for  # reads headers
    from localspec.models.low_bit import copy_of

    if kind == LOW_BIT:
        return copy_of(target)
    head = (bundled_head(name.name, kind) if isinstance(name, Alias) else None) or head_for(target, kind)
    if head is not None:
        return head
    if kind == MTP and _has_own_head(target):
        return target
    label = shown(str(name))
    made = "" if kind == MASKS else f"; to make one: localspec heads train {label}"
    raise NotFoundError(f"{label} has no head of the kind {kind}", hint=f"the head's file: {label}+HEAD.gguf{made}")


def usual_speculation(settings: LoadSettings) -> Speculation:
    """Return what drafts for a pair where a person chose nothing: `auto`, and for a bundled pair its draft or head."""
    if settings.draft is None or not is_bundled(settings.name):
        return Speculation()
    name, _, kind = settings.name.partition("+")
    return Speculation(method=kind) if kind else BUNDLED[name].speculation


def is_bundled(name: str) -> bool:
    target, plus, kind = name.partition("+")
    return target in BUNDLED and (not plus or kind in KINDS)


def introduction(settings: LoadSettings, speculation: Speculation) -> tuple[str, ...]:
    is_shown = is_bundled(settings.name) and speculation == usual_speculation(settings) != Speculation()
    return INTRODUCTION if is_shown else ()


def reference(settings: LoadSettings) -> str:
    if _pair_files(settings.name) == (settings.target, settings.draft):
        return settings.name
    return f"{target_reference(settings)}+{settings.draft or 'none'}"


def target_reference(settings: LoadSettings) -> str:
    if settings.verifier is not None:
        return settings.verifier
    name = settings.name.partition("+")[0]
    return name if _pair_files(f"{name}+none")[0] == settings.target else settings.target


def is_of_target(pair: str, settings: LoadSettings) -> bool:
    if settings.verifier is not None:
        return pair.startswith(f"{settings.verifier}+")
    with suppress(UsageError):
        return str(parse(pair).target) == target_reference(settings)
    return False


def _pair_files(name: str) -> tuple[str, str | None]:
    """Return the files that a pair's name stands for in any folder; "" for none, and for the name of a file."""
    try:
        named = parse(name)
        if any(isinstance(each, PathName) and not os.path.isabs(each.path) for each in (named.target, named.draft)):
            return "", None
        pair = parse_pair(name)
    except LocalspecError:
        return "", None
    return str(pair.target.absolute()), None if pair.draft is None else str(pair.draft.absolute())
