"""Settings by the names of their options, for /set in a chat: what may change from one answer to the next."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from localspec.errors import UsageError
from localspec.settings.request import Request
from localspec.ui.values import draft_length, key_value, unescape


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a setting lives in a request, and how its value is read."""

    part: str  # sampling, speculation, or "" for the request itself
    field: str
    read: Callable[[str], Any]


def _optional(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text.lower() in ("none", "auto", "random", "off") else read(text)


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(key_value(word) for word in text.split())


_SWITCH = {"on": True, "off": False}
SETTINGS: dict[str, Setting] = {
    "temp": Setting("sampling", "temperature", float),
    "top-k": Setting("sampling", "top_k", int),
    "top-p": Setting("sampling", "top_p", float),
    "min-p": Setting("sampling", "min_p", float),
    "typical-p": Setting("sampling", "typical_p", float),
    "repeat-penalty": Setting("sampling", "repeat_penalty", float),
    "presence-penalty": Setting("sampling", "presence_penalty", float),
    "frequency-penalty": Setting("sampling", "frequency_penalty", float),
    "penalty-last-n": Setting("sampling", "penalty_last_n", int),
    "draft-temp": Setting("sampling", "draft_temperature", _optional(float)),
    "seed": Setting("sampling", "seed", _optional(int)),
    "k": Setting("speculation", "k", draft_length),
    "method": Setting("speculation", "method", str),
    "tree": Setting("speculation", "tree", str),
    "length": Setting("speculation", "length", str),
    "verify": Setting("speculation", "verify", str),
    "options": Setting("speculation", "options", lambda text: () if text == "none" else _pairs(text)),
    "approximate": Setting("speculation", "approximate", lambda text: _SWITCH[text.lower()]),
    "max-tokens": Setting("", "max_tokens", _optional(int)),
    "stop": Setting("", "stop", lambda text: () if text.lower() == "none" else (unescape(text),)),
}


def changed(request: Request, name: str, text: str) -> Request:
    """Return `request` with one setting changed; raises UsageError for a name or a value that is none."""
    name = name.lstrip("-")
    setting = SETTINGS.get(name)
    if setting is None:
        near = difflib.get_close_matches(name, SETTINGS, n=1)
        raise UsageError(f"there is no setting {name!r}", hint=f"/set {near[0]}" if near else "/set lists them")
    try:
        value = setting.read(text)
    except (ValueError, KeyError):
        raise UsageError(f"{text!r} is not a value of {name}", hint=f"/set {name} {shown(request, name)}") from None
    if not setting.part:
        return replace(request, **{setting.field: value})
    part = replace(getattr(request, setting.part), **{setting.field: value})
    return replace(request, **{setting.part: part})


def shown(request: Request, name: str) -> str:
    """Return the value of a setting as it may be typed."""
    setting = SETTINGS[name]
    value = getattr(getattr(request, setting.part) if setting.part else request, setting.field)
    if name == "options":
        return " ".join(f"{key}={text}" for key, text in value) or "none"
    if isinstance(value, tuple):
        return " ".join(map(repr, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "auto" if value is None and name == "k" else "none" if value is None else str(value)
