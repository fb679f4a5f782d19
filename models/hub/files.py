"""Which files of a repository are meant, by name or quantisation, all parts of one; and which names are safe."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.errors import IntegrityError, UsageError
from localspec.models.names import HubName, check_file_name
from localspec.sanitize import shown

DEFAULT_QUANT = "Q4_K_M"

_QUANT = re.compile(
    r"(?<![A-Z0-9])((?:UD-)?(?:I?Q[1-8](?:_[A-Z0-9]+)*|TQ[12]_0|BF16|FP?16|FP?32|MXFP4(?:_MOE)?))(?![A-Z0-9])"
)
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_NOT_MODELS = re.compile(r"(?:[-_./](?:mmproj|imatrix|lora|adapter)|/mtp)(?=[-_./])", re.IGNORECASE)
_DRAFTERS = re.compile(r"[-_./](?:mtp|assistant|draft(?:er)?|eagle-?3|dflash|dspark)(?=[-_./])", re.IGNORECASE)
_SHOWN = 12
_OTHER = "look for a repository of the same model whose name ends in -GGUF"


@dataclass(frozen=True, slots=True)
class RepoFile:
    """One file of a repository: its name there, its size in bytes, and its SHA-256 where the hub tells one."""

    name: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a repository at one commit; `revision` is what was asked for."""

    repo: str
    revision: str
    commit: str
    files: tuple[RepoFile, ...]

    @property
    def snapshot(self) -> tuple[str, str]:
        return self.repo, self.commit

    def file(self, name: str) -> RepoFile:
        return next(file for file in self.files if file.name == name)


def quant_of(name: str) -> str:
    """Return the quantisation that a file's name tells, "?" if it tells none."""
    for part in reversed(_base(name).upper().split("/")):
        quants = _QUANT.findall(part)
        if quants:
            return str(quants[-1]).replace("FP", "F") if quants[-1] in ("FP16", "FP32") else str(quants[-1])
    return "?"


def full_name(name: HubName, revision: str | None, file: str) -> HubName:
    """Return a name at a revision, with the quantisation of the model's first file unless that was named."""
    quant = quant_of(file)
    return HubName(name.repo, revision, None if name.file or quant == "?" else quant, name.file)


def part_number(name: str) -> int:
    part = _PART.fullmatch(name)
    return int(part[2]) if part else 1


def is_model(name: str) -> bool:
    return name.lower().endswith(".gguf") and not _NOT_MODELS.search(f"/{name}")


def require_safe(repo: str, names: Iterable[str]) -> None:
    """Raise IntegrityError if a file's name would leave the cache: no repository has such a one by accident."""
    for name in names:
        why = check_file_name(name)
        if why and (is_model(name) or why.startswith("it leaves") or "absolute" in why):
            message = f"{repo} has a file of the name '{shown(name)}', which is refused: {why}"
            raise IntegrityError(message, hint="do not use this repository", detail={"repo": repo, "file": shown(name)})


def select(names: Sequence[str], wanted: HubName) -> tuple[str, ...]:
    """Return the files of the model that `wanted` names, in the order of their parts. Raises UsageError where none or
    several fit, which lists them, and IntegrityError where a part is missing."""
    groups = _groups(names)
    if wanted.file is not None:
        base = _base(wanted.file)
        if base in groups and wanted.file in groups[base]:
            return _whole(wanted.repo, groups[base])
        raise _no_file(groups, wanted)
    bases = [base for base in groups if wanted.quant in (None, quant_of(base))]
    bases = bases or [
        base for base in groups if re.search(rf"[-_.]{re.escape(wanted.quant or '')}\.GGUF$", base.upper())
    ]
    if wanted.quant is None and len(bases) > 1:
        bases = [base for base in bases if quant_of(base) == DEFAULT_QUANT]
    bases = [base for base in bases if not _DRAFTERS.search(f"/{base}")] or bases
    if len(bases) != 1:
        raise _no_quant(groups, bases, wanted)
    return _whole(wanted.repo, groups[bases[0]])


def drafters(names: Sequence[str], wanted: HubName) -> tuple[HubName, ...]:
    """Return what lies in a repository to draft for the model that `wanted` names: in its quantisation, else in any."""
    (own, *_) = select(names, wanted)
    if _DRAFTERS.search(f"/{own}"):
        return ()
    groups = {base: parts[0] for base, parts in _groups(names).items() if _DRAFTERS.search(f"/{base}")}
    same = [file for file in groups.values() if quant_of(file) == quant_of(own)]
    return tuple(HubName(wanted.repo, wanted.revision, file=file) for file in same or groups.values())


def _groups(names: Sequence[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        if is_model(name):
            groups.setdefault(_base(name), []).append(name)
    return groups


def _base(name: str) -> str:
    part = _PART.fullmatch(name)
    return f"{part[1]}.gguf" if part else name


def _whole(repo: str, parts: list[str]) -> tuple[str, ...]:
    first = _PART.fullmatch(parts[0])
    if first is None:
        return (parts[0],)
    n = int(first[3])
    expected = {f"{first[1]}-{number:05}-of-{n:05}.gguf" for number in range(1, n + 1)}
    missing = sorted(expected - set(parts))
    if missing:
        message = f"{repo} lacks a part of a split model: {shown(missing[0])}"
        raise IntegrityError(message, hint="choose another quantisation with :QUANT")
    return tuple(part for part in parts if part in expected)


def _no_file(groups: dict[str, list[str]], wanted: HubName) -> UsageError:
    names = [name for group in groups.values() for name in group]
    near = difflib.get_close_matches(wanted.file or "", names, cutoff=0.4)
    what = f"{wanted.repo} has no file {shown(wanted.file or '')}"
    if not names:
        return UsageError(f"{what}, nor any other GGUF model", hint=_OTHER)
    return UsageError(f"{what}; it has {some(near or names)}", hint=shown(f"hf:{wanted.repo}/{(near or names)[0]}"))


def _no_quant(groups: dict[str, list[str]], bases: list[str], wanted: HubName) -> UsageError:
    if not groups:
        return UsageError(f"{wanted.repo} has no GGUF model", hint=_OTHER)
    if bases:
        what = wanted.quant or DEFAULT_QUANT
        message = f"{wanted.repo} has {len(bases)} models of the quantisation {what}: {some(bases)}"
        return UsageError(message, hint=shown(f"hf:{wanted.repo}/{groups[bases[0]][0]}"))
    quants = sorted({quant_of(base) for base in groups} - {"?"})
    has = some(quants) if quants else some(list(groups))
    what = f"the quantisation {wanted.quant}" if wanted.quant else f"{DEFAULT_QUANT}, and several others"
    example = f":{quants[0]}" if quants else f"/{shown(groups[min(groups)][0])}"
    return UsageError(f"{wanted.repo} does not have {what}; it has {has}", hint=f"hf:{wanted.repo}{example}")


def some(names: Sequence[str], longest: int = 120) -> str:
    """Return a list of names for people, each of at most `longest` characters; of many the first ones."""
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(shown(name, longest) for name in names[:_SHOWN]) + rest
