"""What a person may have meant by the name of a pair that there is none of."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable

from localspec.errors import NotFoundError, UsageError
from localspec.models.names import FORMS, NEAR, nearest
from localspec.sanitize import shown


def unknown_name(name: str, names: list[str]) -> NotFoundError:
    """Return the error of a name that is none of `names`, with the nearest of these and of the models that are here."""
    if os.path.isfile(name):
        return NotFoundError(
            f"there is no pair called '{shown(name)}'", hint=f"./{shown(name)} for the file of that name"
        )
    from localspec.models.foreign import own_names  # late: it reads what other programs keep

    close = nearest(name, names)
    here, ratio = _nearest_beginning(name, own_names())
    if here is not None and (close is None or ratio > difflib.SequenceMatcher(None, name, close).ratio()):
        close = shown(here)
    hint = f"Did you mean '{close}'?" if close else f"{FORMS}; known names: localspec pairs list"
    return NotFoundError(f"there is no pair called '{shown(name)}'", hint=hint)


def with_known_name(error: UsageError, typed: str) -> UsageError:
    """Return the error of a name as Ollama writes them, such as llama3.2:1b, with the catalogue's name for it."""
    if not re.fullmatch(r"[\w.-]+:[\w.-]+", typed) or "Hugging Face" not in error.message:
        return error
    from localspec.models.catalog import load_catalog  # late: few names are wrong

    close = nearest(typed, load_catalog().names())
    return UsageError(error.message, hint=f"Did you mean '{close}'?" if close else error.hint)


def _nearest_beginning(word: str, names: Iterable[str]) -> tuple[str | None, float]:
    """Return the name of which the beginning, up to a sign between its parts, is nearest to `word`, and how near: to 1.

    Names of files are long, and nobody types all of one.
    """
    word, near, best = word.lower(), None, 0.0
    for name in sorted(names, key=len):
        for end in (*re.finditer(r"[-_:.]", name), None):
            begin = name.lower() if end is None else name[: end.start()].lower()
            ratio = difflib.SequenceMatcher(None, word, begin).ratio()
            if ratio >= NEAR and ratio > best:
                near, best = name, ratio
    return near, best
