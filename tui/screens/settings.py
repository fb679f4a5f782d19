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
    """One setting: its name, its value, where that comes from."""

    def __init__(self, name: str, text: str, choices: tuple[str, ...]) -> None:
        super().__init__()
        self.key = name
        self.problem = ""
        self._text = text
        self._choices = choices

    def compose(self) -> ComposeResult:
        """Show the three beside each other."""
        yield Static(self.key, classes="name", markup=False)
        suggester = SuggestFromList(self._choices, case_sensitive=False) if self._choices else None
        yield LineInput(self._text, compact=True, suggester=suggester, select_on_focus=False)
        yield Static(classes="origin", markup=False)

    @property
    def input(self) -> Input:
        """Where the value is written."""
        return self.query_one(Input)

    def tell(self, origin: str, *, is_new: bool) -> None:
        """Show the origin, or that the value cannot be."""
        self.set_class(bool(self.problem), "-wrong")
        self.set_class(is_new, "-new")
        self.query_one(".origin", Static).update(Content("not taken" if self.problem else sanitize(origin)))


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
        """What the setting that has the keyboard does, for the help."""
        if not isinstance(self.focused, Input):
            return []
        setting = self.form.settings[self._field(self.focused).key]
        return [
            ("This setting", [(setting.name, " · ".join(filter(None, (setting.help, ", ".join(setting.choices)))))])
        ]

    def compose(self) -> ComposeResult:
        """A line on what this is, the fields by group, and the help of the one that has the keyboard."""
        yield Static(Content("Settings · apply from the next answer · Ctrl+S saves to config.toml"), id="said")
        with VerticalScroll(id="fields", can_focus=False):
            for group, names in self.form.names().items():
                yield Static(group, classes="group", markup=False)
                for name in names:
                    yield Field(name, self.form.text(name), self.form.settings[name].choices)
                    if name == "temp":  # which has a box of its own, of several lines
                        system = one_line(self.form.chat_state.messages.system or "none")
                        yield Static(
                            f"{'system message':<20} {system}  (Ctrl+S in the chat)", id="system", markup=False
                        )
        yield Folded(id="about")
        yield NoticeBar()
        yield Keys()

    def on_mount(self) -> None:
        """Show where every value comes from."""
        for field in self.query(Field):
            self._tell(field)

    @on(Input.Changed)
    def check(self, event: Input.Changed) -> None:
        """Say at once what cannot be; a theme is shown as soon as its name is whole."""
        field = self._field(event.input)
        if field.key == THEME and event.value in THEMES:
            self.app.theme = THEMES[event.value]
            self.form.theme = event.value
        field.problem = self._problem(field.key, event.value)
        self._tell(field)
        self._about(field)

    @on(Input.Submitted)
    def take(self, event: Input.Submitted) -> None:
        """Take a value and go on to the next."""
        if self._take(self._field(event.input)):
            self.focus_next(Input)

    @on(Input.Blurred)
    def leave(self, event: Input.Blurred) -> None:
        """Take the value of a field that is left; one that cannot be stays written and is not taken."""
        self._take(self._field(event.input))

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Tell of the field that has the keyboard."""
        if isinstance(event.widget, Input):
            self._about(self._field(event.widget))

    @in_turn
    def action_back(self) -> None:
        """Go back to the chat with what can be taken."""
        for field in self.query(Field):
            self._take(field)
        self.dismiss()

    @in_turn
    def action_keep(self) -> None:
        """Write what is new into config.toml."""
        for field in self.query(Field):
            self._take(field)
        try:
            names = self.form.keep()
        except LocalspecError as error:
            self._host.say(sanitize(f"{error.message}{error.advice}"), is_wrong=True)
            return
        for field in self.query(Field):
            self._tell(field)
        saved = ", ".join(names) or "nothing new"
        over = self.form.overruled(names)
        more = f"; {', '.join(over)}: the environment or the command line takes precedence" if over else ""
        self._host.say(sanitize(f"{saved}: saved to {config_file()}{more}"))

    @in_turn
    def action_reset(self) -> None:
        """Give the field that has the keyboard its default."""
        focused = self.focused
        if isinstance(focused, Input):
            field = self._field(focused)
            focused.value = self.form.default(field.key)

    def _field(self, widget: Input) -> Field:
        field = widget.parent
        assert isinstance(field, Field)
        return field

    def _problem(self, name: str, text: str) -> str:
        """Return why a text cannot be a value, "" if it can."""
        try:
            self.form.check(name, text)
        except LocalspecError as error:
            return error.message
        return ""

    def _take(self, field: Field) -> bool:
        """Take a field's value; return whether that was possible."""
        text = field.input.value
        if field.problem:
            return False
        if text != self.form.text(field.key):
            try:
                self.form.change(field.key, text)
            except LocalspecError as error:  # right by itself, but not with the others
                field.problem = f"{error.message}{error.advice}"
                self._about(field)
        self._tell(field)
        return not field.problem

    def _tell(self, field: Field) -> None:
        field.tell(self.form.origin(field.key), is_new=self.form.is_new(field.key))

    def _about(self, field: Field) -> None:
        """Show the help of a field, or what is wrong with it."""
        about = self.query_one("#about", Folded)
        if field.problem:
            about.update(Content.styled(sanitize(field.problem), "$error"))
            return
        setting = self.form.settings[field.key]
        choices = f"\n{', '.join(setting.choices)}" if setting.choices else ""
        about.update(Content.assemble(sanitize(setting.help), (sanitize(choices), "$muted")))
