"""What a person may type for a model or a pair, and its one canonical spelling.

    model := PATH | [hf:]ORG/REPO[@REV][:QUANT | /FILE.gguf] | ALIAS
    pair  := model [+ (model | auto | none)]

Invariants: `parse(str(name)) == name`, and nothing but a UsageError is ever raised for a text. Only a doubtful
name is looked up: whether such a file exists, since a '+' may be part of its name, and whether Ollama has it.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from localspec.errors import UsageError, near_name
from localspec.models.ollama import named, ollama_models
from localspec.sanitize import shown

Exists = Callable[[str], bool]

FORMS = "give a name such as 'storyteller', TARGET.gguf, TARGET.gguf+DRAFT.gguf, or hf:ORG/REPO:QUANT"
NEAR = 0.8  # of difflib's ratio, from which on a word is taken for a misspelt name
MAX_TEXT = 16_384  # characters of a whole reference: more is an accident
MAX_FILE = 350  # characters of a file's name in a repository

_ALIAS = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PART = re.compile(r"\w(?:[^/:\\+]{0,62}\S)?")  # of the name of a file, which may have blanks
_EXTENSION = re.compile(r".*\.[A-Za-z_]+", re.DOTALL)  # after a name of the catalogue stands a number at most
_OWNER = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}|refs/pr/[0-9]{1,9}")
_QUANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9.-]*):(?!\\)")
_HUB_PREFIXES = ("hf://", "hf:", "https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/")
_HUB_PARTS = re.compile(
    r"(?P<owner>[^/@:]*)/(?P<repo>[^/@:]*)"
    r"(?:@(?P<revision>refs/pr/[0-9]+(?![^/:])|[^/@:]*))?"
    r"(?::(?P<quant>[^/:]*)|/(?P<file>.*))?",
    re.DOTALL,
)
_PAGE = re.compile(r"([^/]+/[^/]+)/(?:blob|resolve|tree)/([^/?#]+)(?:/([^?#]*))?(?:[?#].*)?", re.DOTALL)


class DraftChoice(Enum):
    """A draft that is not named: the pair's own or none at all (nothing typed), the best that fits, or none."""

    UNSET = ""
    AUTO = "auto"
    NONE = "none"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class PathName:
    """A file by its path; spelt so that nobody takes it for a name."""

    path: str
    label: str = field(default="", compare=False)  # what another program calls it

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class HubName:
    """A model in a repository of the hub: by `file`, by `quant`, or whichever fits; `revision` None is its main branch.
    `repo` is ORG/REPO."""

    repo: str
    revision: str | None = None
    quant: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        at = f"@{self.revision}" if self.revision is not None else ""
        what = f":{self.quant}" if self.quant is not None else f"/{self.file}" if self.file is not None else ""
        return f"hf:{self.repo}{at}{what}"


@dataclass(frozen=True, slots=True)
class Alias:
    name: str

    def __str__(self) -> str:
        return self.name


ModelName = PathName | HubName | Alias


@dataclass(frozen=True, slots=True)
class PairName:
    target: ModelName
    draft: ModelName | DraftChoice = DraftChoice.UNSET

    def __str__(self) -> str:
        return str(self.target) if self.draft is DraftChoice.UNSET else f"{self.target}+{self.draft}"


def parse(text: str, *, exists: Exists | None = None) -> PairName:
    """Return the pair that `text` names. `exists` says whether a path is there; raises UsageError."""
    there = exists or _exists
    _check_size(text)
    target, draft = _split(text, there)
    return PairName(_model(target, there), DraftChoice.UNSET if draft is None else _draft(draft, there))


def parse_draft(text: str, *, exists: Exists | None = None) -> ModelName | DraftChoice:
    _check_size(text)
    if not text.strip():
        raise UsageError("--draft is empty", hint="give a path or a name, 'auto', or 'none' for no draft model")
    there = exists or _exists
    if "/" not in text and _split(text, there)[1] is not None:  # that of a path may be part of a name that is not here
        raise UsageError(f"'{shown(text)}' is a pair, and a draft is one model", hint="name the draft alone")
    return _draft(text, there)


def parse_model(text: str, *, exists: Exists | None = None, is_whole: bool = False) -> ModelName:
    """Return the one model that `text` names. Raises UsageError, also for a pair. Where it `is_whole`, a '+' is part of
    the name, whether a file of that name is there or not."""
    there = exists or _exists
    _check_size(text)
    if not is_whole and _split(text, there)[1] is not None:
        raise UsageError(f"'{shown(text)}' is a pair, and one model is wanted here", hint="name the target alone")
    return _model(text, there)


