"""The user's settings in config.toml: read as values by their keys, changed without losing a comment.

Keys are the long names of options. Those at the top are for every command that has the option, those in a table for
the command of that name alone: `[run]`, `[early-exit.tune]`. Which keys there are, the command line knows.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localspec.errors import UsageError
from localspec.settings.folders import BOM, config_folder, replace_file

TABLE = "presets"
MAX_BYTES = 64 << 10
MAX_PARTS = 32  # of a dotted key: parsing TOML takes time and memory by the square of them
PAIR_TABLES = frozenset({"template-arg"})  # settings of KEY=VALUE that may be a table
Key = tuple[str, ...]  # the tables a value lies in, and its own name
Configuration = dict[Key, Any]  # in the order of the file
_DEEP = re.compile(
    rf"""(?:^|[{{,])[ \t]*(?:\[+[ \t]*)?(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MAX_PARTS}}}""", re.MULTILINE
)


def config_file() -> Path:
    return config_folder() / "config.toml"


def read_configuration() -> Configuration:
    """Return what config.toml says, nothing if it is not there. Raises UsageError for a file that is none."""
    text = _text(config_file())
    if _DEEP.search(text) is not None:
        raise UsageError(f"{config_file()}: a key has more than {MAX_PARTS} parts", hint="localspec config edit")
    try:
        return dict(_leaves(tomllib.loads(text), ()))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        what = str(error)
        message = f"{config_file()}: this is not TOML: {what[:1].lower()}{what[1:]}"
        raise UsageError(message, hint="localspec config edit") from None


def _leaves(table: Mapping[str, Any], above: Key) -> Iterator[tuple[Key, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and name in PAIR_TABLES:
            yield (*above, name), [f"{key}={json.dumps(each, default=str)}" for key, each in value.items()]
        elif isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def mistake(key: Key, what: str, hint: str = "") -> UsageError:
    return UsageError(f"{config_file()}: {what}", hint=hint or f"localspec config unset {'.'.join(key)}")


def assign(key: Key, value: Any) -> None:
    import tomlkit

    texts = value if isinstance(value, list) else [value]
    if any(isinstance(text, str) and re.search("[\ud800-\udfff]", text) for text in texts):
        raise UsageError(f"the value of {'.'.join(key)} is not a text of UTF-8", hint="write it in UTF-8")
    document = tomlkit.parse(_text(config_file()))
    table: Any = document
    for name in key[:-1]:
        table = table.setdefault(name, tomlkit.table())
    table[key[-1]] = value
    replace_file(config_file(), tomlkit.dumps(document))


def remove(key: Key) -> None:
    """Take one value or table out of config.toml, and what held it if that is then empty. Raises KeyError if it is not
    there."""
    import tomlkit

    document = tomlkit.parse(_text(config_file()))
    tables: list[Any] = [document]
    for name in key[:-1]:
        tables.append(tables[-1][name])
    del tables[-1][key[-1]]
    for above, name in zip(reversed(tables[:-1]), reversed(key[:-1]), strict=True):
        if len(above[name]) or tomlkit.dumps(above[name]).strip():
            break  # a comment is worth keeping too
        del above[name]
    replace_file(config_file(), tomlkit.dumps(document))


def _text(file: Path) -> str:
    try:
        if not file.is_file() and file.exists():
            raise UsageError(f"{file} is not a file", hint="move it")
        if file.exists() and file.stat().st_size > MAX_BYTES:
            raise UsageError(f"{file} is longer than {MAX_BYTES >> 10} KiB, more than settings need", hint="move it")
        return file.read_bytes().decode("utf-8").removeprefix(BOM)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", hint="correct its permissions") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: this is not a text of UTF-8", hint="localspec config edit") from None
