"""Commands that change the settings of the next answer: sampling, speculation, system message, pair, preset."""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from localspec.chat.command import Chat, command
from localspec.chat.state import ChatState
from localspec.errors import UsageError
from localspec.models.recent import recent_pairs
from localspec.models.store import target_reference
from localspec.sanitize import one_line
from localspec.settings.declaration import declaration, spelled
from localspec.settings.presets import DECLARED, OWN_KEYS, find_preset, preset_names, presets
from localspec.settings.request import LoadSettings, Request
from localspec.ui.columns import aligned
from localspec.ui.files import path_completions
from localspec.ui.inputs import text_or_file
from localspec.ui.settings import SETTINGS, changed, known_values, shown, with_template, with_value

_LOADING = {each.name for each in fields(LoadSettings)}
MODELS = (".gguf",)  # endings of their files
_CTX = declaration(LoadSettings, "ctx")


def _typed_settings(typed: str) -> Iterable[str]:
    name, blank, _ = typed.partition(" ")
    if not blank:
        return [f"{each} " for each in SETTINGS]
    return [f"{name} {value}" for value in known_values(name)]


@command("/set [NAME VALUE]", "change a setting; alone, list them", values=_typed_settings)
async def change(chat: Chat, argument: str) -> None:
    name, _, value = argument.partition(" ")
    if not name:
        await show_settings(chat, "")
    elif not _CTX.is_called(name):
        if value:
            chat.state.change(changed(chat.state.request, name, value.strip()))
        await chat.tell(f"{name} {one_line(shown(chat.state.request, name.lstrip('-')))}")
    elif not (value and chat.is_answering()):
        await change_context(chat, value.strip())


@command("/temp F", "temperature")
async def change_temperature(chat: Chat, argument: str) -> None:
    await change(chat, f"temp {argument}".rstrip())


@command("/ctx [N]", "load the pair with another context, in tokens", needs_rest=True)
async def change_context(chat: Chat, argument: str) -> None:
    settings = chat.state.settings
    if argument:
        try:
            n = _CTX.typed(argument)
            _CTX.check(n)
        except UsageError as error:
            raise UsageError(error.message, hint="/ctx 8192") from None
        if n != settings.ctx:
            await chat.load(replace(settings, ctx=n))
    await chat.tell(_context(chat.state))


@command("/seed N", "seed; none: a new one each time", values="none")
async def change_seed(chat: Chat, argument: str) -> None:
    await change(chat, f"seed {argument}".rstrip())


@command("/k N", "draft tokens per pass; 0: plain decoding")
async def change_k(chat: Chat, argument: str) -> None:
    await change(chat, f"k {argument}".rstrip())


@command("/settings", "all settings, with their origin", screen="settings")
async def show_settings(chat: Chat, _argument: str) -> None:
    texts = {**{each: one_line(shown(chat.state.request, each)) for each in SETTINGS}, _CTX.key: _context(chat.state)}
    rows = [(f"  {name}", texts[name].removeprefix("ctx "), origin) for name, origin in chat.state.origins().items()]
    await chat.show(aligned(rows, right=(), most=40))


@command("/system [TEXT|@FILE]", "system message; none removes it", screen="system", values="none")
async def change_system(chat: Chat, argument: str) -> None:
    if argument:
        chat.state.set_system(None if argument == "none" else text_or_file("/system", argument))
    await chat.tell(f"system: {one_line(chat.state.messages.system or 'none')}")


@command("/model [PAIR]", "let another pair answer; alone, choose or show it", aliases="pair", screen="pairs",
         needs_rest=True, values=lambda typed: [*(each.pair for each in recent_pairs() if each.is_here),
                                                *path_completions(typed, MODELS)])  # fmt: skip
async def change_model(chat: Chat, argument: str) -> None:
    if argument:
        await _switch(chat, argument)
    settings = chat.state.settings
    await chat.tell(f"pair: {one_line(settings.name)}{'' if settings.draft else ', without a draft model'}")


@command(
    "/draft [NAME]", "change the draft model; none: no draft model", screen="pairs", needs_rest=True, values="none"
)
async def change_draft(chat: Chat, argument: str) -> None:
    if argument:
        await _switch(chat, _with_draft(chat.state.settings, argument))
    await chat.tell(f"draft: {one_line(chat.state.settings.draft or 'none')}")


def _context(state: ChatState) -> str:
    loaded, ctx = state.loaded, state.settings.ctx
    n = loaded.n_ctx if loaded is not None else ctx
    return f"ctx {_CTX.spelled(ctx) if n is None else f'{n} tokens'}"


def _with_draft(settings: LoadSettings, draft: str) -> str:
    return draft if settings.verifier is not None else f"{target_reference(settings)}+{draft}"


async def _switch(chat: Chat, pair: str) -> None:
    settings = await chat.find_pair(pair)
    chat.state.fitting(chat.state.request, settings)
    await chat.load(settings)


@command("/preset [NAME]", "take the settings of a preset; alone, list them", needs_rest=True,
         values=lambda _typed: preset_names())  # fmt: skip
async def take_preset(chat: Chat, argument: str) -> None:
    """Take the settings of a preset, or list the presets. Nothing changes if one of them is wrong."""
    if not argument:
        lines = [f"{name}  {_said(preset)}" for name, preset in sorted(presets().items())]
        await chat.show(lines or ["no presets yet: localspec config preset save NAME -m PAIR --temp 0.2"])
        return
    values = find_preset(argument)
    request = _requested(chat.state.request, values)
    system = text_or_file("system", str(values["system"])) if "system" in values else None
    settings = await _pair(chat, values)
    request = chat.state.fitting(request, settings)
    if settings != chat.state.settings:
        await chat.load(settings)
    chat.state.change(request)
    if system is not None:
        chat.state.set_system(system)
    await chat.tell(f"preset {argument}: {one_line(_said(values))}")


def _said(preset: dict[str, Any]) -> str:
    return ", ".join(f"{key} {spelled(value)}" for key, value in preset.items())


def _requested(request: Request, values: dict[str, Any]) -> Request:
    for key, value in values.items():
        if key in SETTINGS:
            request = with_value(request, key, _value(key, value))
        elif key == "template":
            request = with_template(request, str(value))
    return request


async def _pair(chat: Chat, values: dict[str, Any]) -> LoadSettings:
    settings, model, draft = chat.state.settings, values.get("model"), values.get("draft")
    if model is not None or draft is not None:
        pair = _with_draft(settings, str(draft)) if model is None else str(model)
        settings = await chat.find_pair(pair if None in (model, draft) else f"{pair}+{draft}")
    loading = {DECLARED[key].name: _value(key, value) for key, value in values.items() if key not in OWN_KEYS}
    return replace(settings, **{name: value for name, value in loading.items() if name in _LOADING})


def _value(key: str, value: Any) -> Any:
    setting = DECLARED[key]
    if setting.is_repeated:
        made = setting.value(tuple(map(str, value if isinstance(value, list) else [value])))
    else:
        made = setting.value(str(value) if setting.kind == "text" else value)
    setting.check(made)
    return made
