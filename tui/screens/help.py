"""Pages to read: keys, figures and commands, made from their declarations; and the end of the engine's log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Input, Static

from localspec.chat.commands import help_rows
from localspec.sanitize import sanitize
from localspec.tui.screens.dialog import OverChat
from localspec.tui.source_marks import LEGEND
from localspec.tui.stats_panel import wrapped
from localspec.tui.widgets.composer import LineInput
from localspec.tui.widgets.keys import Keys
from localspec.tui.widgets.notices import NoticeBar
from localspec.ui.glossary import FIGURES, TERMS

FIGURES_TITLE = "The figures (localspec explain TERM says more)"
FIRST = ("send", "newline", "stop", "regenerate")  # what one needs, before all else
MIN_TEXT_WIDTH = 16  # cells of a text, beside keys however wide
MARKS = {
    "draft": "guessed by the draft model, accepted by the target",
    "copied": "copied from earlier text, accepted by the target",
    "early": "guessed by the target itself (early exit, lookahead), accepted",
    "corrected": TERMS["corrected"].short,
    "bonus": TERMS["bonus"].short,
    "plain": TERMS["plain"].short,
}


class Help(OverChat, Screen[None]):
    """One long page, and a line that searches it. `sections` are titles, each with the bindings that belong there.
    `about` is what the cursor is on: titles, each with rows of a word and its meaning."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1", "dismiss", "back", show=True),
        Binding("pageup", "page(-1)", "back up", show=False, priority=True),
        Binding("pagedown", "page(1)", "more", key_display="PgDn", show=True, priority=True),
        Binding("down", "line(1)", show=False, priority=True),
        Binding("up", "line(-1)", show=False, priority=True),
    ]

    def __init__(
        self,
        sections: Sequence[tuple[str, Sequence[BindingType]]],
        about: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (),
    ) -> None:
        super().__init__()
        self._sections, self._about = sections, about

    def compose(self) -> ComposeResult:
        declared = [(title, _bindings(bindings)) for title, bindings in self._sections]
        needed = {each.action: each for _, bindings in declared for each in bindings if each.action in FIRST}
        yield LineInput(placeholder="type to search this page", compact=True, id="search")
        with VerticalScroll(can_focus=False):
            yield from (HelpTable(*each) for each in self._about)
            yield HelpTable("First of all", _rows(needed[action] for action in FIRST if action in needed))
            yield HelpTable("Commands, typed as a message", help_rows())
            for title, bindings in declared:
                yield HelpTable(title, _rows(bindings))
            yield HelpTable(FIGURES_TITLE, [(name, TERMS[name].short) for name in FIGURES])
            yield _marks()
            yield Static("Nothing here has these words", id="none", classes="help", markup=False)
        yield NoticeBar()
        yield Keys()

    def on_mount(self) -> None:
        self.query_one("#none").display = False
        self.query_one(LineInput).focus()

    @on(Input.Changed)
    def search(self, changed: Input.Changed) -> None:
        tables = list(self.query(HelpTable))
        for table in tables:
            table.display = table.search(changed.value)
        self.query_one("#none").display = not any(table.display for table in tables)
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def action_page(self, by: int) -> None:
        page = self.query_one(VerticalScroll)
        page.scroll_relative(y=by * (page.size.height - 1), animate=False)

    def action_line(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


class LogScreen(OverChat, Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f12", "dismiss", "back", show=True)]

    def __init__(self, log: str) -> None:
        super().__init__()
        self._log = log

    def compose(self) -> ComposeResult:
        yield Static(Content.styled(" The engine's log", "bold"), classes="title", markup=False)
        with VerticalScroll():
            yield Static(Content(sanitize(self._log) or "the log is empty"), markup=False, classes="help")
        yield NoticeBar()
        yield Keys()

    def on_mount(self) -> None:
        scroll = self.query_one(VerticalScroll)
        scroll.focus()
        scroll.scroll_end(animate=False)


def _bindings(all_declared: Sequence[BindingType]) -> list[Binding]:
    by_action: dict[tuple[str, str], Binding] = {}
    for declared in all_declared:
        binding = declared if isinstance(declared, Binding) else Binding(*declared)
        if binding.description:
            about = binding.tooltip or binding.description
            key = binding.key.partition(",")[0]
            shown = Binding(key, binding.action, about, key_display="  ".join(key_names(binding)))
            by_action[binding.action, binding.description] = shown
    return list(by_action.values())


def _rows(bindings: Iterable[Binding]) -> list[tuple[str, str]]:
    return [(each.key_display or each.key, each.description) for each in bindings]


def key_names(binding: Binding) -> list[str]:
    if binding.key_display:
        return [binding.key_display]
    return [_short(each.key) for each in Binding.make_bindings([binding])]


_NAMES = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "escape": "Esc",
    "enter": "Enter",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "upper_g": "G",
    "question_mark": "?",
}


def _short(key: str) -> str:
    *modifiers, name = key.split("+")
    name = _NAMES.get(name, name.upper() if name[:1] == "f" and name[1:].isdigit() else name)
    if not modifiers:
        return name if len(name) == 1 or not name.islower() else name.capitalize()
    return "+".join([*(each.capitalize() for each in modifiers), name.upper() if len(name) == 1 else name])


class HelpTable(Static):
    """Rows of a key and a text below a title; a text that is too long goes on below itself. `styles` are of keys."""

    def __init__(self, title: str, rows: Sequence[tuple[str, str]], styles: Mapping[str, str] | None = None) -> None:
        super().__init__(markup=False, classes="help")
        self._title = title
        self._rows = self._found = rows
        self._styles = styles or {}

    def search(self, words: str) -> bool:
        texts, wanted = [" ".join((self._title, *row)).casefold() for row in self._rows], words.casefold().split()
        self._found = [row for row, text in zip(self._rows, texts, strict=True) if all(word in text for word in wanted)]
        self._draw()
        return bool(self._found)

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        keys = max((len(key) for key, _ in self._rows), default=0) + 2
        room = max(MIN_TEXT_WIDTH, self.content_size.width - keys - 2)
        parts = [(f"{self._title}\n", "bold $primary")]
        for key, text in self._found:
            first, *rest = wrapped(text, room) or [""]
            style = self._styles.get(key, "bold")
            parts += [("  ", ""), (key, style), (f"{'':<{keys - len(key)}}{first}\n", "")]
            parts += [(f"{'':<{keys + 2}}{line}\n", "") for line in rest]
        self.update(Content.assemble(*parts))


def _marks() -> HelpTable:
    rows = [(mark, MARKS[source]) for source, mark in LEGEND]
    rows.append(("refused", "a guess that the target refused (d on an answer shows them)"))
    styles = {mark: f"$origin-{source}" for source, mark in LEGEND} | {"refused": "$origin-rejected strike"}
    return HelpTable("Where a token came from (F3)", rows, styles)
