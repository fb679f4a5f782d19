"""Settings of the next answer: changed by their names, for /set and the form of a chat, and checked together."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from localspec.errors import LocalspecError, UsageError
from localspec.settings.declaration import Option, declaration, declared
from localspec.settings.request import FORMS, LoadSettings, Request, Sampling, Speculation
from localspec.speculation import axis_names

_PARTS: dict[str, type[Any]] = {"speculation": Speculation, "sampling": Sampling, "": Request}  # by field of a request
_OPTION = re.compile(r"(?<![\w/-])(--?[a-zA-Z][\w-]*)(?: (?!-[a-zA-Z-])('[^']*'|[^\s;,]+))?")
_FLAG = re.compile(r"(?<![\w/-])--?[a-zA-Z][\w-]*")
_QUOTED = re.compile(r" '([^']*)'")  # as a shell wants it; a chat takes what is typed
_LEFT_OUT = re.compile(r"leave out (--?[a-z][\w-]*)(?: (?!and |or |-)[^\s;,]+)?")
_COMMANDS = {  # of a chat, and the options that they stand for
    "/draft": ("-d", "--draft"), "/model": ("-m", "--model"), "/system": ("-s", "--system"), "/ctx": ("--ctx",),
    "/temp": ("--temp",), "/seed": ("--seed",), "/k": ("-k", "--draft-tokens"),
}  # fmt: skip
_FOUND = [(part, each) for part, holder in _PARTS.items() for each in declared(holder) if each.in_chat]
SETTINGS: dict[str, Option] = {each.key: each for _, each in _FOUND}  # as /set lists them
_OF_THE_START = [  # what a chat begins with: settings of the load, and those of an answer that /set does not change
    each for each in (*declared(LoadSettings), *chain(*map(declared, _PARTS.values()))) if each.key not in SETTINGS
]
Told = TypeVar("Told", bound=LocalspecError)


def changed(request: Request, name: str, text: str) -> Request:
    """Return `request` with one setting changed; raises UsageError for a name or a value that is none."""
    _part, setting = _find(name)
    try:
        value = setting.typed(text)
    except UsageError as error:
        raise UsageError(error.message, hint=f"/set {setting.key} {shown(request, name)}") from None
    return with_value(request, name, value)


def retyped(error: Told, before: str) -> Told:
    """Return an error whose hint is an option with that setting typed behind `before`, as "/set " and config set."""
    is_option = error.hint.startswith("--") and " --" not in error.hint
    hint = f"{before}{error.hint[2:]}" if is_option else error.hint
    hint = _QUOTED.sub(r" \1", hint) if hint.startswith("/") else hint
    return type(error)(error.message, hint=hint, detail=error.detail)


def in_chat(hint: str) -> str:
    """Return a hint as a chat takes it: `-d none` is /draft none there, `--temp 0` /set temp 0, and `--gpu off` of the
    next chat. Commands of the shell stay, and so do options that no chat has.
    """
    hint = _LEFT_OUT.sub(_usual, hint)
    parts = re.split(r"(, or |; )", hint)
    told = (part if "localspec " in part else _OPTION.sub(_typed_in_chat, part) for part in parts)
    return "".join(told).replace("\2 \1", ", then ").replace("\1", "").replace("\2", "")


def remark_in_chat(line: str) -> str:
    """Return a remark as a chat tells it: what may be typed stands behind a semicolon, and names before it."""
    told, semicolon, rest = line.partition("; ")
    return f"{_FLAG.sub(_named_in_chat, told)}{semicolon}{in_chat(rest)}"


def error_in_chat(error: LocalspecError) -> LocalspecError:
    """Return the error as a chat tells it: a setting that it begins with has no dashes, and none is typed there."""
    begin = re.match(r"--?([a-z][\w-]*) ", error.message)
    if begin and any(each.is_called(begin[1]) for each in (*SETTINGS.values(), *_OF_THE_START)):
        error = type(error)(error.message.lstrip("-"), hint=error.hint, detail=error.detail)
    return error.hinted(in_chat(error.hint))


def _named_in_chat(flag: re.Match[str]) -> str:
    """Return what a chat calls an option: its command, or the name of the setting; one that no chat has stays."""
    command = next((name for name, flags in _COMMANDS.items() if flag[0] in flags), "")
    return command or next((each.key for each in SETTINGS.values() if each.is_called(flag[0])), flag[0])


def _typed_in_chat(typed: re.Match[str]) -> str:
    """Return one option, and its value if one stands behind it, between two marks."""
    flag, word = typed[1], typed[2] or ""
    bare = word[1:-1] if word.startswith("'") else word
    command = next((name for name, flags in _COMMANDS.items() if flag in flags), "")
    setting = next((each for each in (*SETTINGS.values(), *_OF_THE_START) if each.is_called(flag)), None)
    if not command and setting is None:
        return typed[0]
    is_value = setting is None and bool(re.search(r"[^a-z]", word) or word in ("none", "auto"))
    if setting is not None:
        is_value = _is_value(setting, bare)
        command = command or (f"/set {setting.key}" if setting.key in SETTINGS else f"localspec chat -c {flag}")
    is_set = setting is not None and setting.key in SETTINGS
    value = f" {bare if is_set else word}" if word and is_value else ""
    value = value or (" on" if setting is not None and is_set and setting.kind == "switch" else "")
    return f"\1{command}{value}\2" + ("" if is_value or not word else f" {word}")


def _usual(left_out: re.Match[str]) -> str:
    """Return an option that is to be left out with its default, as a chat leaves it out; one of the start in words."""
    setting = next((each for each in SETTINGS.values() if each.is_called(left_out[1])), None)
    if setting is None:
        is_known = any(each.is_called(left_out[1]) for each in _OF_THE_START)
        return f"localspec chat -c without {left_out[1]}" if is_known else left_out[0]
    return f"{left_out[1]} {setting.spelled(setting.default)}"


def _is_value(setting: Option, word: str) -> bool:
    """Whether a word is a value of a setting, or stands for one, as N does."""
    if setting.is_axis:
        return word.isupper() or word.partition(":")[0] in axis_names(setting.name)
    try:
        return word.isupper() or (bool(word) and setting.is_within(setting.read(word)))
    except (ValueError, LocalspecError):
        return False


def refuse_fixed(name: str) -> None:
    """Raise UsageError for the name of a setting that a chat begins with: the hint begins one with it."""
    setting = next((each for each in _OF_THE_START if each.is_called(name)), None)
    if setting is not None:
        switched = f"--no-{setting.key}" if setting.default else setting.flag
        hint = f"localspec chat -c {switched if setting.kind == 'switch' else setting.example}"
        raise UsageError(f"{setting.key} is a setting that a chat begins with", hint=hint)


def with_value(request: Request, name: str, value: Any) -> Request:
    """Return `request` with another value of one setting; raises UsageError for a name that is none."""
    part, setting = _find(name)
    if not part:
        return replace(request, **{setting.name: value})
    return replace(request, **{part: replace(getattr(request, part), **{setting.name: value})})


def shown(request: Request, name: str) -> str:
    """Return the value of a setting as it may be typed."""
    part, setting = _find(name)
    return setting.spelled(getattr(getattr(request, part) if part else request, setting.name))


def without_effect(request: Request, *, has_draft: bool) -> dict[str, str]:
    """Return the settings that change nothing beside the others, by field, each with the reason.

    `has_draft`: the pair has a draft model or a head.
    """
    chosen = request.sampling
    found: dict[str, str] = {}
    if chosen.temperature == 0:
        for name in ("top_k", "top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold"):
            found[name] = "--temp 0 takes the likeliest token"
    if not chosen.dry_multiplier:
        for name in ("dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breaker"):
            found[name] = "DRY is off without --dry-multiplier"
    if (chosen.repeat_penalty, chosen.presence_penalty, chosen.frequency_penalty) == (1.0, 0.0, 0.0):
        found["penalty_last_n"] = "there is no penalty"
    if not chosen.xtc_probability:
        found.setdefault("xtc_threshold", "XTC is off without --xtc-probability")
    elif chosen.xtc_threshold > 0.5:
        found.setdefault("xtc_probability", "--xtc-threshold above 0.5 switches XTC off")
    if request.speculation != Speculation() or chosen.draft_temperature is not None:
        found |= _idle_axes(request, has_draft=has_draft)
    return {name: why for name, why in found.items() if _value(request, name) != _value(Request(), name)}


def _idle_axes(request: Request, *, has_draft: bool) -> dict[str, str]:
    """Return what of the speculation changes nothing, by field; {} where its axes do not go together."""
    from localspec.speculation.resolve import resolve_axes  # late: with numpy it is a third of a command's start

    asked, sampling = request.speculation, request.sampling
    is_greedy, is_seeded = sampling.temperature == 0.0, sampling.seed is not None
    found: dict[str, str] = {}
    try:
        axes, usual = (
            resolve_axes(one, has_draft=has_draft, is_seeded=is_seeded, is_greedy=is_greedy)
            for one in (asked, replace(asked, verify="auto"))
        )
    except UsageError:  # told where the request is checked
        return {}
    drafts_nothing = axes.shape.nodes == 0 and not axes.is_automatic
    if drafts_nothing:
        found |= dict.fromkeys(("length", "verify", "approximate", "draft_temperature"), "nothing is drafted")
    if axes.verifier.is_lossless:
        found.setdefault("approximate", f"--verify {axes.verify} keeps the distribution")
    if not drafts_nothing and not (has_draft and _uses_draft(request)) and axes.method != "early-exit":
        found["draft_temperature"] = "no draft model drafts"
    if axes.shape.leaves <= 1 and axes.verify == "traversal" and usual.verify == "block":
        found.setdefault("verify", "on a chain it is --verify block, the usual rule; --tree eagle2 makes trees")
    is_point = is_greedy and not sampling.draft_temperature
    if is_point and axes.shape.leaves <= 1 and axes.verifier.is_lossless and axes.verify != "coupled":
        found.setdefault("verify", "with --temp 0 every exact rule keeps the same tokens of a chain")
    return found


def _value(request: Request, name: str) -> Any:
    return getattr(request.sampling if hasattr(request.sampling, name) else request.speculation, name)


def effect_remarks(request: Request, is_told: Callable[[str], bool], *, has_draft: bool) -> list[str]:
    """Return a line for each setting that changes nothing, of those whose field `is_told`."""
    return [
        f"{declaration(Sampling if hasattr(request.sampling, name) else Speculation, name).flag} has no effect: {why}"
        for name, why in without_effect(request, has_draft=has_draft).items()
        if is_told(name)
    ]


def used_pair(settings: LoadSettings, request: Request) -> tuple[LoadSettings, str]:
    """Return the pair without a draft that nothing will use, and a line that says so; "" where none is left out."""
    if settings.draft is None or _uses_draft(request):
        return settings, ""
    speculation = request.speculation
    why = "-k 0" if speculation.k == 0 else f"--method {speculation.method}"
    return replace(settings, draft=None), f"the draft is not loaded: {why} uses none"


def _uses_draft(request: Request) -> bool:
    """Whether any pass may be drafted by the pair's draft: not by plain decoding, and not by copies."""
    speculation = request.speculation
    if speculation.method == "auto":
        return speculation.k != 0
    from localspec.speculation import registered

    return speculation.k != 0 and bool(registered("method")[speculation.method].info.draft_kind)


