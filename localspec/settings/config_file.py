"""The user's settings in config.toml: read with the line of every value, changed without losing a comment.

Keys are the long names of options. Those at the top are for every command that has the option, those in a table for
the command of that name alone: `[run]`, `[early-exit.tune]`. Which keys there are, the command line knows.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.errors import UsageError
from localspec.settings.folders import BOM, config_folder, replace_file

TABLE = "presets"
MAX_BYTES = 64 << 10
MAX_PARTS = 32  # of a dotted key: parsing TOML takes time and memory by the square of them
PAIR_TABLES = frozenset({"template-arg"})  # settings of KEY=VALUE that may be a table
Key = tuple[str, ...]  # the tables a value lies in, and its own name
_DEEP = re.compile(
    rf"""(?:^|[{{,])[ \t]*\[*[ \t]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MAX_PARTS}}}""", re.MULTILINE
)
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of the file. `line` is where it begins, from 1."""

    path: Key
    value: Any
    line: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the file says; nothing if there is none. `entries` are in the order of the file."""

    file: Path
    entries: tuple[Entry, ...] = ()

    def get(self, path: Key) -> Entry | None:
        return next((entry for entry in self.entries if entry.path == path), None)

    def mistake(self, entry: Entry, what: str, hint: str = "") -> UsageError:
        unset = f"localspec config unset {'.'.join(entry.path)}"
        return UsageError(f"{self.file}:{entry.line}: {what}", hint=hint or unset)


def config_file() -> Path:
    return config_folder() / "config.toml"


def read_configuration(file: Path | None = None) -> Configuration:
    """Read config.toml, nothing if it is not there. Raises UsageError for a file that is none, with its line."""
    file = file or config_file()
    text = _text(file)
    deep = _DEEP.search(text)
    if deep is not None:
        line = text.count("\n", 0, deep.end()) + 1
        raise UsageError(f"{file}:{line}: a key has more than {MAX_PARTS} parts", hint="localspec config edit")
    try:
        tomllib.loads(text)
        return Configuration(file, tuple(_with_tables(_entries(text))))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _not_toml(file, text, error) from None


def assign(path: Key, value: Any) -> Path:
    """Write one value into config.toml, which keeps everything else as it is; return the file."""
    import tomlkit

    if any(has_foreign_bytes(each) for each in (value if isinstance(value, list) else [value])):
        raise UsageError(f"the value of {'.'.join(path)} is not a text of UTF-8", hint="write it in UTF-8")
    file = config_file()
    document = tomlkit.parse(_text(file))
    table: Any = document
    for name in path[:-1]:
        if name not in table:
            table[name] = tomlkit.table()
        table = table[name]
    table[path[-1]] = value
    replace_file(file, tomlkit.dumps(document))
    return file


def has_foreign_bytes(value: Any) -> bool:
    """Whether a text came in with bytes that are no UTF-8, as lone surrogates."""
    return isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value)


def remove(path: Key) -> Path:
    """Take one value out of config.toml, and its table if that is then empty; return the file.

    Raises KeyError if it is not there.
    """
    import tomlkit

    file = config_file()
    document = tomlkit.parse(_text(file))
    tables: list[Any] = [document]
    for name in path[:-1]:
        tables.append(tables[-1][name])
    del tables[-1][path[-1]]
    for above, name in zip(reversed(tables[:-1]), reversed(path[:-1]), strict=True):
        if len(above[name]) or tomlkit.dumps(above[name]).strip():
            break  # a comment is worth keeping too
        del above[name]
    replace_file(file, tomlkit.dumps(document))
    return file


def _text(file: Path) -> str:
    """Return the file's text without a byte order mark, "" if there is no file."""
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
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{file}:{line}: this is not a text of UTF-8", hint="localspec config edit") from None


def _not_toml(file: Path, text: str, error: Exception) -> UsageError:
    match = _PLACE.fullmatch(str(error))
    if match is None:
        return UsageError(f"{file}: this is not TOML: {error}", hint="localspec config edit")
    what, line, column = match.groups()
    begun = [begin for begin, _, tables in _statements(text) if tables is None]  # and never ended
    place = f"{line}:{column}" if line else str(begun[-1] if begun else text.count("\n") + 1)
    return UsageError(f"{file}:{place}: this is not TOML: {what[:1].lower()}{what[1:]}", hint="localspec config edit")


def _entries(text: str) -> Iterator[Entry]:
    table: Key = ()
    for begin, statement, tables in _statements(text):
        assert tables is not None, "the whole is TOML"
        if statement.lstrip().startswith("["):
            table = _deepest(tables)
        else:
            yield from (Entry(path, value, begin) for path, value in _leaves(tables, table))


def _with_tables(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries; those of a table of `KEY=VALUE` settings become one, as the option would give them."""
    tables: dict[Key, tuple[int, dict[str, Any]]] = {}
    for entry in entries:
        at = next((i for i, name in enumerate(entry.path[:-1]) if name in PAIR_TABLES), None)
        if at is None:
            yield entry
            continue
        *above, last = entry.path[at + 1 :]
        table = tables.setdefault(entry.path[: at + 1], (entry.line, {}))[1]
        for name in above:
            table = table.setdefault(name, {})
        table[last] = entry.value
    for path, (line, values) in tables.items():
        yield Entry(path, [f"{key}={json.dumps(value, default=str)}" for key, value in values.items()], line)


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any] | None]]:
    """Yield TOML's statements, each of which is TOML by itself: first line, text, meaning; None for an unended one."""
    statement, begin = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not statement:
            begin = number
        statement += line + "\n"
        try:
            tables = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # it goes on in the next line
        yield begin, statement, tables
        statement = ""
    if statement:
        yield begin, statement, None


def _deepest(tables: Mapping[str, Any]) -> Key:
    path: Key = ()
    while isinstance(tables, dict) and tables:
        ((name, tables),) = tables.items()
        path = (*path, name)
    return path


def _leaves(table: Mapping[str, Any], above: Key) -> Iterator[tuple[Key, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value
