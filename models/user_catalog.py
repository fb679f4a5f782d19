"""Changing the user's catalogue: what a person wrote there, comments included, stays as it is."""

import os
from pathlib import Path
from typing import Any

import tomlkit

from localspec.errors import DeclinedError, NotFoundError, UsageError
from localspec.models.catalog import load_catalog, read_tables, user_path, wrong_pair
from localspec.models.lookup import missing_file, placed
from localspec.models.names import DraftChoice, ModelName, PairName, PathName, is_alias
from localspec.models.store import BUNDLED
from localspec.sanitize import shown
from localspec.settings.folders import replace_file


def add(name: str, pair: PairName, notes: str = "", *, replace: bool = False) -> Path:
    """Give a pair a name; return the file it was written to. A bare name of a file stands for the one that is found, as
    after -m. Raises UsageError for a name that cannot be or is taken, unless it is to be replaced, and for what cannot
    be kept; NotFoundError for a file that is not there."""
    if not is_alias(name) or name in BUNDLED:
        raise UsageError(
            f"'{shown(name)}' cannot be a pair's name",
            hint="small letters, digits, '.', '_' and '-', at most 64 of them; storyteller is taken",
        )
    catalog = load_catalog()
    if name in catalog.pairs and not replace:
        raise UsageError(f"there is a pair called '{name}' already", hint=f"localspec pairs rm {name}, or --replace")
    if name in catalog.models and catalog.models[name].is_users:
        raise UsageError(f"there is a model called '{name}' in {shown(user_path())}", hint="choose another name")
    entry = {"target": _anywhere(pair.target), "draft": _anywhere(pair.draft), "notes": notes}
    entry = {key: value for key, value in entry.items() if value}
    why = wrong_pair(entry)
    if why:
        raise UsageError(f"'{name}' cannot be kept: {why}", hint=f"localspec pairs add {name} PAIR --notes TEXT")
    for each in (pair.target, pair.draft):
        if isinstance(each, PathName) and not os.path.lexists(_anywhere(each)):
            raise missing_file(each.path)
    document = _document()
    pairs: Any = document.setdefault("pairs", tomlkit.table(is_super_table=True))
    pairs[name] = tomlkit.item(entry)
    return _write(document)


def remove(name: str) -> Path:
    """Take a name of the user's own out; return the file. Raises NotFoundError for a name that nobody has,
    DeclinedError for one that comes with localspec. The file must be TOML and no more: what is wrong with an entry is
    mended by taking it out."""
    document = _document()
    for kind in ("pairs", "models"):
        table: Any = document.get(kind)
        if isinstance(table, dict) and name in table:
            del table[name]
            return _write(document)
    if name in BUNDLED or name in load_catalog().names():
        raise DeclinedError(f"'{shown(name)}' comes with localspec", hint="localspec pairs add replaces it")
    raise NotFoundError(f"you have no pair called '{shown(name)}'", hint="localspec pairs list")


def _anywhere(name: ModelName | DraftChoice) -> str:
    return os.path.abspath(os.path.expanduser(placed(name).path)) if isinstance(name, PathName) else str(name)


def _document() -> Any:
    read_tables(user_path())  # says what is wrong with the file before anything of it is changed
    try:
        return tomlkit.parse(user_path().read_text("utf-8"))
    except FileNotFoundError:
        return tomlkit.document()


def _write(document: Any) -> Path:
    replace_file(user_path(), tomlkit.dumps(document))
    return user_path()
