"""Settings of the next answer: changed by their names, for /set and the form of a chat, and checked together."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

from localspec.errors import UsageError, near_name
from localspec.settings.declaration import Option, declaration, declared
from localspec.settings.request import FORMS, LoadSettings, Request, Sampling, Speculation
from localspec.speculation import axis_names

_PARTS: dict[str, type[Any]] = {"speculation": Speculation, "sampling": Sampling, "": Request}  # by field of a request
_FOUND = [(part, each) for part, holder in _PARTS.items() for each in declared(holder) if each.in_chat]
SETTINGS: dict[str, Option] = {each.key: each for _, each in _FOUND}  # as /set lists them
_OF_THE_START = [  # what a chat begins with: settings of the load, and those of an answer that /set does not change
    each for each in (*declared(LoadSettings), *chain(*map(declared, _PARTS.values()))) if each.key not in SETTINGS
]
_COMMANDS = {"/draft": ("-d", "--draft"), "/model": ("-m", "--model"), "/system": ("-s", "--system")}
_FLAGS = {  # the command of a chat for each option that it knows
    **{f: f"/set {each.key}" for each in (*SETTINGS.values(), *_OF_THE_START) for f in (*each.flags, *each.aliases)},
    **{flag: name for name, flags in _COMMANDS.items() for flag in flags},
}
_SWITCHES = {f"/set {each.key}" for each in SETTINGS.values() if each.kind == "switch"}


def changed(request: Request, name: str, text: str) -> Request:
    _part, setting = _find(name)
    try:
        value = setting.typed(text)
    except UsageError as error:
        raise UsageError(error.message, hint=f"/set {setting.key} {shown(request, name)}") from None
    return with_value(request, name, value)


def options_in(line: str) -> list[str]:
    """Return the commands that a line of options stands for: ["/set temp 0", "/draft none"] for `--temp 0 -d none`. []
    where it does not begin with an option that a chat knows: then it is a message."""
    if "\n" in line.strip() or line.partition(" ")[0].partition("=")[0].rstrip() not in _FLAGS:
        return []
    try:
        words = shlex.split(line)
    except ValueError:  # a quote without its end
        return []
    groups: list[list[str]] = []
    for word in words:
        flag, _, value = word.partition("=")
        if flag in _FLAGS:
            groups.append([_FLAGS[flag], *([value] if value else [])])
        else:
            groups[-1].append(word)
    return [" ".join([*words, *(["on"] if words[-1] in _SWITCHES else [])]) for words in groups]


def refuse_fixed(name: str) -> None:
    """Raise UsageError for the name of a setting that a chat begins with: the hint begins one with it."""
    setting = next((each for each in _OF_THE_START if each.is_called(name)), None)
    if setting is not None:
        switched = f"--no-{setting.key}" if setting.default else setting.flag
        hint = f"localspec chat -c {switched if setting.kind == 'switch' else setting.example}"
        raise UsageError(f"{setting.key} is a setting that a chat begins with", hint=hint)


def with_value(request: Request, name: str, value: Any) -> Request:
    part, setting = _find(name)
    if not part:
        return replace(request, **{setting.name: value})
    return replace(request, **{part: replace(getattr(request, part), **{setting.name: value})})


def shown(request: Request, name: str) -> str:
    part, setting = _find(name)
    return setting.spelled(getattr(getattr(request, part) if part else request, setting.name))


def effect_remarks(request: Request, is_told: Callable[[str], bool], *, has_draft: bool) -> list[str]:
    """Return a line with the reason for each setting that changes nothing beside the others. `is_told` says of a field
    whether that matters; `has_draft`: the pair has a draft model or a head."""
    chosen = request.sampling
    idle: dict[str, str] = {}
    if chosen.temperature == 0:
        for name in ("top_k", "top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold"):
            idle[name] = "--temp 0 takes the likeliest token"
    if not chosen.dry_multiplier:
        for name in ("dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breaker"):
            idle[name] = "DRY is off without --dry-multiplier"
    if (chosen.repeat_penalty, chosen.presence_penalty, chosen.frequency_penalty) == (1.0, 0.0, 0.0):
        idle["penalty_last_n"] = "there is no penalty"
    if not chosen.xtc_probability:
        idle.setdefault("xtc_threshold", "XTC is off without --xtc-probability")
    elif chosen.xtc_threshold > 0.5:
        idle.setdefault("xtc_probability", "--xtc-threshold above 0.5 switches XTC off")
    if request.speculation != Speculation() or chosen.draft_temperature is not None:
        idle |= _idle_axes(request, has_draft=has_draft)
    remarks = []
    for name, why in idle.items():
        part = request.sampling if hasattr(request.sampling, name) else request.speculation
        setting = declaration(type(part), name)
        if getattr(part, name) != setting.default and is_told(name):
            remarks.append(f"{setting.flag} has no effect: {why}")
    return remarks


def _idle_axes(request: Request, *, has_draft: bool) -> dict[str, str]:
    from localspec.speculation.resolve import resolve_axes  # late: with numpy it is a third of a command's start

    asked, sampling = request.speculation, request.sampling
    is_greedy, is_seeded = sampling.temperature == 0.0, sampling.seed is not None
    idle: dict[str, str] = {}
    try:
        axes, usual = (
            resolve_axes(speculation, has_draft=has_draft, is_seeded=is_seeded, is_greedy=is_greedy)
            for speculation in (asked, replace(asked, verify="auto"))
        )
    except UsageError:  # told where the request is checked
        return {}
    drafts_nothing = axes.shape.nodes == 0 and not axes.is_automatic
    if drafts_nothing:
        idle |= dict.fromkeys(("length", "verify", "approximate", "draft_temperature"), "nothing is drafted")
    if axes.verifier.is_lossless:
        idle.setdefault("approximate", f"--verify {axes.verify} keeps the distribution")
    if not drafts_nothing and not (has_draft and _uses_draft(request)) and axes.method != "early-exit":
        idle["draft_temperature"] = "no draft model drafts"
    if axes.shape.leaves <= 1 and axes.verify == "traversal" and usual.verify == "block":
        idle.setdefault("verify", "on a chain it is --verify block, the usual rule; --tree eagle2 makes trees")
    is_point = is_greedy and not sampling.draft_temperature
    if is_point and axes.shape.leaves <= 1 and axes.verifier.is_lossless and axes.verify != "coupled":
        idle.setdefault("verify", "with --temp 0 every exact rule keeps the same tokens of a chain")
    return idle


def used_pair(settings: LoadSettings, request: Request) -> tuple[LoadSettings, str]:
    """Return the pair without a draft that nothing will use, and a line that says so; "" where none is left out."""
    if settings.draft is None or _uses_draft(request):
        return settings, ""
    speculation = request.speculation
    why = "-k 0" if speculation.k == 0 else f"--method {speculation.method}"
    return replace(settings, draft=None), f"the draft is not loaded: {why} uses none"


def _uses_draft(request: Request) -> bool:
    speculation = request.speculation
    if speculation.method == "auto":
        return speculation.k != 0
    from localspec.speculation import registered

    return speculation.k != 0 and bool(registered("method")[speculation.method].info.draft_kind)


def with_template(request: Request, named: str) -> Request:
    from localspec.prompt.chat_template import load_template  # late: few commands need it

    named = named.removeprefix("@")
    return replace(request, template=load_template(named), template_file=named)


def check_form(request: Request) -> None:
    if all(getattr(request, name) is None for name in FORMS):
        return
    from localspec.prompt.form import compiled, form_of  # late: few commands need it

    form = form_of(request)
    assert form is not None
    compiled(form)


def known_values(name: str) -> tuple[str, ...]:
    setting = next((each for each in SETTINGS.values() if each.is_called(name)), None)
    if setting is None:
        return ()
    values = axis_names(setting.name) if setting.is_axis else setting.choices
    known = ("on", "off") if setting.kind == "switch" else values
    return tuple(dict.fromkeys((*known, *((setting.nothing,) if setting.default is None else ()))))


def check(request: Request, settings: LoadSettings) -> None:
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
    named = next((entry for entry in _FOUND if entry[1].is_called(name)), None)
    if named is None:
        refuse_fixed(name)
        near = near_name(name.lstrip("-"), SETTINGS)
        hint = f"/set {near}" if near else "/set lists them"
        raise UsageError(f"there is no setting {name.lstrip('-')!r}", hint=hint)
    return named
