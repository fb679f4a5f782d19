"""What a conversation began with and keeps, beside its pair and system message: its last answer tells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from localspec.conversations.sending import Said
from localspec.settings.request import LoadSettings, Request
from localspec.settings.values import with_tuples


@dataclass(frozen=True, slots=True)
class KeptSettings:
    """The text or the name of the template, what it is told, and the target's adapters, as the settings have them."""

    template: str | None
    template_args: tuple[tuple[str, Any], ...]
    think: str
    lora: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, path: Sequence[Said]) -> KeptSettings | None:
        """Return what the last answer of a path was given with; None where none tells, as with earlier versions."""
        for message in reversed(path):
            told = (message.stats or {}).get("params") or {}
            if all(each.name in told for each in fields(cls)):
                return cls(**with_tuples({each.name: told[each.name] for each in fields(cls)}))
        return None

    def request(self, request: Request, chosen: Collection[str] = ()) -> Request:
        """Return the request with these settings, but for those that were `chosen` anew."""
        names = {"template", "template_args", "think"} - set(chosen)
        return replace(request, **{name: getattr(self, name) for name in names})

    def load(self, settings: LoadSettings) -> LoadSettings:
        """Return the settings with the adapters."""
        return replace(settings, lora=self.lora)
