"""Names in config.toml: of settings, of the commands that they are for, and of files.

Names of files are relative to its folder, and absolute once `localspec config set` has written them.
On the command line and in the environment they are relative to the current folder, as everywhere.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import click

from localspec.errors import UsageError
from localspec.models.lookup import placed
from localspec.models.names import DraftChoice, ModelName, PathName, parse, parse_draft
from localspec.settings.config_file import Key, read_configuration
from localspec.settings.declaration import Origin
from localspec.settings.folders import typed_path


class BadSettingError(click.BadParameter):
    """A value that cannot be meant and was not typed; `cure` is the command that takes it out of where it is set."""

    def __init__(self, message: str, ctx: click.Context, param: click.Parameter, cure: str) -> None:
        super().__init__(message, ctx, param)
        self.cure = cure


def cure(place: Origin) -> str:
    """Return the command that takes a value out of the variable or the line of config.toml where it is set."""
    if place.kind == "environment":
        return f"unset {place.where}"
    file = read_configuration()
    line = int(place.where.rpartition(":")[2])
    return f"localspec config unset {next('.'.join(each.path) for each in file.entries if each.line == line)}"


def path_of(ctx: click.Context) -> Key:
    """Return the names of the command and the groups it is in, aliases resolved; () for localspec itself."""
    if ctx.parent is None:
        return ()
    return (*path_of(ctx.parent), str(ctx.command.name))


def capitals(name: str) -> str:
    """Return a name as a variable of the environment has it."""
    return name.upper().replace("-", "_")


def perhaps(name: str, known: Mapping[str, click.Option] | Iterable[str]) -> str:
    """Return which of the known names was probably meant, as it follows the sentence that refuses `name`."""
    if isinstance(known, Mapping):  # a short flag is no key
        long = [each for each, option in known.items() if f"-{name}" in option.opts]
        if long:
            return f": -{name} is '{long[0]}'"
    near = difflib.get_close_matches(name.lower().replace("_", "-"), list(known), n=1)
    return f", perhaps '{near[0]}' was meant" if near else ""


def located(key: str, placeholder: str, text: str, folder: Path) -> str:
    """Return an option's text with the files that it names, as seen from `folder`, absolute; other texts as they are.

    `placeholder` is what the help shows in place of the text. It says where a text names a file: FILE, FOLDER or PATH,
    NAME|FILE, TEXT|@FILE. In PATH|answers the second is a word of its own.
    """
    if text.islower() and text in placeholder.split("|"):
        return text
    if key in ("model", "draft"):
        return _pair(key, text, folder)
    if key == "option":
        name, equals, value = text.partition("=")
        return f"{name}{equals}{_path(value, folder)}" if name == "file" and value else text
    if "@FILE" in placeholder:
        return f"@{_path(text[1:], folder)}" if text[:1] == "@" else text
    if placeholder.startswith(("FILE", "FOLDER", "PATH")):
        return _path(text, folder)
    is_path = "FILE" in placeholder and (os.sep in text or "." in text)  # else it is a name
    return _path(text, folder) if is_path else text


def _path(text: str, folder: Path) -> str:
    return text if text in ("", "-") else os.path.normpath(folder / typed_path(text))


def _pair(key: str, text: str, folder: Path) -> str:
    def exists(path: str) -> bool:
        return os.path.exists(folder / typed_path(path))

    parts: list[ModelName | DraftChoice] = []
    try:
        if key == "model":
            pair = parse(text, exists=exists)
            parts += [pair.target, *([] if pair.draft is DraftChoice.UNSET else [pair.draft])]
        else:
            parts.append(parse_draft(text, exists=exists))
    except (UsageError, ValueError):  # told where the pair is looked up
        return text
    has_file = any(isinstance(each, PathName) for each in parts)
    return "+".join(_model(each, folder) for each in parts) if has_file else text


def _model(name: ModelName | DraftChoice, folder: Path) -> str:
    if isinstance(name, PathName):
        with suppress(UsageError):  # told where the pair is looked up
            name = name if os.path.lexists(folder / typed_path(name.path)) else placed(name)
        return _path(name.path, folder)
    return name.value if isinstance(name, DraftChoice) else str(name)
