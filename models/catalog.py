"""The catalogue: names for models of the hub, what drafts for them, and names of a person's own.

`catalog.toml` beside this file is the built-in one, `catalog.toml` in the configuration folder the user's, whose
entries win. A size or a draft in it is a suggestion; the hub's answer and the vocabularies decide.

Also here: reading a catalogue's file, checked key by key. What cannot be meant is one error that names file and
entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from localspec.errors import UsageError
from localspec.models.names import Alias, DraftChoice, HubName, ModelName, PairName, is_alias, parse_draft, parse_model
from localspec.sanitize import shown
from localspec.settings.folders import config_folder

MAX_BYTES = 4 << 20
MAX_LINE = 500  # characters of a text
MAX_NAME = 4096  # and of a target or draft: systems take no longer path
KINDS = ("mtp", "eagle3", "layerskip")  # drafting that a checkpoint brings itself

Name = TypeVar("Name")


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model of the hub. `about_gb` maps quantisations, the preferred first, to approximate sizes in 10^9 bytes.

    `params` is in billions of weights, `context` in tokens; `drafts` are names of the catalogue, the preferred first.
    `active`: of a mixture of experts, the billions of weights that a token uses. `cache_kib`: the cache of a token in
    f16, where it is unlike that of other models of the size. `heads` are published draft heads, as `repo` names them.
    """

    name: str
    family: str
    repo: str
    about_gb: Mapping[str, float]
    params: float
    license: str
    context: int
    drafts: tuple[str, ...] = ()
    builtin: str = ""
    heads: tuple[str, ...] = ()
    active: float = 0.0
    cache_kib: int = 0
    tested: bool = False
    notes: str = ""
    is_users: bool = False

    @property
    def source(self) -> HubName:
        """Return where the preferred quantisation is."""
        return HubName(self.repo, quant=next(iter(self.about_gb)))

    @property
    def size_gb(self) -> float:
        """Return about how many 10^9 bytes the preferred quantisation has."""
        return next(iter(self.about_gb.values()))


@dataclass(frozen=True, slots=True)
class CatalogPair:
    """A name of the user's own for a target and a draft."""

    name: str
    pair: PairName
    tested: bool = False
    notes: str = ""
    is_users: bool = True


def read_catalog(path: Path, *, is_users: bool) -> tuple[dict[str, CatalogModel], dict[str, CatalogPair]]:
    """Return the models and pairs of a file, none if it is not there. Raises UsageError for the first mistake."""
    tables = read_tables(path)
    for table in tables:
        if table not in ("models", "pairs"):
            raise mistake(path, table, "the tables are [models.NAME] and [pairs.NAME]")
    models = {name: _model(path, name, entry, is_users) for name, entry in _entries(path, tables, "models")}
    pairs = {name: _pair(path, name, entry, is_users) for name, entry in _entries(path, tables, "pairs")}
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
        raise UsageError(
            f"cannot read the catalogue {shown(path)}: {error.strerror}", hint="correct or move it"
        ) from None
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


def _text(value: Any, longest: int = MAX_LINE) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= longest


def _name_of_model(value: Any) -> bool:
    return _text(value, MAX_NAME) and bool(value.strip())


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6


def _sizes(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(_number, value.values()))


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


# Key -> what it must be, in words and as a test.
_Keys = Mapping[str, tuple[str, Callable[[Any], bool]]]
_BOTH: _Keys = {
    "tested": ("true or false", lambda value: isinstance(value, bool)),
    "notes": (f"a line of text, at most {MAX_LINE} characters", _text),
}
_MODEL: _Keys = {
    **_BOTH,
    "family": ("a line of text", _text),
    "repo": ("ORG/REPO", _text),
    "about_gb": ("a table of sizes such as { Q4_K_M = 5.0 }", _sizes),
    "params": ("billions of weights, a number above 0", _number),
    "license": ("a line of text", _text),
    "context": (
        "a number of tokens",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value > 0,
    ),
    "drafts": ("a list of names", _names),
    "heads": ("a list of ORG/REPO", _names),
    "active": ("billions of weights, a number above 0", _number),
    "cache_kib": ("KiB of a token's cache in f16, a whole number", lambda value: _number(value) and value % 1 == 0),
    "builtin": (f"one of {', '.join(KINDS)}", lambda value: value in KINDS),
}
_MODEL_NEEDS = ("family", "repo", "about_gb", "params", "license", "context")
_PAIR: _Keys = {
    **_BOTH,
    "target": (f"a name, path or hf:ORG/REPO, at most {MAX_NAME} characters and none invisible", _name_of_model),
    "draft": ("as target, or 'none'", _name_of_model),
}
_PAIR_NEEDS = ("target",)


def wrong_pair(entry: Mapping[str, Any]) -> str:
    """Return why an entry cannot be a pair's, as far as its keys go; "" if it can."""
    return _wrong_keys(entry, _PAIR, _PAIR_NEEDS)


def _wrong_keys(entry: Mapping[str, Any], keys: _Keys, needs: tuple[str, ...]) -> str:
    for key, value in entry.items():
        if key not in keys:
            return f"the key '{shown(key)}' is unknown; known are {', '.join(sorted(keys))}"
        what, is_right = keys[key]
        if not is_right(value):
            return f"{key} must be {what}"
    return next((f"the key {key} is missing" for key in needs if key not in entry), "")


