"""Presets, named settings in config.toml, each a table of its own.

    [presets.coder]
    model = "qwen2.5-coder-1.5b"
    system = "Answer with code alone."
    temp = 0

Its keys are those of the options. An option that is typed wins over the preset, and the preset over all else.
"""

import re
from typing import Any

from localspec.errors import LocalspecError, NotFoundError, UsageError, near_name
from localspec.settings.config_file import TABLE, read_configuration
from localspec.settings.declaration import declared
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation

OWN_KEYS = ("model", "draft", "system")  # of a preset, beside the declared settings
DECLARED = {each.key: each for holder in (LoadSettings, Request, Sampling, Speculation) for each in declared(holder)}
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def presets() -> dict[str, dict[str, Any]]:
    by_name: dict[str, dict[str, Any]] = {}
    for key, value in read_configuration().items():
        if len(key) == 3 and key[0] == TABLE:
            by_name.setdefault(key[1], {})[key[2]] = value
    return by_name


def preset_names() -> list[str]:
    try:
        return sorted(presets())
    except LocalspecError:
        return []


def find_preset(name: str) -> dict[str, Any]:
    known = presets()
    if name in known:
        return known[name]
    near = near_name(name, known)
    if near:
        raise NotFoundError(f"there is no preset {name!r}", hint=f"Did you mean {near!r}?")
    hint = "localspec config preset" if known else f"localspec config preset save {shown_name(name)} -m PAIR"
    raise NotFoundError(f"there is no preset {name!r}", hint=hint)


def shown_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else "NAME"


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a preset", hint="letters, digits, - and _")