def with_template(request: Request, named: str) -> Request:
    """Return the request with the chat template that a name or a file is; raises UsageError and NotFoundError."""
    from localspec.prompt.chat_template import load_template  # late: few commands need it

    named = named.removeprefix("@")
    return replace(request, template=load_template(named), template_file=named)


def check_form(request: Request) -> None:
    """Raise UsageError where the answer's form cannot be kept."""
    if all(getattr(request, name) is None for name in FORMS):
        return
    from localspec.prompt.form import compiled, form_of  # late: few commands need it

    form = form_of(request)
    assert form is not None
    compiled(form)


def known_values(name: str) -> tuple[str, ...]:
    """Return the values that a setting is known to take, () where any number or text may be one."""
    setting = next((each for each in SETTINGS.values() if each.is_called(name)), None)
    if setting is None:
        return ()
    values = axis_names(setting.name) if setting.is_axis else setting.choices
    known = ("on", "off") if setting.kind == "switch" else values
    return tuple(dict.fromkeys((*known, *((setting.nothing,) if setting.default is None else ()))))


def check(request: Request, settings: LoadSettings) -> None:
    """Raise UsageError for settings that are out of range or do not go together."""
    request.check()
    if request.speculation == Speculation():  # the defaults go together
        return
    from localspec.speculation.reproducible import require_reproducible
    from localspec.speculation.resolve import resolve_axes  # late: with numpy it is a third of a command's start

    if settings.reproducible:
        require_reproducible(request.speculation, request.sampling)

    seed = request.sampling.seed
    resolve_axes(
        request.speculation,
        has_draft=settings.draft is not None,
        is_seeded=seed is not None,
        is_greedy=request.sampling.temperature == 0.0,
    )


def _find(name: str) -> tuple[str, Option]:
    """Return a setting, by any of its names, and the part of a request that has it; raises UsageError."""
    found = next((one for one in _FOUND if one[1].is_called(name)), None)
    if found is None:
        refuse_fixed(name)
        near = difflib.get_close_matches(name.lstrip("-"), SETTINGS, n=1)
        hint = f"/set {near[0]}" if near else "/set lists them"
        raise UsageError(f"there is no setting {name.lstrip('-')!r}", hint=hint)
    return found
