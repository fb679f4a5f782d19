"""Settings of the next answers: typed, checked as they are written, each with where its value comes from."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.screen import Screen
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from localspec.errors import LocalspecError
from localspec.sanitize import one_line, sanitize
from localspec.settings.config_file import config_file
from localspec.tui.host import Host
from localspec.tui.keys_in_turn import in_turn
from localspec.tui.screens.dialog import OverChat
from localspec.tui.settings_form import THEME, Form
from localspec.tui.themes import DARK, LIGHT
from localspec.tui.widgets.composer import LineInput
from localspec.tui.widgets.folded import Folded
from localspec.tui.widgets.keys import Keys
from localspec.tui.widgets.notices import NoticeBar

THEMES = {"dark": DARK, "light": LIGHT}


class Field(Horizontal):
    """One setting of the form: its name, its value, where that comes from. `problem` says why a text is not taken."""

    def __init__(self, form: Form, name: str) -> None:
        super().__init__()
        self.form, self.key, self.problem = form, name, ""

    def compose(self) -> ComposeResult:
        choices = self.form.settings[self.key].choices
        yield Static(self.key, classes="name", markup=False)
        suggester = SuggestFromList(choices, case_sensitive=False) if choices else None
        yield LineInput(self.form.text(self.key), compact=True, suggester=suggester, select_on_focus=False)
        yield Static(classes="origin", markup=False)

    @property
    def input(self) -> Input:
        return self.query_one(Input)

    @property
    def about(self) -> str:
        setting = self.form.settings[self.key]
        return "\n".join(filter(None, (setting.help, ", ".join(setting.choices))))

    def on_mount(self) -> None:
        self.tell()

    def tell(self) -> None:
        self.set_class(bool(self.problem), "-wrong")
        self.set_class(self.form.is_new(self.key), "-new")
        origin = "not taken" if self.problem else sanitize(self.form.origin(self.key))
        self.query_one(".origin", Static).update(Content(origin))

    @on(Input.Changed)
    def check(self, event: Input.Changed) -> None:
        if self.key == THEME and event.value in THEMES:
            self.app.theme = THEMES[event.value]
            self.form.theme = event.value
        self.problem = ""
        try:
            self.form.check(self.key, event.value)
        except LocalspecError as error:
            self.problem = error.message
        self.tell()

    @on(Input.Blurred)
    def take(self) -> bool:
        text = self.input.value
        if not self.problem and text != self.form.text(self.key):
            try:
                self.form.change(self.key, text)
            except LocalspecError as error:  # right by itself, but not with the others
                self.problem = f"{error.message}{error.advice}"
        self.tell()
        return not self.problem


class SettingsScreen(OverChat, Screen[None]):
    """Enter or leaving a field takes its value; Ctrl+S writes what is new into config.toml."""

    CSS_PATH = "settings.tcss"
    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("up", "app.focus_previous", "up", show=False, priority=True),
        Binding("down", "app.focus_next", "down", show=False, priority=True),
        Binding("ctrl+s", "keep", "keep in config.toml"),
        Binding("ctrl+r", "reset", "default"),
    ]

    def __init__(self, host: Host, form: Form) -> None:
        super().__init__()
        self._host = host
        self.form = form

    @property
    def about(self) -> list[tuple[str, list[tuple[str, str]]]]:
        field = self._focused
        return [] if field is None else [("This setting", [(field.key, field.about.replace("\n", " · "))])]

    def compose(self) -> ComposeResult:
        yield Static(Content("Settings · apply from the next answer · Ctrl+S saves to config.toml"), id="said")
        with VerticalScroll(id="fields", can_focus=False):
            for group, names in self.form.names().items():
                yield Static(group, classes="group", markup=False)
                for name in names:
                    yield Field(self.form, name)
                    if name == "temp":  # which has a box of its own, of several lines
                        system = one_line(self.form.chat_state.messages.system or "none")
                        yield Static(
                            f"{'system message':<20} {system}  (Ctrl+S in the chat)", id="system", markup=False
                        )
        yield Folded(id="about")
        yield NoticeBar()
        yield Keys()

    @on(Input.Submitted)
    def go_on(self, event: Input.Submitted) -> None:
        field = self._focused
        if field is not None and field.take():
            self.focus_next(Input)
        self.show_about()

    @on(Input.Changed)
    @on(Input.Blurred)
    @on(DescendantFocus)
    def show_about(self) -> None:
        field = self._focused
        if field is None:
            return
        text, _, choices = sanitize(field.about).partition("\n")
        problem, choices = sanitize(field.problem), f"\n{choices}" if choices else ""
        shown = (problem, "$error") if problem else (text, "")
        self.query_one("#about", Folded).update(Content.assemble(shown, ("" if problem else choices, "$muted")))

    @in_turn
    def action_back(self) -> None:
        for field in self.query(Field):
            field.take()
        self.dismiss()

    @in_turn
    def action_keep(self) -> None:
        for field in self.query(Field):
            field.take()
        try:
            names = self.form.keep()
        except LocalspecError as error:
            self._host.say(sanitize(f"{error.message}{error.advice}"), is_wrong=True)
            return
        for field in self.query(Field):
            field.tell()
        saved = ", ".join(names) or "nothing new"
        over = self.form.overruled(names)
        more = f"; {', '.join(over)}: the environment or the command line takes precedence" if over else ""
        self._host.say(sanitize(f"{saved}: saved to {config_file()}{more}"))

    @in_turn
    def action_reset(self) -> None:
        if self._focused is not None:
            self._focused.input.value = self.form.default(self._focused.key)

    @property
    def _focused(self) -> Field | None:
        field = None if self.focused is None else self.focused.parent
        return field if isinstance(field, Field) else None
