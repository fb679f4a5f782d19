"""The command that takes the settings of a preset: those of the next answer, the system message, and the pair."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from localspec.chat.command import Chat, command
from localspec.sanitize import one_line
from localspec.settings.config_file import Entry
from localspec.settings.presets import DECLARED, OWN_KEYS, find_preset, preset_names, presets
from localspec.settings.request import LoadSettings, Request
from localspec.settings.setting import spelled
from localspec.ui.inputs import text_or_file
from localspec.ui.settings import SETTINGS, check, template_text, with_value

_LOADING = {each.name for each in fields(LoadSettings)}


def _typed_presets(_typed: str) -> Iterable[str]:
    return preset_names()


@command("/preset [NAME]", "take the settings of a preset; alone, list them", needs_rest=True, values=_typed_presets)
async def take_preset(chat: Chat, argument: str) -> None:
    """Take the settings of a preset, or list the presets. Nothing changes if one of them is wrong."""
    if not argument:
        lines = [f"{name}  {_said(found)}" for name, found in sorted(presets().items())]
        await chat.show(lines or ["no presets yet: localspec config preset save NAME -m PAIR --temp 0.2"])
        return
    found = find_preset(argument)
    values = {key: entry.value for key, entry in found.items()}
    request = _requested(chat.state.request, values)
    system = text_or_file("system", str(values["system"])) if "system" in values else None
    settings = await _pair(chat, values)
    check(request, settings)
    if settings != chat.state.settings:
        await chat.load(settings)
    chat.state.change(request)
    if system is not None:
        chat.state.set_system(system)
    await chat.tell(f"preset {argument}: {one_line(_said(found))}")


def _said(found: dict[str, Entry]) -> str:
    return ", ".join(f"{key} {spelled(entry.value)}" for key, entry in found.items())


def _requested(request: Request, values: dict[str, Any]) -> Request:
    """Return the request with the settings of the next answer; raises UsageError."""
    for key, value in values.items():
        if key in SETTINGS:
            request = with_value(request, key, _value(key, value))
        elif key == "template":
            request = replace(request, template=template_text(str(value)))
    return request


async def _pair(chat: Chat, values: dict[str, Any]) -> LoadSettings:
    """Return how to load the preset's pair, and the present one where it names none."""
    settings, model, draft = chat.state.settings, values.get("model"), values.get("draft")
    if model is not None or draft is not None:
        from localspec.models.store import target_reference

        target = str(model) if model is not None else target_reference(settings)
        settings = await chat.find_pair(target if draft is None else f"{target}+{draft}")
    loading = {DECLARED[key].field: _value(key, value) for key, value in values.items() if key not in OWN_KEYS}
    return replace(settings, **{name: value for name, value in loading.items() if name in _LOADING})


def _value(key: str, value: Any) -> Any:
    """Return the field's value for that of config.toml, as the option gives it."""
    setting = DECLARED[key]
    if setting.is_repeated:
        made = setting.value(tuple(map(str, value if isinstance(value, list) else [value])))
    else:
        made = setting.value(str(value) if setting.kind == "text" else value)
    setting.check(made)
    return made
