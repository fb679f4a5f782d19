"""The files below a folder that are texts: in order, without what is hidden, binary or ignored by git."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from localspec.errors import near_name
from localspec.sanitize import decoded, shown

LOOKED_AT = 8192  # bytes that decide whether a file is a text
MOST_NEAR = 2000  # names that one is compared with: in a folder of more it would take seconds
NEAR = 0.75  # share of letters that names have in common where one is taken for the other


def did_you_mean(name: str, hint: str) -> str:
    """Return what to say of a file that cannot be read: the nearest name beside it if it is missing, else `hint`."""
    near = nearest_file(name)
    return f"Did you mean {shown(near)!r}?" if near else hint


def nearest_file(name: str) -> str:
    """Return the file or folder beside a missing one whose name is nearest, as it would be typed; "" without one."""
    folder, slash, last = name.rpartition("/")
    try:
        if os.path.lexists(os.path.expanduser(name)):
            return ""
        beside = sorted(each for each in os.listdir(os.path.expanduser(folder + slash) or ".") if each[:1] != ".")
    except (OSError, ValueError):
        return ""
    lower = {each.lower(): each for each in beside} if len(beside) <= MOST_NEAR else {}
    near = near_name(last.lower(), lower, NEAR)
    return f"{folder}{slash}{lower[near]}" if near else ""


def files_below(folder: Path, skip: Callable[[str], None]) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        for name in [each for each in folders if each.startswith(".")]:
            folders.remove(name)
            skip("hidden")
        folders.sort()
        yield from (Path(here) / name for name in sorted(names) if os.path.isfile(os.path.join(here, name)))


def ignored_by_git(files: list[Path]) -> set[Path]:
    if not files:
        return set()
    by_name = {str(each.absolute()): each for each in files}
    try:
        asked = subprocess.run(
            ["git", "-C", str(files[0].absolute().parent), "check-ignore", "-z", "--stdin"],
            input="\0".join(by_name).encode("utf-8", "surrogateescape"), capture_output=True, timeout=30, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return set()
    names = asked.stdout.decode("utf-8", "surrogateescape").split("\0")
    return {by_name[name] for name in names if name in by_name}


def is_binary(data: bytes) -> bool:
    """Whether bytes are no text: many of the first are no UTF-8, or are NUL."""
    begin = data[:LOOKED_AT]
    text = decoded(begin, errors="replace")
    n_wrong = text.count("\ufffd") - begin.count("\ufffd".encode()) + text.count("\0")
    return n_wrong > 3 and n_wrong > len(text) / 20
