"""What is said of keys that name no setting."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from localspec.errors import UsageError
from localspec.settings.config_file import Key

if TYPE_CHECKING:
    from localspec.cli.option_sources import Configurable


def once(option: Configurable, path: Key) -> UsageError:
    """Return the error for a key of `ONCE`, set for the command at `path` or, with (), for all."""
    value = None if option.kind == "switch" else option.metavar
    typed = f"--{option.key}" if value is None else f"--{option.key} {value}"
    variable = option.variables(path)[0]
    return UsageError(
        f"'{option.key}' is for one command line and no setting", hint=f"{typed}, or {variable}={value or 1}"
    )


def perhaps(name: str, known: Mapping[str, Configurable] | Iterable[str]) -> str:
    """Return which of the known names was probably meant, as it follows the sentence that refuses `name`."""
    if isinstance(known, Mapping):  # a short flag is no key
        long = [each for each, option in known.items() if f"-{name}" in option.opts]
        if long:
            return f": -{name} is '{long[0]}'"
    near = difflib.get_close_matches(name.lower().replace("_", "-"), list(known), n=1)
    return f", perhaps '{near[0]}' was meant" if near else ""