def _check_keys(path: Path, where: str, entry: dict[str, Any], keys: _Keys, needs: tuple[str, ...]) -> None:
    why = _wrong_keys(entry, keys, needs)
    if why:
        raise mistake(path, where, why)


def _model(path: Path, name: str, entry: dict[str, Any], is_users: bool) -> CatalogModel:
    where = f"models.{name}"
    _check_keys(path, where, entry, _MODEL, _MODEL_NEEDS)
    for quant in entry["about_gb"]:
        source = _name(path, where, f"hf:{entry['repo']}:{quant}", parse_model)
        if not isinstance(source, HubName) or source.quant != quant or source.repo != entry["repo"]:
            raise mistake(
                path, where, f"'{shown(quant)}' of '{shown(entry['repo'])}' is no quantisation of a repository"
            )
    return CatalogModel(name=name, is_users=is_users, **{**entry, "drafts": tuple(entry.get("drafts", ()))})


def _pair(path: Path, name: str, entry: dict[str, Any], is_users: bool) -> CatalogPair:
    where = f"pairs.{name}"
    _check_keys(path, where, entry, _PAIR, _PAIR_NEEDS)
    target = _name(path, where, entry["target"], partial(parse_model, is_whole=True))
    draft = _name(path, where, entry["draft"], parse_draft) if "draft" in entry else DraftChoice.UNSET
    return CatalogPair(name, PairName(target, draft), entry.get("tested", False), entry.get("notes", ""), is_users)


def _name(path: Path, where: str, text: str, parse: Callable[[str], Name]) -> Name:
    try:
        return parse(text)
    except UsageError as error:
        raise mistake(path, where, error.message) from None


def mistake(path: Path, where: str, why: str) -> UsageError:
    """Return what to say of an entry that cannot be meant."""
    return UsageError(f"{shown(path)}, [{shown(where)}]: {why}", hint=f"correct {shown(path)}, or move it")


BUILTIN = Path(__file__).with_name("catalog.toml")


@dataclass(frozen=True, slots=True)
class Catalog:
    """All entries by name, the user's over the built-in ones.

    `shadowed` are the built-in models whose name is that of a pair of the user's: they go on drafting for others.
    """

    models: Mapping[str, CatalogModel]
    pairs: Mapping[str, CatalogPair]
    shadowed: Mapping[str, CatalogModel] = field(default_factory=dict)

    def names(self) -> list[str]:
        return sorted({*self.models, *self.pairs})

    def pair(self, name: str) -> PairName | None:
        """Return what a name stands for, with names of the catalogue inside it replaced; None for an unknown one."""
        return self._pair(name, ())

    def model(self, name: str) -> ModelName | None:
        """Return the one model that a name stands for: of a pair its target."""
        pair = self.pair(name)
        return None if pair is None else pair.target

    def draft(self, name: str) -> ModelName | None:
        """Return what a name stands for as a draft: of a pair its draft if it has one, else the model itself."""
        return self._draft(name, ())

    def drafts_of(self, model: CatalogModel) -> list[CatalogModel]:
        """Return the models that draft for one, the preferred first."""
        return [self.models.get(name) or self.shadowed[name] for name in model.drafts]

    def of_repo(self, repo: str) -> CatalogModel | None:
        """Return the model whose repository this is."""
        return next((model for model in self.models.values() if model.repo.lower() == repo.lower()), None)

    def built_in(self, name: str) -> bool:
        """Whether a name comes with localspec, with a pair of the user's before it or not."""
        model = self.models.get(name) or self.shadowed.get(name)
        return model is not None and not model.is_users

    def lost(self, name: str) -> list[str]:
        """Return the pairs that name one called `name`, if there is none of that name."""
        if self.pair(name) is not None:
            return []
        ends = {each.name: (each.pair.target, each.pair.draft) for each in self.pairs.values()}
        return [each for each, named in ends.items() if Alias(name) in named]

    def of_path(self, path: str) -> list[CatalogPair]:
        """Return the pairs in which a file is named by this path."""
        return [one for one in self.pairs.values() if path in (str(one.pair.target), str(one.pair.draft))]

    def _pair(self, name: str, above: tuple[str, ...]) -> PairName | None:
        entry = self.pairs.get(name)
        if entry is None:
            model = self.models.get(name)
            if model is None:
                return None
            return PairName(model.source, next((one.source for one in self.drafts_of(model)), DraftChoice.UNSET))
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
    """Return where the user's catalogue is, or would be."""
    return config_folder() / "catalog.toml"


def load_catalog(user: Path | None = None) -> Catalog:
    """Read both catalogues. Raises UsageError for the first mistake in one."""
    built_models, built_pairs = read_catalog(BUILTIN, is_users=False)
    models, pairs = read_catalog(user or user_path(), is_users=True)
    shadowed = {name: built_models.pop(name) for name in pairs if name in built_models}
    for name in models:
        built_pairs.pop(name, None)
    catalog = Catalog({**built_models, **models}, {**built_pairs, **pairs}, shadowed)
    for model in catalog.models.values():
        for draft in model.drafts:
            if draft not in catalog.models and draft not in shadowed:
                path = user or user_path() if model.is_users else BUILTIN
                raise mistake(
                    path, f"models.{model.name}", f"its draft '{shown(draft)}' is not a model of the catalogue"
                )
    return catalog
