"""From what a person types after -m to the files of a pair.

A reference is an alias (`storyteller`), a path, or `TARGET+DRAFT` of these; `none` as the draft means no draft model.
A bare word is always an alias, so a misspelt one never turns into a path by accident.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from localspec.errors import NotFoundError, UsageError
from localspec.models.gguf.text import shown

DEFAULT = "storyteller"
NO_DRAFT = "none"

_FORMS = "give a name such as 'storyteller', TARGET.gguf, or TARGET.gguf+DRAFT.gguf"
_SCHEMES = ("hf:", "http:", "https:", "file:", "hf.co/", "huggingface.co/")


@dataclass(frozen=True)
class Bundled:
    """A pair that comes with the package: file names under models/."""

    target: str
    draft: str


BUNDLED: dict[str, Bundled] = {
    "storyteller": Bundled("storyteller/target-q8_0.gguf", "storyteller/draft-q8_0.gguf"),
}


@dataclass(frozen=True)
class PairRef:
    """The files of a pair; `draft` is None without a draft model, `name` is what to call the pair on screen."""

    target: Path
    draft: Path | None
    name: str


def parse_pair(ref: str | None = None, draft: str | None = None) -> PairRef:
    """Find the files that `ref` (the value of -m) and `draft` (of --draft) name; None means not given.

    Raises UsageError for a malformed reference and NotFoundError for an unknown alias or a missing file. The files are
    not opened.
    """
    target_ref, draft_ref = _split(DEFAULT if ref is None else ref)
    if draft is not None:
        if draft_ref is not None:
            raise UsageError("the draft is named twice, in -m and in --draft", hint="leave one of the two out")
        if not draft.strip():
            raise UsageError("--draft is empty", hint="give a path, or 'none' for no draft model")
        draft_ref = draft
    target = _locate(target_ref, as_draft=False)
    if draft_ref is None:
        draft_path = _locate(target_ref, as_draft=True) if target_ref in BUNDLED else None
        return PairRef(target, draft_path, _label(target_ref))
    draft_path = None if draft_ref == NO_DRAFT else _locate(draft_ref, as_draft=True)
    return PairRef(target, draft_path, f"{_label(target_ref)}+{_label(draft_ref)}")


def _split(ref: str) -> tuple[str, str | None]:
    """Cut a reference at its '+'; one that is part of an existing file's name does not count."""
    if "+" not in ref or _is_file(ref):
        if not ref.strip():
            raise UsageError("the pair's name is empty", hint=_FORMS)
        return ref, None
    cuts = [(ref[:i], ref[i + 1 :]) for i, c in enumerate(ref) if c == "+"]
    if len(cuts) > 1:
        # Some file's name has a '+' in it: take the one cut where both sides exist.
        cuts = [cut for cut in cuts if _is_file(cut[0]) and (cut[1] == NO_DRAFT or _is_file(cut[1]))]
    if len(cuts) != 1 or not all(side.strip() for side in cuts[0]):
        raise UsageError(
            f"'{shown(ref)}' is not a pair: it needs a target and one draft around a single '+'", hint=_FORMS
        )
    return cuts[0]


def _expand(ref: str) -> str:
    return os.path.expanduser(ref)


def _is_file(ref: str) -> bool:
    return os.path.isfile(_expand(ref))


def _looks_like_path(ref: str) -> bool:
    return ref.startswith((".", "~", os.sep)) or ref.lower().endswith(".gguf") or "\\" in ref


def _locate(ref: str, *, as_draft: bool) -> Path:
    if ref in BUNDLED:
        return _bundled(BUNDLED[ref].draft if as_draft else BUNDLED[ref].target)
    if ref.lower().startswith(_SCHEMES):
        raise _no_hub(ref)
    if os.sep not in ref and not _looks_like_path(ref):
        raise _unknown_alias(ref)
    path = _expand(ref)
    if os.path.lexists(path):
        return Path(path)
    if _looks_like_path(ref):
        raise NotFoundError(f"{shown(ref)} does not exist", hint="check the path, for instance with: ls")
    raise _no_hub(ref)


def _bundled(name: str) -> Path:
    path = Path(str(resources.files("localspec.models"))) / name
    if not path.is_file():
        raise NotFoundError(
            f"the bundled model {name} is missing from this installation", hint="install localspec again"
        )
    return path


def _no_hub(ref: str) -> UsageError:
    return UsageError(
        f"'{shown(ref)}' looks like a model on a hub, which is not supported yet",
        hint="download the GGUF file and give its path (./FILE.gguf)",
    )


def _unknown_alias(ref: str) -> NotFoundError:
    if _is_file(ref):
        return NotFoundError(
            f"there is no pair called '{shown(ref)}'", hint=f"for the file of that name write: ./{shown(ref)}"
        )
    close = difflib.get_close_matches(ref.lower()[:100], BUNDLED, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"{_FORMS}; known names: {', '.join(BUNDLED)}"
    return NotFoundError(f"there is no pair called '{shown(ref)}'", hint=hint)


def _label(ref: str) -> str:
    return ref if ref in BUNDLED or ref == NO_DRAFT else shown(Path(ref).name)
