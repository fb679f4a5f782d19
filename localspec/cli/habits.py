"""Spellings of llama.cpp, ollama and llm that mean something else here: one line says what to type.

Spellings that mean the same are aliases of the options themselves. This module has the others, and finds a model in the
place where ollama has it: before the prompt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import click

from localspec.errors import LocalspecError, UsageError

LEAST_CONTEXT = 128  # tokens: a smaller number after -c may begin a prompt
HUB = ("hf:", "hf.co/", "huggingface.co/", "http")  # without it, ORG/REPO may be a word of a prompt: and/or
CACHE_TYPES = ("-ctk", "--cache-type-k", "-ctv", "--cache-type-v")
_NUMBER = re.compile(r"-?\d+")
_FLAG = re.compile(r"(?<!\S)--?[a-z][\w-]*")
_TAGGED = re.compile(r"[a-z][\w.-]*:(?:latest|[\w.-]*\d[bm](?:-[\w.-]+)?)")  # as Ollama has it: smol:135m, gone:latest
_COLON = re.compile(r"[a-z][\w.-]*:[\w.-]+")
_REPO = re.compile(r"[\w-]*[a-z][\w.-]*/[\w.-]*[a-z][\w.-]*")
_FAMILY = re.compile(
    "(?:(?:code|tiny)?llama|mistral|ministral|mixtral|codestral|deepseek|gpt-oss|qwen|qwq|gemma|phi|smollm|granite"
    "|command-r|yi|falcon|starcoder|olmo|glm|exaone)(?:[-\\d.][\\w.-]*)?"
)
_COMMAND_LINE = re.compile(r"(?:[A-Z_]+=\S+ )?(?:localspec|llama-server) ")

# fmt: off
# Commands of other programs: what there is to say, and what to type.
COMMANDS: dict[str, tuple[str, str]] = {
    name: (message, hint)
    for names, message, hint in (
        ("server start", "the server is a command of its own", "localspec serve PAIR"),
        ("create cp copy", "localspec makes no models", "localspec pairs add NAME TARGET.gguf+DRAFT.gguf"),
        ("push signin signout login logout keys", "there is no account here", "HF_TOKEN=TOKEN localspec pull NAME"),
        ("templates roles presets preset role", "presets are kept by config", "localspec config preset list"),
        ("remove delete uninstall", "the command that removes models is rm", "localspec rm NAME"),
    )
    for name in names.split()
}

# Options of other programs: what there is to say, and what to type. One that a command has itself is not looked up, and
# a hint with options that it has not is passed over.
_OPTIONS: tuple[tuple[str, str, str], ...] = (
    ("-c", "the context has an option of its own", "--ctx N"),
    ("-s", "the seed has an option of its own", "--seed N"),
    ("-m --model", "the pair needs no option and comes first", "the pair, then the rest, as in --help"),
    ("-p --prompt", "the prompts are those of --suite", "--suite FILE"),
    ("-p --prompt", "run and race take a prompt", "localspec run PROMPT, or localspec race PAIR PROMPT"),
    ("-cnv --conversation -i --interactive", "a conversation is a command of its own", "localspec chat"),
    ("-no-cnv --no-conversation", "run answers once, and --raw leaves out the chat template", "--raw"),
    ("-hff --hf-file -mu --model-url", "the file follows its repository", "-m hf:ORG/REPO/FILE.gguf"),
    ("-hft --hf-token", "the hub's token is read from the environment", "HF_TOKEN=TOKEN localspec pull NAME"),
    ("-sysf --system-prompt-file", "--system reads a file after an @", "--system @FILE"),
    ("-a --attachment --image --mmproj", "--file reads a text before the prompt", "-f FILE"),
    ("-v --verbose", "--stats shows the figures, and --log-file keeps llama.cpp's log", "--stats"),
    ("-tb --threads-batch", "--threads is for all of them", "--threads N"),
    ("-dev --device -sm --split-mode -ts --tensor-split -mg --main-gpu -ot --override-tensor -ncmoe --n-cpu-moe",
     "layers are placed by a plan", "--gpu N, or localspec plan PAIR"),
    ("-b --batch-size -ub --ubatch-size --numa", "localspec decides that by itself", "leave it out"),
    ("--keep", "a full context leaves out the oldest turns", "--ctx N for more"),
    ("--prompt-cache", "a conversation is kept anyway", "-c, which continues it"),
    ("--cid", "--session names a conversation", "--session ID"),
    ("--role", "a preset holds a model, a system message and settings", "-P NAME"),
    ("--no-log", "--no-save keeps nothing", "--no-save"),
    ("--ignore-eos", "a token is banned by its number", "--logit-bias ID=-inf"),
    ("--draft-min --draft-n-min", "drafts are as long as pays, or as -k says", "-k N"),
    ("--draft-p-min", "a length rule ends a draft at an unsure token", "--length confidence:P"),
    ("--samplers --mirostat", "this sampler is not here", "the options below Sampling in --help"),
    ("--host --port -np --parallel", "the server is a command of its own", "localspec serve PAIR"),
    ("--no-stream", "--json prints the answer at its end", "--json"),
)
OPTIONS: dict[str, list[tuple[str, str]]] = {}
for _flags, _why, _hint in _OPTIONS:
    for _flag in _flags.split():
        OPTIONS.setdefault(_flag, []).append((_why, _hint))
# fmt: on
# These say what localspec does anyway.
GRANTED = ("-st", "--single-turn", "--jinja", "--no-display-prompt", "--log-disable", "--simple-io", "--nowordwrap")


def checked(command: click.Command, args: Sequence[str]) -> list[str]:
    """Return the words of a command line as `command` reads them; raises UsageError for another program's meaning."""
    own = {flag: param for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    found: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        if word == "--":
            return [*found, word, *words]
        flag = word.partition("=")[0]
        if "--draft" in own and word in GRANTED:
            continue
        found.append(word)
        following = words[0] if words else ""
        if flag in own:
            _refuse_number(flag, following)
            _refuse_preset(flag, following, own)
            if word == "-fa" and following not in ("on", "off", "auto"):
                found.append("on")  # it was a switch for long
            elif _takes_value(own[flag]) and "=" not in word and words:
                found.append(words.pop(0))
        elif f"-{flag}" in own and re.fullmatch(r"-[a-z][a-z-]+", flag):
            raise UsageError(f"{flag} has two dashes here", hint=f"-{word}")
        elif "--draft" in own and (advice := _advice(flag, own)) is not None:
            why, hint = advice
            raise UsageError(f"there is no option {flag} here: {why}", hint=hint)
        elif "--model" in own and re.fullmatch(r"-[cs]\d+", word):
            _refuse_number(word[:2], word[2:])
        elif takes_prompt(command) and re.match(r"-[^=]*\s", word) and not _takes_value(own.get(word[:2])):
            raise UsageError(f"{word[:30]!r} looks like an option", hint="-- before a prompt that begins with '-'")
    types = {found[at + 1] for at, word in enumerate(found[:-1]) if word in CACHE_TYPES}
    if len(types) > 1:
        raise UsageError("keys and values of the cache have one type here", hint=f"--kv {min(types)}")
    return found


def _advice(flag: str, own: Mapping[str, click.Parameter]) -> tuple[str, str] | None:
    """Return what there is to say of another program's option, and what to type; None for what a command cannot do."""
    return next((each for each in OPTIONS.get(flag, ()) if _hinted(each[1]) <= {*own, "--help"}), None)


def _hinted(hint: str) -> set[str]:
    """Return the options that a hint names; a whole command line has its own."""
    return set() if _COMMAND_LINE.match(hint) else set(_FLAG.findall(hint))


def takes_prompt(command: click.Command) -> bool:
    """Whether the words of a command are a prompt."""
    return any(isinstance(each, click.Argument) and each.name == "prompt" for each in command.params)


def model_first(words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Return the model that the first word names, None where it begins a prompt, and the words of the prompt.

    Raises UsageError for a word that is nearly a name.
    """
    if not words or not words[0] or (re.search(r"\s", words[0]) and not _is_gguf_file(words[0])):
        return None, words
    if is_model(words[0]):
        return words[0], words[1:]
    near = _nearly_named(words)
    if near is not None:
        meant = f"did you mean -m {near}?" if near else "localspec ls lists those here"
        raise UsageError(
            f"there is no pair called {words[0]!r}; {meant}",
            hint="quote the whole prompt, or put -m NAME before it, if that word begins it",
        )
    return None, words


def _is_gguf_file(word: str) -> bool:
    """Whether a word with blanks is the path of a GGUF file, and no prompt."""
    return word.lower().endswith(".gguf") and os.path.isfile(os.path.expanduser(word))


def family_first(words: tuple[str, ...]) -> list[str]:
    """Return a line where a prompt of three words or more begins with the name of a family of models, as text."""
    word = words[0].lower() if len(words) > 2 else ""
    if not _FAMILY.fullmatch(word):
        return []
    from localspec.models.names import nearest  # late: as the names of the catalogue

    return [f"{words[0]!r} is sent as the prompt's first word; for a model: -m {nearest(word, _names()) or 'NAME'}"]


def is_model(word: str) -> bool:
    """Whether a word can only be a model: a name of the catalogue or of Ollama, a GGUF file, one of the hub, or a
    pair of these.

    A draft may be named by its kind.
    """
    from localspec.models.names import Alias, DraftChoice, HubName, PathName, parse
    from localspec.models.store import is_kind

    try:
        pair = parse(word)
    except UsageError:
        return False
    for each in (pair.target, pair.draft):
        match each:
            case DraftChoice():
                continue
            case PathName(path) if path.lower().endswith(".gguf"):
                continue
            case HubName() if word.lower().startswith(HUB):
                continue
            case Alias(name) if ":" in name:  # only a model of Ollama's that is here
                continue
            case Alias(name) if name in _names() or (each is pair.draft and is_kind(each)):
                continue
        return False
    return True


def is_here(word: str) -> bool:
    """Whether a word names a model that is here, such as a part of the name of a file in a folder called models."""
    from localspec.models.store import expand

    try:
        expand(word)
    except LocalspecError:
        return False
    return True


def _nearly_named(words: tuple[str, ...]) -> str | None:
    """Return the name that the first word may stand for, "" for a name of none that is known, None for a prompt."""
    word = words[0].lower()
    is_lone = len(words) <= 2  # the model and a quoted prompt, or an unquoted prompt of two words
    is_marked = bool(re.fullmatch(r"[a-z][\w.-]*\d[\w.:-]*", word))
    is_before_prompt = len(words) == 2 and " " in words[1] and bool(re.fullmatch(r"[a-z][\w.:-]{2,}", word))
    is_name = bool(_TAGGED.fullmatch(word)) or (is_lone and bool(_FAMILY.fullmatch(word)))
    is_name = is_name or (len(words) == 2 and bool(_COLON.fullmatch(word)))
    if is_lone and _REPO.fullmatch(word) and re.search(r"\d", word) and not os.path.exists(words[0]):
        return f"hf:{words[0]}"
    if not (is_marked or is_before_prompt or is_name or (is_lone and len(word) > 3)):
        return None
    from localspec.models.foreign import own_names  # late: as the names of the catalogue
    from localspec.models.names import near_miss, nearest

    if is_marked or is_before_prompt or is_name:
        here = nearest(word, own_names()) if is_name else None  # goes before one to download
        return here or nearest(word, _names()) or ("" if is_name else None)
    return near_miss(word, _names())


def _names() -> list[str]:
    from localspec.models.catalog import load_catalog  # late: most prompts are one word with blanks
    from localspec.models.store import BUNDLED

    try:
        return [*BUNDLED, *load_catalog().names()]
    except LocalspecError:  # the look-up of a name reports it
        return [*BUNDLED]


def _refuse_preset(flag: str, name: str, own: Mapping[str, click.Parameter]) -> None:
    """Raise UsageError for the name of a preset where llm and aichat have their templates and roles."""
    if flag not in ("-t", "-r", "--template") or "--preset" not in own or not name:
        return
    from localspec.settings.config_file import preset_names

    if name in preset_names():
        meaning = {"-t": "the number of threads", "-r": "a text to stop at"}.get(flag, "the chat template")
        raise UsageError(f"{flag} is {meaning} here, and {name!r} is a preset", hint=f"-P {name}")
    if flag == "-t" and not _NUMBER.fullmatch(name):
        raise UsageError("-t is the number of threads here", hint="-P NAME for a preset, or --threads N")


def _takes_value(param: click.Parameter | None) -> bool:
    return isinstance(param, click.Option) and not param.is_flag


def _refuse_number(flag: str, number: str) -> None:
    """Raise UsageError for a number where llama.cpp takes one and localspec does something else."""
    if not _NUMBER.fullmatch(number):
        return
    value = int(number[:18])
    if flag == "-c" and (value == 0 or value >= LEAST_CONTEXT):
        raise UsageError(f"-c continues a conversation here, and {number} would be the prompt", hint=f"--ctx {number}")
    if flag == "-s":
        raise UsageError("-s is the system message here", hint=f"--seed {number}, or --system {number}")
    if flag in ("-d", "--draft"):
        raise UsageError(f"{flag} names the draft model here", hint=f"-k {number}")
    if flag in ("-n", "--max-tokens", "--predict", "--n-predict") and value < 0:
        raise UsageError(f"{flag} {number} is no number of tokens", hint="leave it out: the model ends its answer")
