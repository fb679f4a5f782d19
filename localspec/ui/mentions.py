"""Files as context: `@file`, `@folder/` and `@*.py` in a message, and the same names behind `run --file`.

Of folders and patterns only texts are taken: what is hidden, binary or ignored by git is left out and counted.
"""

import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localspec.conversations.records import Attachment
from localspec.errors import NotFoundError, PromptTooLongError, UsageError
from localspec.sanitize import decoded, one_line
from localspec.settings.folders import typed_path
from localspec.settings.sizes import counted
from localspec.settings.sizes import size as size_of
from localspec.settings.text_files import LOOKED_AT, files_below, ignored_by_git, is_binary, nearest_file
from localspec.ui.files import path_completions, read_regular

MOST_FILES = 500
MOST_BYTES = 16 << 20  # of all files of one message
BYTES_PER_TOKEN = 4  # of English text and code, roughly: the models' own count follows when the prompt is read
DIGITS = "0123456789"  # most vocabularies have a token for each
_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_AFTER = ".,;:!?)]}'\""  # what may end a sentence behind a name
# Not what a language has behind an @: @app.get("/"), @functools.cache
_FILE_LIKE = re.compile(r"[\w.~*?-]*/[\w./~*?-]*|[\w~*?-][\w.~*?-]*\.[A-Za-z]\w{0,3}")
_NAME = re.compile(r'"([^"]+)"|\'([^\']+)\'|\S+')
_PATTERN = re.compile(r"[*?\[]")


