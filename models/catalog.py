"""The catalogue: names for models of the hub, what drafts for them, and names of a person's own.

`catalog.toml` beside this file is the built-in one, `catalog.toml` in the configuration folder the user's, whose
entries win. A size or a draft in it is a suggestion; the hub's answer and the vocabularies decide.
An entry that cannot be meant is one error, which names file and entry.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, ValidationError, convert

from localspec.errors import UsageError
from localspec.models.names import Alias, DraftChoice, HubName, ModelName, PairName, is_alias, parse_draft, parse_model
from localspec.sanitize import shown
from localspec.settings.folders import config_folder

MAX_BYTES = 4 << 20
MAX_AMOUNT = 1e6  # billions of weights, or 10^9 bytes

Line = Annotated[str, Meta(max_length=500)]
ModelText = Annotated[str, Meta(min_length=1, max_length=4096)]  # a name, path or hf:ORG/REPO: no path is longer
Amount = Annotated[float, Meta(gt=0, lt=MAX_AMOUNT)]
Entry = TypeVar("Entry", bound="CatalogEntry")
Name = TypeVar("Name")


class CatalogEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What any entry may say: whether a run has `tested` it, and `notes` for people. Its texts are lines."""

    tested: bool = False
    notes: Line = ""

    def __post_init__(self) -> None:
        for key in self.__struct_fields__:
            value = getattr(self, key)
            if isinstance(value, str) and not value.isprintable():
                raise ValueError(f"`{key}` has invisible characters")


class CatalogModel(CatalogEntry, frozen=True, kw_only=True):
    """A model of the hub. `about_gb` maps quantisations, the preferred first, to approximate sizes in 10^9 bytes.

    `params` is in billions of weights, `context` in tokens; `drafts` are names of the catalogue, the preferred first.
    `active`: of a mixture of experts, the billions of weights that a token uses. `cache_kib`: the cache of a token in
    f16, where it is unlike that of other models of the size. `heads` are published draft heads, as `repo` names them.
    `builtin` is the drafting that the checkpoint brings itself.
    """

    name: str
    family: Line
    repo: Line
    about_gb: Annotated[dict[str, Amount], Meta(min_length=1)]
    params: Amount
    license: Line
    context: Annotated[int, Meta(ge=1)]
    drafts: tuple[str, ...] = ()
    builtin: Literal["", "mtp", "eagle3", "layerskip"] = ""
    heads: tuple[str, ...] = ()
    active: Annotated[float, Meta(ge=0, lt=MAX_AMOUNT)] = 0.0
    cache_kib: Annotated[int, Meta(ge=0, lt=10**6)] = 0
    is_users: bool

    @property
    def source(self) -> HubName:
        return HubName(self.repo, quant=next(iter(self.about_gb)))

    @property
    def size_gb(self) -> float:
        return next(iter(self.about_gb.values()))


class PairEntry(CatalogEntry, frozen=True, kw_only=True):
    target: ModelText
    draft: ModelText | None = None


@dataclass(frozen=True, slots=True)
class CatalogPair:
    name: str
    pair: PairName
    tested: bool = False
    notes: str = ""


def read_catalog(path: Path, *, is_users: bool) -> tuple[dict[str, CatalogModel], dict[str, CatalogPair]]:
    """Return the models and pairs of a file, none if it is not there. Raises UsageError for the first mistake."""
    tables = read_tables(path)
    for table in tables:
        if table not in ("models", "pairs"):
            raise mistake(path, table, "the tables are [models.NAME] and [pairs.NAME]")
    models = {name: _model(path, name, entry, is_users) for name, entry in _entries(path, tables, "models")}
    pairs = {name: _pair(path, name, entry) for name, entry in _entries(path, tables, "pairs")}
    both = sorted(set(models) & set(pairs))
    if both:
        raise mistake(path, both[0], "it is both a model and a pair")
    return models, pairs


def read_tables(path: Path) -> dict[str, Any]:
    """Return what a file holds, whatever it means, nothing if it is not there. Raises UsageError if it is not TOML."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b"\xff"
        return tomllib.loads(data.decode("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        message = f"cannot read the catalogue {shown(path)}: {error.strerror}"
        raise UsageError(message, hint="correct or move it") from None
    except UnicodeDecodeError:
        raise UsageError(f"the catalogue {shown(path)} is not a text of UTF-8", hint="correct or move it") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"the catalogue {shown(path)} is not TOML: {shown(str(error))}", hint="mend it") from None


def _entries(path: Path, tables: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    table = tables.get(kind, {})
    if not isinstance(table, dict):
        raise mistake(path, kind, f"write [{kind}.NAME]")
    for name, entry in table.items():
        if not is_alias(name):
            raise mistake(
                path, f"{kind}.{name}", "a name has small letters, digits, '.', '_' and '-', at most 64 of them"
            )
        if not isinstance(entry, dict):
            raise mistake(path, f"{kind}.{name}", f"write [{kind}.{name}] and its keys below")
    return list(table.items())


def wrong_pair(entry: Mapping[str, Any]) -> str:
    """Return why an entry cannot be a pair's, as far as its keys go; "" if it can."""
    try:
        convert(entry, PairEntry)
    except ValidationError as error:
        return shown(str(error))
    return ""


