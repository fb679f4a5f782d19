"""The contenders of a bench, read from `--methods`.

METHODS  = ONE{,ONE}                      a comma before a digit belongs to what it follows: static:4,2,2
ONE      = NAME[:ARGUMENT]{:KEY=VALUE}
NAME     = a drafting method, a tree shape (drafted by the draft model), plain, or auto
ARGUMENT = what the shape takes (dyspec:16, static:3,2,1); of a method, its draft length (draft-model:4)
KEY      = k, tree, length, verify, draft-temp, approximate (as `localspec run` has them), or an option of the method
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localspec.errors import UsageError, near_name
from localspec.settings.removed import check_removed
from localspec.settings.request import Speculation
from localspec.settings.sizes import whole
from localspec.speculation import registered
from localspec.speculation.resolve import resolve_axes

PLAIN = "plain"
_BETWEEN = re.compile(r"(?<![,\s])[,\s]++(?=[A-Za-z][\w-]*(?:[:,\s]|$))")  # no comma before key=value or a number
_SETTING = re.compile(r":(?=[\w-]+=)")
_WITHOUT_BUDGET = ("plain", "auto")
_SWITCH = {"on": True, "off": False}
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
        for contender in _sized(asked, budgets, has_draft):
            is_sized = is_sized or contender is not asked
            _check(contender, has_draft)
            contenders.setdefault(contender.name, contender)
    if budgets and not is_sized:
        raise UsageError(
            f"--budgets reaches no method of {text}: each has a size, or takes none",
            hint=f"--methods {'draft-model,dyspec' if has_draft else 'suffix'} --budgets {budgets[0]}",
        )
    return tuple(contenders.values())


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
    if name == "auto" or name in registered("method"):
        wanted = Speculation(method=name, k=_integer(word, argument) if argument else None)
    elif name in registered("tree"):
        wanted = Speculation(method="draft-model", tree=head)
    else:
        check_removed(name)
        known = ["auto", *registered("method"), *registered("tree")]
        near = near_name(name, known)
        raise UsageError(
            f"--methods {word!r}: there is no method or tree {name!r}", hint=f"--methods {near}" if near else HINT
        )
    contender = Contender(word, wanted)
    for setting in settings:
        key, _, value = setting.partition("=")
        contender = _with(contender, key, value)
    return contender


def _with(contender: Contender, key: str, value: str) -> Contender:
    speculation = contender.speculation
    match key:
        case "k":
            changed = dataclasses.replace(speculation, k=_integer(contender.name, value))
        case "tree":
            changed = dataclasses.replace(speculation, tree=value)
        case "length":
            changed = dataclasses.replace(speculation, length=value)
        case "verify":
            changed = dataclasses.replace(speculation, verify=value)
        case "approximate":
            if value not in _SWITCH:
                raise UsageError(f"--methods {contender.name!r}: approximate={value}", hint="approximate=on, or =off")
            changed = dataclasses.replace(speculation, approximate=_SWITCH[value])
        case "draft-temp":
            return dataclasses.replace(contender, draft_temperature=_number(contender.name, value))
        case _:
            changed = dataclasses.replace(speculation, options=(*speculation.options, (key, value)))
    return dataclasses.replace(contender, speculation=changed)


def _sized(each: Contender, budgets: Sequence[int], has_draft: bool) -> Iterator[Contender]:
    """Yield it once for each budget, as it is where it has a size already or takes none."""
    if not budgets or not _takes_size(each.speculation, has_draft):
        yield each
        return
    for budget in budgets:
        yield dataclasses.replace(
            each, name=f"{each.name}:k={budget}", speculation=dataclasses.replace(each.speculation, k=budget)
        )


def _takes_size(speculation: Speculation, has_draft: bool) -> bool:
    """Whether -k would be obeyed; not where a size was given, nor where something else is wrong."""
    if speculation.k is not None or speculation.method in _WITHOUT_BUDGET:
        return False
    try:
        resolve_axes(dataclasses.replace(speculation, k=1), has_draft=has_draft, is_seeded=False)
    except UsageError:
        return False
    return True


def _check(contender: Contender, has_draft: bool) -> None:
    """Refuse what does not go together, as `localspec run` would."""
    try:
        contender.speculation.check()
        resolve_axes(contender.speculation, has_draft=has_draft, is_seeded=False)
    except UsageError as error:
        raise UsageError(f"--methods {contender.name}: {error.message}", hint=HINT, detail=error.detail) from None


def _integer(word: str, text: str) -> int:
    number = whole(text)
    if number is None:
        raise UsageError(f"--methods {word!r}: {text!r} is no number of draft tokens", hint=HINT)
    return number


def _number(word: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--methods {word!r}: {text!r} is no temperature", hint=HINT) from None


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
