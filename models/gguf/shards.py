"""A model in several files: NAME-00001-of-00003.gguf and so on, as llama-gguf-split writes them.

llama.cpp opens the first and finds the others by their names. It asserts on what the others say of themselves, so all
headers are read here first, and must agree: `split.no`, `split.count` and `split.tensors.count`.
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TypeVar

from localspec.errors import IntegrityError, LocalspecError, NotFoundError
from localspec.models.gguf.header import Header, read_header
from localspec.sanitize import shown

T = TypeVar("T")
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_AGAIN = "download the parts again, all of the same version"


def read_model(path: str | PathLike[str]) -> Header:
    """Read the header of the model at `path`; of a split model, the headers of all parts as one.

    `path` names the model's only file or any of its parts; the header's own `path` is then the first's, with which
    llama.cpp begins. Raises what `read_header` does, NotFoundError for a part that is missing, and IntegrityError for
    parts that do not belong together.
    """
    first = read_header(path)
    count = _number(first, "split.count", "u16", 1)
    if count <= 1:
        return first
    paths = _require_parts(first, count)
    if first.path != paths[0]:
        first = read_header(paths[0])
    return joined([first, *(read_header(part) for part in paths[1:])])


def read_all(folder: Path, read: Callable[[Path], T | None]) -> tuple[list[T], list[tuple[Path, LocalspecError]]]:
    """Return what `read` makes of the GGUF files in a folder, by name, and those that it raises an error for."""
    described, broken = [], []
    for path in sorted(folder.glob("*.gguf")):
        try:
            item = read(path)
        except LocalspecError as error:
            broken.append((path, error))
        else:
            described += [] if item is None else [item]
    return described, broken


def part_paths(path: Path) -> tuple[Path, ...]:
    match = _PART.fullmatch(path.name)
    if not match and path.is_symlink():
        path = Path(os.path.realpath(path))  # a link of another name
        match = _PART.fullmatch(path.name)
    if not match:
        return ()
    count = int(match[3])
    return tuple(path.with_name(f"{match[1]}-{number:05}-of-{match[3]}.gguf") for number in range(1, count + 1))


def size_on_disk(path: Path) -> int:
    """Return the bytes of the model that `path` names, all parts together. Raises OSError where one is missing."""
    return sum(part.stat().st_size for part in part_paths(path) or (path,))


def _require_parts(first: Header, count: int) -> tuple[Path, ...]:
    paths = part_paths(first.path)
    if len(paths) != count:
        raise IntegrityError(
            f"{first.name} is one of {count} parts of a split model, and its name does not say so",
            hint=f"rename the parts to NAME-00001-of-{count:05}.gguf and so on: llama.cpp finds them by name",
        )
    for part in paths:
        if not part.is_file():
            raise NotFoundError(
                f"{first.name} is one of {count} parts, and the part {shown(part.name)} is missing",
                hint=f"download {shown(part.name)} into the same folder",
                detail={"missing": shown(part.name), "n_parts": count},
            )
    return paths


def joined(parts: list[Header]) -> Header:
    """Return the headers of all parts of a model as one; raises IntegrityError for parts that do not go together."""
    first, names, n = parts[0], set[str](), len(parts)
    if n == 1:
        return first
    for number, part in enumerate(parts, 1):
        said = _number(part, "split.no", "u16", None) + 1, _number(part, "split.count", "u16", None)
        if said != (number, n):
            message = (
                f"{part.name} says that it is part {said[0]} of {said[1]}, and its name that it is {number} of {n}"
            )
            raise IntegrityError(message, hint=_AGAIN)
    for part in parts:
        twice = next((tensor.name for tensor in part.tensors if tensor.name in names), None)
        if twice is not None:
            raise IntegrityError(f"{part.name} holds the tensor '{twice}', which an earlier part has", hint=_AGAIN)
        names.update(tensor.name for tensor in part.tensors)
    expected = _number(first, "split.tensors.count", "i32", None)
    if len(names) != expected:
        raise IntegrityError(
            f"the {n} parts of {first.name} hold {len(names)} tensors, and the first part says {expected}",
            hint=_AGAIN,
            detail={"expected_tensors": expected, "actual_tensors": len(names)},
        )
    return replace(
        first,
        size=sum(part.size for part in parts),
        tensors=tuple(tensor for part in parts for tensor in part.tensors),
        parts=tuple(part.path for part in parts),
    )


def _number(part: Header, key: str, kind: str, default: int | None) -> int:
    value = part.metadata.get(key, default)
    if value is None:
        raise IntegrityError(f"{part.name} is part of a split model and lacks the key {key}", hint=_AGAIN)
    if part.types.get(key, kind) != kind or not isinstance(value, int):
        message = f"the key {key} of {part.name} has the type {part.types[key]} instead of {kind}"
        raise IntegrityError(message, hint=_AGAIN)
    return value