def _entry(path: Path, where: str, entry: dict[str, Any], kind: type[Entry]) -> Entry:
    try:
        return convert(entry, kind)
    except ValidationError as error:
        raise mistake(path, where, shown(str(error))) from None


def _model(path: Path, name: str, entry: dict[str, Any], is_users: bool) -> CatalogModel:
    where = f"models.{name}"
    model = _entry(path, where, {**entry, "name": name, "is_users": is_users}, CatalogModel)
    for quant in model.about_gb:
        source = _name(path, where, f"hf:{model.repo}:{quant}", parse_model)
        if not isinstance(source, HubName) or source.quant != quant or source.repo != model.repo:
            raise mistake(path, where, f"'{shown(quant)}' of '{shown(model.repo)}' is no quantisation of a repository")
    return model


def _pair(path: Path, name: str, entry: dict[str, Any]) -> CatalogPair:
    where = f"pairs.{name}"
    pair = _entry(path, where, entry, PairEntry)
    target = _name(path, where, pair.target, partial(parse_model, is_whole=True))
    draft = DraftChoice.UNSET if pair.draft is None else _name(path, where, pair.draft, parse_draft)
    return CatalogPair(name, PairName(target, draft), pair.tested, pair.notes)


def _name(path: Path, where: str, text: str, parse: Callable[[str], Name]) -> Name:
    try:
        return parse(text)
    except UsageError as error:
        raise mistake(path, where, error.message) from None


def mistake(path: Path, where: str, why: str) -> UsageError:
    return UsageError(f"{shown(path)}, [{shown(where)}]: {why}", hint=f"correct {shown(path)}, or move it")


BUILTIN = Path(__file__).with_name("catalog.toml")


@dataclass(frozen=True, slots=True)
class Catalog:
    """All entries by name, the user's over the built-in ones. `shadowed` are the built-in models whose name is that of
    a pair of the user's: they go on drafting for others."""

    models: Mapping[str, CatalogModel]
    pairs: Mapping[str, CatalogPair]
    shadowed: Mapping[str, CatalogModel] = field(default_factory=dict)

    def names(self) -> list[str]:
        return sorted({*self.models, *self.pairs})

    def pair(self, name: str) -> PairName | None:
        """Return what a name stands for, with names of the catalogue inside it replaced; None for an unknown one."""
        return self._pair(name, ())

    def model(self, name: str) -> ModelName | None:
        pair = self.pair(name)
        return None if pair is None else pair.target

    def draft(self, name: str) -> ModelName | None:
        return self._draft(name, ())

    def drafts_of(self, model: CatalogModel) -> list[CatalogModel]:
        return [self.models.get(name) or self.shadowed[name] for name in model.drafts]

    def of_repo(self, repo: str) -> CatalogModel | None:
        return next((model for model in self.models.values() if model.repo.lower() == repo.lower()), None)

    def built_in(self, name: str) -> bool:
        model = self.models.get(name) or self.shadowed.get(name)
        return model is not None and not model.is_users

    def lost(self, name: str) -> list[str]:
        if self.pair(name) is not None:
            return []
        ends = {each.name: (each.pair.target, each.pair.draft) for each in self.pairs.values()}
        return [each for each, named in ends.items() if Alias(name) in named]

    def of_path(self, path: str) -> list[CatalogPair]:
        return [entry for entry in self.pairs.values() if path in (str(entry.pair.target), str(entry.pair.draft))]

    def _pair(self, name: str, above: tuple[str, ...]) -> PairName | None:
        entry = self.pairs.get(name)
        if entry is None:
            model = self.models.get(name)
            if model is None:
                return None
            return PairName(model.source, next((draft.source for draft in self.drafts_of(model)), DraftChoice.UNSET))
        if name in above:
            raise UsageError(f"the names {' and '.join(above)} stand for each other", hint=f"localspec pairs rm {name}")
        target, draft = entry.pair.target, entry.pair.draft
        if isinstance(target, Alias):
            inner = self._pair(target.name, (*above, name))
            if inner is not None:  # else whoever looks it up says so
                target = inner.target
                draft = inner.draft if draft is DraftChoice.UNSET else draft
        if isinstance(draft, Alias):
            draft = self._draft(draft.name, (*above, name)) or draft
        return PairName(target, draft)

    def _draft(self, name: str, above: tuple[str, ...]) -> ModelName | None:
        if name in self.models and name not in self.pairs:
            return self.models[name].source
        pair = self._pair(name, above)
        if pair is None:
            return None
        return pair.target if isinstance(pair.draft, DraftChoice) else pair.draft


def user_path() -> Path:
    return config_folder() / "catalog.toml"


def load_catalog(user: Path | None = None) -> Catalog:
    built_in, _ = read_catalog(BUILTIN, is_users=False)
    models, pairs = read_catalog(user or user_path(), is_users=True)
    shadowed = {name: built_in.pop(name) for name in pairs if name in built_in}
    catalog = Catalog({**built_in, **models}, pairs, shadowed)
    for model in catalog.models.values():
        for draft in model.drafts:
            if draft not in catalog.models and draft not in shadowed:
                path = user or user_path() if model.is_users else BUILTIN
                raise mistake(
                    path, f"models.{model.name}", f"its draft '{shown(draft)}' is not a model of the catalogue"
                )
    return catalog
