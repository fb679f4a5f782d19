"""The settings of the next answers as fields: their values now, where each comes from, and changing or keeping them.

Nothing of Textual is here. A field's text is what /set would take; whether it may be is decided by the option's own
type and then by all settings together, so that no field can leave the chat with settings it cannot obey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.chat.state import HERE, ChatState
from localspec.settings.config_file import assign, read_configuration, remove
from localspec.settings.declaration import NOTHING, Setting
from localspec.settings.request import ANSWER, SAMPLING, SPECULATION, Request
from localspec.ui.settings import SETTINGS, changed, shown

THEME = "theme"
FIRST = ("temp", "max-tokens", "think", "seed")  # what people change, before all else
GROUPS = {
    "The next answers": FIRST,
    **{
        group.form: tuple(
            each.key for each in SETTINGS.values() if each.group is group and each.in_form and each.key not in FIRST
        )
        for group in (ANSWER, SAMPLING, SPECULATION)
    },
    "Look": (THEME,),
}
_NOTHING = ("", *NOTHING)


@dataclass(slots=True)
class Form:
    """`began` are the texts of the fields when the chat was opened, or what was kept since."""

    chat_state: ChatState
    settings: dict[str, Setting]
    began: dict[str, str]
    theme: str = ""
    kept: dict[str, str] = field(default_factory=dict)  # the origins of what was written into the file meanwhile

    @classmethod
    def of(cls, chat_state: ChatState, settings: Sequence[Setting], began: Request) -> Form:
        by_name = {each.name: each for each in settings}
        theme = str(by_name[THEME].value) if THEME in by_name else ""
        return cls(chat_state, by_name, {THEME: theme, **{name: shown(began, name) for name in SETTINGS}}, theme)

    def names(self) -> dict[str, list[str]]:
        return {group: [name for name in names if name in self.settings] for group, names in GROUPS.items()}

    def text(self, name: str) -> str:
        return self.theme if name == THEME else shown(self.chat_state.request, name)

    def origin(self, name: str) -> str:
        return HERE if self.is_new(name) else self.kept.get(name) or str(self.settings[name].origin)

    def is_on(self, name: str) -> bool:
        return name in self.settings and bool(self.settings[name].value)

    def is_new(self, name: str) -> bool:
        return self.text(name) != self.began[name]

    def check(self, name: str, text: str) -> None:
        """Raise UsageError for a text that cannot be this field's value, whatever the other settings are."""
        if name == THEME or text.strip().lower() not in _NOTHING:
            self.settings[name].read(text)
        if name != THEME:
            changed(self.chat_state.request, name, text.strip() or "none").check()

    def change(self, name: str, text: str) -> None:
        self.check(name, text)
        if name == THEME:
            self.theme = text
        else:
            self.chat_state.change(changed(self.chat_state.request, name, text.strip() or "none"))

    def default(self, name: str) -> str:
        return str(self.settings[name].default) if name == THEME else shown(Request(), name)

    def keep(self) -> list[str]:
        """Write what was chosen in this conversation into config.toml; return the names. Raises UsageError for a file
        that cannot be read, ResourceError for one that cannot be written."""
        names = [name for group in self.names().values() for name in group if self.is_new(name)]
        for name in names:
            text, file = self.text(name), read_configuration()  # which tells what is wrong there
            is_set = text.lower() not in _NOTHING or text == self.settings[name].default
            if is_set:
                assign((name,), self.settings[name].read(text))
            elif (name,) in file:
                remove((name,))
            self.began[name], self.kept[name] = text, "config.toml" if is_set else "default"
        return names

    def overruled(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self.settings[name].origin.kind in ("environment", "command line")]