@dataclass(slots=True)
class Taken:
    """The texts that names stand for, and how many files beside them were left out, by reason."""

    texts: list[Attachment] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # what looks like the name of a file, and is none
    empty: list[str] = field(default_factory=list)  # names of files and folders without a text

    def skip(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    @property
    def summary(self) -> str:
        size = sum(len(each.text.encode()) for each in self.texts)
        n_digits = sum(each.text.count(digit) for each in self.texts for digit in DIGITS)
        n = n_digits + (size - n_digits) // BYTES_PER_TOKEN + 1
        names = one_line(self.texts[0].name) if len(self.texts) == 1 else counted(len(self.texts), "file")
        line = f"took {names}: {size_of(size)}, about {counted(n, 'token')}"
        return (line if self.texts else "took no file") + self.left_since({})

    def left_since(self, before: Mapping[str, int]) -> str:
        more = {reason: n - before.get(reason, 0) for reason, n in self.left_out.items()}
        skipped = " · ".join(f"{n} {reason}" for reason, n in more.items() if n)
        return f"; left out: {skipped}" if skipped else ""

    @property
    def is_news(self) -> bool:
        return bool(self.texts or self.left_out)

    @property
    def remarks(self) -> list[str]:
        """A line for each name that looks like a file's and is none, or has no text."""
        missing = []
        for name in self.missing:
            near, named = nearest_file(name), one_line(name)
            meant = f"; did you mean @{one_line(near)}?" if near else ""
            missing.append(f"there is no file {named}: @{named} is sent as text{meant}")
        return [*missing, *(f"{name} holds no text: nothing of it is sent" for name in map(one_line, self.empty))]


def mentioned(message: str) -> Taken:
    """Return the texts that `@` names in a message; an @word that names no file stays text. Raises NotFoundError,
    PromptTooLongError, and UsageError for a file that is no text."""
    taken = Taken(missing=missing_in(message))
    for name in files_in(message):
        taken.empty += [] if take(name, taken) else [name]
    return taken


def files_in(message: str) -> list[str]:
    names = [
        quoted or next((each for each in (word, word.rstrip(_AFTER)) if names_files(each)), "")
        for quoted, word in _MENTION.findall(message)
    ]
    return [name for name in names if names_files(name)]


def names_in(typed: str) -> list[str]:
    words, names, at = list(_NAME.finditer(typed)), list[str](), 0
    while at < len(words):
        ends = range(len(words), at, -1)
        joined = [(end, typed[words[at].start() : words[end - 1].end()]) for end in ends]
        first = at + 1, words[at][1] or words[at][2] or words[at][0]
        at, name = (
            first if words[at][1] or words[at][2] else next((each for each in joined if names_files(each[1])), first)
        )
        names.append(name)
    return names


def missing_in(message: str) -> list[str]:
    mentions = [(quoted, quoted or word.rstrip(_AFTER)) for quoted, word in _MENTION.findall(message)]
    missing = [name for quoted, name in mentions if (quoted or _FILE_LIKE.fullmatch(name)) and not names_files(name)]
    return [name for name in dict.fromkeys(missing) if name not in files_in(message)]


def names_files(name: str) -> bool:
    try:
        return bool(name) and (os.path.exists(typed_path(name)) or bool(matches(name)))
    except (OSError, ValueError):
        return False


def matches(name: str) -> list[Path]:
    path = typed_path(name)
    if not _PATTERN.search(name) or path.exists():
        return []
    return sorted(Path(each) for each in glob.iglob(str(path), recursive=True) if os.path.isfile(each))


def is_pattern(name: str) -> bool:
    return _PATTERN.search(name) is not None and not os.path.lexists(typed_path(name))


def is_several(name: str) -> bool:
    try:
        return typed_path(name).is_dir() or bool(matches(name))
    except (OSError, ValueError):  # no file can have such a name
        return False


def take(name: str, taken: Taken) -> bool:
    if not is_several(name):
        if is_pattern(name):
            raise NotFoundError(f"no file matches {name}", hint="a pattern that files match, or a name")
        if name not in {each.name for each in taken.texts}:
            data = read_regular(name, MOST_BYTES)
            if is_binary(data):
                raise UsageError(f"{name} is no text", hint="the name of a text file")
            return add(taken, Attachment(name, _text(data)))
        return True
    path = typed_path(name)
    files = list(files_below(path, taken.skip)) if path.is_dir() else matches(name)
    ignored, has_text = ignored_by_git(files), False
    for file in files:
        if file in ignored:
            taken.skip("ignored by git")
            continue
        if any(part.startswith(".") and part not in (".", "..") for part in file.parts[len(path.parts) - 1 :]):
            taken.skip("hidden")
            continue
        has_text |= _take_text(file, taken)
    return has_text


def _take_text(file: Path, taken: Taken) -> bool:
    try:
        if file.stat().st_size > MOST_BYTES:
            with file.open("rb") as opened:
                if is_binary(opened.read(LOOKED_AT)):
                    taken.skip("binary")
                    return False
            raise PromptTooLongError(f"{file} is longer than {MOST_BYTES >> 20} MiB", hint="name the files you need")
        data = file.read_bytes()
        text = "" if is_binary(data) else _text(data)
    except OSError:
        taken.skip("unreadable")
        return False
    if is_binary(data):
        taken.skip("binary")
        return False
    return str(file) in {each.name for each in taken.texts} or add(taken, Attachment(str(file), text))


def _text(data: bytes) -> str:
    return decoded(data, errors="replace").replace("\0", "\ufffd")


def add(taken: Taken, text: Attachment) -> bool:
    if not text.text:
        taken.skip("empty")
        return False
    taken.texts.append(text)
    if len(taken.texts) > MOST_FILES:
        raise UsageError(f"more than {MOST_FILES} files are too many for one message", hint="name a smaller folder")
    if sum(len(each.text) for each in taken.texts) > MOST_BYTES:
        raise PromptTooLongError(f"these files are longer than {MOST_BYTES >> 20} MiB", hint="name fewer files")
    return True


def mention_completions(text: str) -> list[str]:
    """Return the messages that one may become whose end is the beginning of an `@` path.

    A single path with a blank is quoted; the quote of a folder stays open.
    """
    before, at, word = text.rpartition("@")
    typed = word.removeprefix('"')
    if not at or '"' in typed or (before and not before[-1].isspace()):
        return []
    paths = path_completions(typed)
    is_single = len(paths) == 1
    quote = '"' if typed != word or (is_single and re.search(r"\s", paths[0])) else ""
    end = quote if is_single and not paths[0].endswith("/") else ""
    return [f"{before}@{quote}{path}{end}" for path in paths]
