"""A line to write in."""

from __future__ import annotations

from textual.widgets import Input

from localspec.sanitize import sanitize


class Line(Input):
    """An input whose text is safe to show, whoever gives it: a file, a message of before, whoever writes."""

    def validate_value(self, value: str) -> str:
        """Return what can be shown in one line."""
        return sanitize(value).replace("\n", " ")
