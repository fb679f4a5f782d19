"""Prompts to measure with: samples that come with the package, or any JSONL file, one object with a prompt a line."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from localspec.bench.whole_text import read_text
from localspec.errors import NotFoundError, UsageError, near_name
from localspec.settings.folders import typed_path

COLUMNS = ("prompt", "question", "turns", "text", "instruction", "content")  # looked for in this order
IDS = ("id", "question_id", "task_id")
HINT = "--suite FILE.jsonl --column NAME, one JSON object a line"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt; `category` as the file says, "" without one."""

    id: str
    text: str
    category: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """Prompts in the file's order. `is_chat`: they are asked through the chat template, not continued as they are."""

    name: str
    prompts: tuple[Prompt, ...]
    is_chat: bool

    @property
    def sha256(self) -> str:
        texts = json.dumps([prompt.text for prompt in self.prompts])
        return hashlib.sha256(texts.encode()).hexdigest()


SAMPLES = {  # the suites of the package: the column of the prompts, and whether they are questions to a chat model
    "stories": ("prompt", False),
    "spec-bench": ("turns", True),
    "gsm8k": ("question", True),
    "humaneval": ("prompt", False),
}


def load_suite(name: str, column: str | None = None, is_chat: bool | None = None) -> Suite:
    """Return the suite called `name`, or that of the file at this path.

    `column` names the prompts' field (default: the sample's, or the first of `COLUMNS` that a line has); `is_chat`
    overrides the suite's own way. Raises UsageError or NotFoundError.
    """
    if name in SAMPLES:
        usual, is_question = SAMPLES[name]
        file = files("localspec.bench") / "samples" / f"{name}.jsonl"
        prompts = tuple(_prompts(file.read_text(encoding="utf-8"), f"suite {name}", column or usual))
        return Suite(name, prompts, is_question if is_chat is None else is_chat)
    if not _looks_like_path(name):
        known = ", ".join(SAMPLES)
        raise NotFoundError(
            f"there is no suite {name!r}: there are {known}, or a file",
            hint=f"--suite {near_name(name, SAMPLES) or 'stories'}",
        )
    path = typed_path(name)
    text = read_text(path, said=f"--suite {name}", hint=HINT)
    prompts = tuple(_prompts(text, name, column))
    if not prompts:
        raise UsageError(f"--suite {name}: there is no prompt in it", hint=HINT)
    return Suite(path.name, prompts, bool(is_chat))


def choose(suite: Suite, n: int | None) -> Suite:
    """Return `n` prompts spread evenly over the suite, all of them for None or where there are no more."""
    total = len(suite.prompts)
    if n is None or n >= total:
        return suite
    return Suite(suite.name, tuple(suite.prompts[i * total // n] for i in range(n)), suite.is_chat)


def _looks_like_path(name: str) -> bool:
    return os.sep in name or name.endswith((".jsonl", ".json", ".gz", ".txt")) or os.path.lexists(name)


def _prompts(text: str, said: str, column: str | None) -> Iterator[Prompt]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{said}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise UsageError(f"{where} is not JSON: the file is not JSONL", hint=HINT) from None
        if not isinstance(row, dict):
            raise UsageError(f"{where} is no JSON object with a field for the prompt", hint=HINT)
        yield _prompt(row, where, number, column)


def _prompt(row: dict[str, Any], where: str, number: int, column: str | None) -> Prompt:
    name = column or next((key for key in COLUMNS if key in row), None)
    if name is None or name not in row:
        wanted = f"column {name!r}" if name else f"column {' or '.join(COLUMNS)}"
        first = next(iter(row), None)
        hint = HINT if first is None else f"--column {first}"
        raise NotFoundError(f"{where} has no {wanted}: it has {', '.join(row) or 'none'}", hint=hint)
    value = row[name]
    if isinstance(value, list) and value:
        value = value[0]  # the first turn of several
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{where}: column {name!r} holds no text", hint=HINT)
    identity = next((row[key] for key in IDS if key in row), number)
    return Prompt(str(identity), value, str(row.get("category", "")))
