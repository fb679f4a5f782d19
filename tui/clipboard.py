"""Copying: by a program of this machine where there is one, else through the terminal; and it is said which."""

from __future__ import annotations

from typing import Any

from textual.app import App

from localspec.faces.clipboard import by_program


def copy(app: App[Any], text: str) -> str:
    """Copy `text`; return what was done, for people."""
    data = text.encode("utf-8", "replace")
    done = by_program(data)
    if done is None:
        app.copy_to_clipboard(text)
        done = f"sent {len(data)} bytes to the terminal, which may put them into the clipboard"
    return done