def check_file_name(name: str) -> str:
    """Return why a file's name in a repository is not safe to use as a path below a folder; "" if it is."""
    parts = name.split("/")
    if "" in parts:
        return "it is absolute or has an empty part"
    if "." in parts or ".." in parts:
        return "it leaves its folder"
    if "\\" in name or ":" in name:
        return "it is a path of another system"
    if not name.isprintable():
        return "it has invisible characters"
    if any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in parts) or len(name) > MAX_FILE:
        return "it is too long"
    return ""


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that `word` may stand for: the shortest that it begins, however spelt, or a near one."""
    word, names = word.lower(), list(names)
    short = squeezed(word)
    begins = [name for name in names if squeezed(name).startswith(short)]
    return min(begins, key=len) if begins and len(short) > 2 else near_miss(word, names)


def near_miss(word: str, names: Iterable[str]) -> str | None:
    spellings = {squeezed(name): name for name in names}
    return spellings.get(near_name(squeezed(word.lower()), spellings, NEAR))


def squeezed(name: str) -> str:
    """Return a name without the signs that programs spell differently: llama3.2:1b for llama-3.2-1b."""
    return re.sub(r"[-_: ]", "", name)


def is_alias(text: str) -> bool:
    return _ALIAS.fullmatch(text) is not None and text not in ("auto", "none")


def _exists(path: str) -> bool:
    try:
        return os.path.exists(os.path.expanduser(path))
    except ValueError:  # a zero byte
        return False


def _check_size(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise UsageError(f"a name of {len(text)} characters is not a name of a model", hint=FORMS)


def _split(text: str, exists: Exists) -> tuple[str, str | None]:
    """Cut at the '+'; one that is part of an existing file's name does not count."""
    if "+" not in text or exists(text):
        if not text.strip():
            raise UsageError("the pair's name is empty", hint=FORMS)
        return text, None
    cuts = [(text[:i], text[i + 1 :]) for i, c in enumerate(text) if c == "+"]
    cuts = [cut for cut in cuts if all("+" not in side or exists(side) for side in cut)]
    if len(cuts) != 1 or not all(side.strip() for side in cuts[0]):
        message = f"'{shown(text)}' is not a pair: it needs a target and one draft around a single '+'"
        raise UsageError(message, hint=FORMS)
    return cuts[0]


def _draft(text: str, exists: Exists) -> ModelName | DraftChoice:
    return DraftChoice(text) if text in ("auto", "none") else _model(text, exists)


def _model(text: str, exists: Exists) -> ModelName:
    lower = text.lower()
    for prefix in _HUB_PREFIXES:
        if lower.startswith(prefix):
            return _hub(text, text[len(prefix) :], is_page=not prefix.startswith("hf:"))
    if _looks_like_path(text):
        return PathName(text)
    is_file_like = "/" in text or os.sep in text or text != lower or _EXTENSION.fullmatch(text)
    if is_file_like and exists(text):
        return PathName(f"./{text}")
    scheme = _SCHEME.match(text)
    if (":" in text or "/" in text) and named(text) is not None:
        return Alias(lower)
    if scheme is not None:
        raise _bad_scheme(text, scheme[1].lower())
    if "/" in text:
        return _hub(text, text, is_page=False)
    if _ALIAS.fullmatch(lower) or (_PART.fullmatch(lower) and lower.isprintable()):
        return Alias(lower)
    message = f"'{shown(text)}' is not a name: one begins with a letter or a digit, and has at most 64 characters"
    raise UsageError(message, hint=f"./{shown(text)} for the file of that name" if exists(text) else FORMS)


def _looks_like_path(text: str) -> bool:
    if _SCHEME.match(text) and not re.match(r"[A-Za-z]:[\\/]", text):
        return False
    return text.startswith((".", "~", "/", os.sep)) or text.lower().endswith(".gguf") or "\\" in text


def _bad_scheme(text: str, scheme: str) -> UsageError:
    if "@" in text.partition("//")[2].partition("/")[0]:
        # Whoever typed it need not read their password in a log.
        message = "an address with a user or password in it is not taken"
        return UsageError(message, hint="hf:ORG/REPO, with the token in HF_TOKEN")
    if scheme == "file":
        return UsageError(f"'{shown(text)}' is an address of a file", hint="give its path: /PATH/FILE.gguf")
    bare = text.partition(":")[2].lstrip("/")
    if scheme == "ollama" and named(bare) is not None:
        return UsageError(f"'{shown(text)}': a model of Ollama's has its own name alone", hint=shown(bare))
    owner = bare.lower().partition(":")[0] if scheme == "ollama" else scheme
    tags = [model.name for model in ollama_models() if model.name.lower().startswith(f"{owner}:")]
    if tags and "//" not in text:
        return UsageError(f"Ollama has no '{shown(text)}' here, but {', '.join(map(shown, tags))}", hint=shown(tags[0]))
    message = f"'{shown(text)}' is not on the Hugging Face hub, and nothing else can be downloaded from"
    return UsageError(message, hint="hf:ORG/REPO:QUANT, or download the GGUF file and give its path (./FILE.gguf)")


def _hub(text: str, rest: str, *, is_page: bool) -> HubName:
    page = _PAGE.fullmatch(rest) if is_page else None
    if page is not None:
        rest = f"{page[1]}@{page[2]}" + (f"/{page[3]}" if page[3] else "")
    match = _HUB_PARTS.fullmatch(rest.rstrip("/") if is_page else rest)
    if match is None:
        raise _bad_hub(text, "it is not ORG/REPO")
    owner, repo, revision, quant, file = match.group("owner", "repo", "revision", "quant", "file")
    for what, part in (("an organisation", owner), ("a repository", repo)):
        if not _OWNER.fullmatch(part) or "--" in part or ".." in part:
            raise _bad_hub(text, f"'{shown(part)}' is not the name of {what}")
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise _bad_hub(text, f"'{shown(revision)}' is not a branch, tag or commit")
    if quant is not None and not _QUANT.fullmatch(quant):
        raise _bad_hub(text, f"'{shown(quant)}' is not a quantisation such as Q4_K_M")
    if file is not None:
        why = check_file_name(file) or ("it has a '+'" if "+" in file else "")
        if why or not file.lower().endswith(".gguf"):
            raise _bad_hub(text, f"'{shown(file)}' is not the name of a GGUF file{': ' if why else ''}{why}")
    return HubName(f"{owner}/{repo}", revision, None if quant is None else quant.upper(), file)


def _bad_hub(text: str, why: str) -> UsageError:
    message = f"'{shown(text)}' is not a model on the hub: {why}"
    return UsageError(message, hint="hf:ORG/REPO, hf:ORG/REPO:Q4_K_M or hf:ORG/REPO/FILE.gguf")
