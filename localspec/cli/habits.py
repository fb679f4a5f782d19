"""Words that mean something else to llama.cpp and ollama, and a model before the prompt, where ollama has it."""

import os
import re
from collections.abc import Mapping
from typing import Any

from localspec.errors import LocalspecError, UsageError

LEAST_CONTEXT = 128  # tokens: a smaller number after -c may begin a prompt
HUB = ("hf:", "hf.co/", "huggingface.co/", "http")  # without it, ORG/REPO may be a word of a prompt: and/or
_NUMBER = re.compile(r"\d{1,18}")
_TAGGED = re.compile(r"[a-z][\w.-]*:(?:latest|[\w.-]*\d[bm](?:-[\w.-]+)?)")  # as Ollama has it: smol:135m, gone:latest
_REPO = re.compile(r"[\w-]*[a-z][\w.-]*/[\w.-]*[a-z][\w.-]*")
_MARKED = re.compile(r"[a-z][\w.-]*\d[\w.:-]*")  # as names of models are: llama3.2:1b


def refuse_numbers(values: Mapping[str, Any]) -> None:
    first = next(iter(values.get("prompt") or ()), "")
    if values.get("is_continued") and _NUMBER.fullmatch(first) and not 0 < int(first) < LEAST_CONTEXT:
        raise UsageError(f"-c continues a conversation here, and {first} would be the prompt", hint=f"--ctx {first}")
    for name, flag, meaning, meant in (("system", "-s", "is the system message", "--seed"),
                                       ("draft", "-d", "names the draft model", "-k")):  # fmt: skip
        value = values.get(name)
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            raise UsageError(f"{flag} {meaning} here", hint=f"{meant} {value}")


def model_first(words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Return the model that the first word names, None where it begins a prompt, and its words; raises UsageError."""
    if not words or not words[0]:
        return None, words
    is_file = words[0].lower().endswith(".gguf") and os.path.isfile(os.path.expanduser(words[0]))
    if re.search(r"\s", words[0]) and not is_file:
        return None, words
    if is_model(words[0]):
        return words[0], words[1:]
    near = _nearly_named(words)
    if near or _TAGGED.fullmatch(words[0].lower()):
        meant = f"did you mean -m {near}?" if near else "localspec ls lists those here"
        message = f"there is no pair called {words[0]!r}; {meant}"
        raise UsageError(message, hint="quote the whole prompt, or put -m NAME before it, if that word begins it")
    return None, words


def _nearly_named(words: tuple[str, ...]) -> str | None:
    from localspec.models.names import near_miss, nearest
    from localspec.models.other_programs import own_names  # late: as the names of the catalogue

    word = words[0].lower()
    is_before_prompt = len(words) == 2 and " " in words[1] and bool(re.fullmatch(r"[a-z][\w.:-]{2,}", word))
    if len(words) <= 2 and _REPO.fullmatch(word) and re.search(r"\d", word) and not os.path.exists(words[0]):
        return f"hf:{words[0]}"
    here = nearest(word, own_names()) if _TAGGED.fullmatch(word) else None
    if here:  # goes before a model to download
        return here
    is_family = len(words) <= 2 and len(word) > 3 and any(name.startswith(f"{word}-") for name in _names())
    if is_before_prompt or is_family or _MARKED.fullmatch(word):
        return nearest(word, _names())
    return near_miss(word, _names()) if len(words) <= 2 and len(word) > 3 else None


def is_model(word: str) -> bool:
    """Whether a word can only be a model: a name of the catalogue or of Ollama, a GGUF file, one of the hub, or a pair
    of these. A draft may be named by its kind."""
    from localspec.models.names import Alias, DraftChoice, HubName, PathName, parse
    from localspec.models.ollama import tagged
    from localspec.models.store import is_kind

    try:
        pair = parse(word)
    except UsageError:
        return False

    def is_sure(each: object) -> bool:
        match each:
            case PathName(path):
                return path.lower().endswith(".gguf")
            case HubName():
                return word.lower().startswith(HUB)
            case Alias(name):  # with a colon only a model of Ollama's that is here
                return ":" in name or name in _names() or bool(tagged(name)) or (each is pair.draft and is_kind(each))
        return isinstance(each, DraftChoice)

    return is_sure(pair.target) and is_sure(pair.draft)


def is_here(word: str) -> bool:
    from localspec.models.store import expand

    try:
        expand(word)
    except LocalspecError:
        return False
    return True


def _names() -> list[str]:
    from localspec.models.catalog import load_catalog  # late: most prompts are one word with blanks
    from localspec.models.store import BUNDLED

    try:
        return [*BUNDLED, *load_catalog().names()]
    except LocalspecError:  # the look-up of a name reports it
        return [*BUNDLED]
