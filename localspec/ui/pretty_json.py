"""JSON with line breaks and indentation, while it comes: `run --pretty`."""

from __future__ import annotations

STEP = "  "


class PrettyJson:
    """Indents JSON. What it is fed may end anywhere; spaces between the parts are its own."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_fresh = False  # just behind a bracket that opened something
        self._in_string = self._is_escaped = False

    def feed(self, text: str) -> str:
        """Return the next part of the JSON, indented."""
        return "".join(map(self._shown, text))

    def _shown(self, one: str) -> str:
        if self._in_string:
            self._in_string = self._is_escaped or one != '"'
            self._is_escaped = one == "\\" and not self._is_escaped
            return one
        if one in " \t\r\n":
            return ""
        was_fresh, self._is_fresh = self._is_fresh, one in "{["
        if one in "}]":
            self._depth = max(self._depth - 1, 0)
            return one if was_fresh else self._line() + one
        before = self._line() if was_fresh else ""
        self._depth += self._is_fresh
        self._in_string = one == '"'
        return before + {",": "," + self._line(), ":": ": "}.get(one, one)

    def _line(self) -> str:
        return "\n" + STEP * self._depth
