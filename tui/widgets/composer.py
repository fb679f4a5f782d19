"""The fields to write in: the composer of messages, and lines of forms.

Enter sends a message; a newline is Shift+Enter, Ctrl+J, Alt+Enter, or a backslash before Enter. Enter in a burst of
text is a newline too, unless it ends a slash command or the only line: so a paste is one message also where the
terminal does not say that it is one, in however many pieces it comes.

What is pasted never sends anything, and a large paste becomes a chip in the text: a text area of 200 KB takes most of
a second for every key. So does what a small one has of characters that show nothing. A chip is sent as what it stands
for, and is deleted as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, TextArea
from textual.widgets.input import Selection
from textual.widgets.text_area import Edit, EditResult

from localspec.chat.commands import TABLE
from localspec.sanitize import sanitize
from localspec.settings.sizes import counted
from localspec.tui.keyboard import Burst
from localspec.tui.keys_in_turn import KeysInTurn

LONG = 2048  # characters of a paste that become a chip
MAX_LINES = 12  # lines of it
HISTORY = 500
NEWLINES = ("shift+enter", "ctrl+j", "alt+enter")


class LineInput(KeysInTurn, Input):
    """An input of one line; its text is safe to show. Its cursor stands still, since an idle screen sleeps."""

    cursor_blink = reactive(False, init=False)
    virtual_size = reactive(Size(0, 0))  # without another layout: the line is as wide whatever is written in it

    def validate_value(self, value: str) -> str:
        return sanitize(value).replace("\n", " ")


class Area(KeysInTurn, TextArea):
    """A text of several lines."""


def taken(widget: Widget | None) -> str:
    """Return the selected text of a widget that is written in, and unselect it: the screen does not know of it."""
    if not isinstance(widget, Input | TextArea):
        return ""
    text = widget.selected_text
    if isinstance(widget, TextArea):
        widget.move_cursor(widget.cursor_location)
    else:
        widget.selection = Selection.cursor(widget.cursor_position)
    return text


class Composer(KeysInTurn, TextArea):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "send", show=True),
        Binding(",".join(NEWLINES), "newline", "newline", key_display="⇧⏎ ^J", show=True),
        Binding("up", "up", "earlier message", show=False),
        Binding("down", "down", "later message", show=False),
        Binding("tab", "tab", "complete a command; else to the messages", show=False),
        Binding("ctrl+d", "delete_right_or_quit", show=False),
        Binding("ctrl+underscore", "undo", "undo", show=False),
        # What a text area would keep to itself.
        Binding("pageup", "screen.page(-1)", show=False),
        Binding("pagedown", "screen.page(1)", show=False),
        Binding("home", "home", show=False),
        Binding("end", "end", show=False),
        Binding("f6", "screen.speculation", show=False),
        Binding("f7", "screen.copy", show=False),
        Binding("ctrl+f", "app.open('attach')", show=False),
    ]

    @dataclass
    class Sent(Message):
        """A message is to be sent."""

        text: str

    @dataclass
    class Completed(Message):
        """A command may go on in several ways."""

        choices: list[str]

    def on_hide(self, event: events.Hide) -> None:
        """Keep the keyboard: what is typed while the terminal is too small is there when it has grown."""
        event.prevent_default()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(
            id=id, compact=True, highlight_cursor_line=False, placeholder="Ask something; /help lists the commands"
        )
        self.sent: list[str] = []
        self._at = 0  # what of it is shown
        self._draft = ""  # what was written before the history was looked at
        self._pasted: dict[str, str] = {}  # chip to text
        self.cursor_blink = False  # one that blinks draws the screen twice a second

    def remember(self, sent: list[str]) -> None:
        before = sent[-HISTORY:]
        self.sent, self._at = [*before, *self.sent], self._at + len(before)

    @property
    def message(self) -> str:
        # In one go: what was pasted may hold the name of another chip.
        return self._chips.sub(lambda match: self._pasted[match[0]], self.text) if self._pasted else self.text

    @property
    def _chips(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._pasted)))

    def fill(self, text: str) -> None:
        self._pasted.clear()
        self.text = self._chip(text) if _is_large(text) else self._shown(text)
        self.move_cursor(self.document.end)

    async def action_delete_right_or_quit(self) -> None:
        """Delete the character behind the cursor; at the end of nothing it means to leave."""
        if self.text:
            self.action_delete_right()
        else:
            await self.run_action("app.quit_if_empty")

    async def action_tab(self) -> None:
        choices = TABLE.completions(self.text)
        if not choices and (not self.text.startswith("/") or "\n" in self.text):
            await self.run_action("screen.message(0)")
        elif choices:
            self.text = beginning(choices)
            self.move_cursor(self.document.end)
            if len(choices) > 1:
                self.post_message(self.Completed([choice.rstrip() for choice in choices]))

    def action_send(self) -> None:
        row, column = self.cursor_location
        if self.document[row][:column].endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
            return
        text = self.message
        if text.strip():
            self.post_message(self.Sent(text))
            self.clear_sent()  # at once: the next key may be here before the message is dealt with

    def clear_sent(self) -> None:
        text = self.message
        if text.strip() and text not in self.sent[-1:]:
            self.sent = [*self.sent, text][-HISTORY:]
        self._at, self._draft = len(self.sent), ""
        self._pasted.clear()
        self.text = ""

    def put_back(self, text: str) -> None:
        self.fill(f"{text}\n{self.message}" if text and self.text else text or self.message)

    def action_newline(self) -> None:
        self.insert("\n")

    def action_up(self) -> None:
        if self.cursor_at_first_line and self._at > 0:
            self._recall(self._at - 1)
        else:
            self.action_cursor_up()

    def action_down(self) -> None:
        if self.cursor_at_last_line and self._at < len(self.sent):
            self._recall(self._at + 1)
        else:
            self.action_cursor_down()

    async def action_home(self) -> None:
        if self.text:
            self.action_cursor_line_start()
        else:
            await self.run_action("screen.top")

    async def action_end(self) -> None:
        if self.text:
            self.action_cursor_line_end()
        else:
            await self.run_action("screen.follow")

    def _recall(self, at: int) -> None:
        if self._at == len(self.sent):
            self._draft = self.message
        self._at = at
        self.fill(self._draft if at == len(self.sent) else self.sent[at])

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert what was pasted, as a chip if it is large; control characters are shown, not obeyed."""
        event.stop()
        event.prevent_default()
        self._paste(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        self.focus()

    async def _on_burst(self, event: Burst) -> None:
        """Take what was typed ahead line by line, and anything else as one edit."""
        event.stop()
        text = event.text
        while text:
            line, end, rest = text.partition("\n")
            whole = self.text + line
            if "\t" in line and whole.startswith("/"):  # typed, to complete a command
                line, _, text = text.partition("\t")
                self._paste(line)
                await self.action_tab()
            elif end and ("\n" not in text[:-1] or TABLE.begins_command(whole.partition("\n")[0])):
                self._paste(line)
                self.action_send()
                text = rest
            else:
                self._paste(text)
                return

    def _paste(self, text: str) -> None:
        is_chip = _is_large(text) or any(chip in text for chip in self._pasted)
        self.replace(self._chip(text, self.text) if is_chip else self._shown(text), *self.selection)

    def edit(self, edit: Edit) -> EditResult:
        """Change the text; a chip of which a part would go goes, and what is written into one stands behind it."""
        top, bottom = edit.top, edit.bottom
        if self._pasted:
            start, end = self._around(*top), self._around(*bottom)
            is_insertion = top == bottom
            edit.from_location = (top[0], end[1] if is_insertion else start[0])
            edit.to_location = (bottom[0], end[1])
        return super().edit(edit)

    def _around(self, row: int, column: int) -> tuple[int, int]:
        spans = (chip.span() for chip in self._chips.finditer(self.document[row]))
        return next((span for span in spans if span[0] < column < span[1]), (column, column))

    def _shown(self, text: str) -> str:
        """Return a text as it is shown; what shows nothing, as a mark of direction, is sent all the same."""
        shown = sanitize(text)
        names = {f"\\u{{{ord(char):x}}}": char for char in set(text)}
        self._pasted |= {name: char for name, char in names.items() if name in shown and name not in text}
        return shown

    def _chip(self, text: str, beside: str = "") -> str:
        lines = text.count("\n") + (not text.endswith("\n"))
        what = counted(lines, "line") if lines > 1 else counted(len(text), "character")
        chip = f"[Pasted {what}]"
        n = 1
        while chip in self._pasted or chip in beside:
            n += 1
            chip = f"[Pasted {what} #{n}]"
        self._pasted[chip] = text
        return chip


def beginning(lines: list[str]) -> str:
    shared = takewhile(lambda column: len(set(column)) == 1, zip(*lines, strict=False))
    return "".join(column[0] for column in shared)


def differing(choices: list[str]) -> list[str]:
    """Return choices without the words and folders that all begin with."""
    shared = beginning(choices)
    at = max(shared.rfind(mark) for mark in ' /@"') + 1
    return [choice[at:] for choice in choices] if at > 1 else choices


def _is_large(text: str) -> bool:
    return len(text) >= LONG or text.count("\n") + 1 >= MAX_LINES
