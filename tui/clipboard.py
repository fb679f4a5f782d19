"""Copying: by a program of this machine where there is one, else through the terminal; and it is said which."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.widget import Widget
from textual.widgets import Input, TextArea
from textual.widgets.input import Selection

from localspec.ui.clipboard import by_program


def copy(app: App[Any], text: str) -> str:
    """Copy `text`; return what was done, for people."""
    data = text.encode("utf-8", "replace")
    done = by_program(data)
    if done is None:
        app.copy_to_clipboard(text)
        done = f"copied {len(data)} bytes, if your terminal allows it"
    return done


def taken(widget: Widget | None) -> str:
    """Return what is selected in a widget that is written in, and unselect it: the screen knows nothing of that."""
    if not isinstance(widget, Input | TextArea):
        return ""
    text = widget.selected_text
    if isinstance(widget, TextArea):
        widget.move_cursor(widget.cursor_location)
    else:
        widget.selection = Selection.cursor(widget.cursor_position)
    return text
