"""The contenders of a bench, read from `--methods`.

METHODS  = ONE{,ONE}                      a comma before a digit belongs to what it follows: static:4,2,2
ONE      = NAME[:ARGUMENT]{:KEY=VALUE}
NAME     = a drafting method, a tree shape (drafted by the draft model), plain, or auto
ARGUMENT = what the shape takes (dyspec:16, static:3,2,1); of a method, its draft length (draft-model:4)
KEY      = k, tree, length, verify, draft-temp, approximate (as `localspec run` has them), or an option of the method
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.errors import UsageError, near_name
from localspec.settings.declaration import declaration
from localspec.settings.removed import check_removed
from localspec.settings.request import Sampling, Speculation
from localspec.speculation import registered
from localspec.speculation.resolve import resolve_axes

PLAIN = "plain"
_BETWEEN = re.compile(r"(?<![,\s])[,\s]++(?=[A-Za-z][\w-]*(?:[:,\s]|$))")  # no comma before key=value or a number
_SETTING = re.compile(r":(?=[\w-]+=)")
_KEYS = {name: declaration(Speculation, name) for name in ("k", "tree", "length", "verify", "approximate")}
_KEYS["draft-temp"] = declaration(Sampling, "draft_temperature")
HINT = "--methods plain,draft-model:k=4,suffix,dyspec:16"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to answer; `name` is how tables call it."""

    name: str
    speculation: Speculation
    draft_temperature: float | None = None


def parse_contenders(text: str, budgets: Sequence[int] = (), *, has_draft: bool) -> tuple[Contender, ...]:
    """Return what `text` asks for, plain decoding first, which every ratio is against.

    With `budgets`, what names no size of its own and could have one is measured once for each. Raises UsageError.
    """
    is_sized = False
    contenders: dict[str, Contender] = {PLAIN: Contender(PLAIN, Speculation(method=PLAIN))}
    for word in _BETWEEN.split(text.strip(", \t")):
        if not word:
            raise UsageError("--methods names none", hint=HINT)
        asked = _contender(word)
        sizes = budgets if budgets and _takes_size(asked.speculation, has_draft) else ()
        is_sized |= bool(sizes)
        for contender in [_sized(asked, k) for k in sizes] or [asked]:
            try:  # as `localspec run` would
                contender.speculation.check()
                resolve_axes(contender.speculation, has_draft=has_draft, is_seeded=False)
            except UsageError as error:
                message = f"--methods {contender.name}: {error.message}"
                raise UsageError(message, hint=HINT, detail=error.detail) from None
            contenders.setdefault(contender.name, contender)
    if budgets and not is_sized:
        raise UsageError(
            f"--budgets reaches no method of {text}: each has a size, or takes none",
            hint=f"--methods {'draft-model,dyspec' if has_draft else 'suffix'} --budgets {budgets[0]}",
        )
    return tuple(contenders.values())


def _sized(contender: Contender, k: int) -> Contender:
    return replace(contender, name=f"{contender.name}:k={k}", speculation=replace(contender.speculation, k=k))


def without_size(name: str) -> str:
    """Return the name of a contender without its draft length and its tree's size: what has others is its like."""
    head, *settings = _SETTING.split(name)
    parts = [_unsized(head), *(_unsized(setting) if setting.startswith("tree=") else setting for setting in settings)]
    return ":".join(setting for setting in parts if not setting.startswith("k="))


def _unsized(word: str) -> str:
    """Return "dyspec" for "dyspec:16", "dyspec:depth=4" for "dyspec:16,depth=4"."""
    shape, _, argument = word.partition(":")
    rest = ",".join(part for part in argument.split(",") if "=" in part)
    return f"{shape}:{rest}" if rest else shape


def _contender(word: str) -> Contender:
    head, *settings = _SETTING.split(word)
    name, _, argument = head.partition(":")
    given: dict[str, Any] = {"method": name}
    if name == "auto" or name in registered("method"):
        settings = [*([f"k={argument}"] if argument else []), *settings]
    elif name in registered("tree"):
        given = {"method": "draft-model", "tree": head}
    else:
        check_removed(name)
        near = near_name(name, ["auto", *registered("method"), *registered("tree")])
        raise UsageError(
            f"--methods {word!r}: there is no method or tree {name!r}", hint=f"--methods {near}" if near else HINT
        )
    for key, _, text in (setting.partition("=") for setting in settings):
        if key not in _KEYS:
            given["options"] = (*given.get("options", ()), (key, text))
            continue
        try:
            given[_KEYS[key].name] = _KEYS[key].typed(text)
        except UsageError as error:
            raise UsageError(f"--methods {word}: {error.message}", hint=HINT) from None
    temperature = given.pop("draft_temperature", None)
    return Contender(word, Speculation(**given), temperature)


def _takes_size(speculation: Speculation, has_draft: bool) -> bool:
    """Whether -k would be obeyed; not where a size was given, nor where something else is wrong."""
    if speculation.k is not None or speculation.method in ("plain", "auto"):
        return False
    try:
        resolve_axes(replace(speculation, k=1), has_draft=has_draft, is_seeded=False)
    except UsageError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Preset:
    """The settings of a protocol; an option that is given wins over them."""

    methods: str
    temperatures: tuple[float, ...]
    prompt_tokens: int
    max_tokens: int
    draft_temperature: float
    about: str


PRESETS = {
    # DySpec, arXiv 2410.11744: prompts of 128 tokens, 128 generated, draft at 0.6, trees of 64.
    "paper": Preset(
        methods="plain,draft-model:k=4,static:4,2,2,1,1,sequoia:64,dyspec:64",
        temperatures=(0.0, 0.6),
        prompt_tokens=128,
        max_tokens=128,
        draft_temperature=0.6,
        about="128 prompt tokens, 128 generated, draft at 0.6, target at 0 and 0.6, trees of 64",
    )
}


def preset(name: str) -> Preset:
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}", hint=f"--preset {next(iter(PRESETS))}")
    return PRESETS[name]
