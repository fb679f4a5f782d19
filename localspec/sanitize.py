"""Text from a model, a file or a hub, made safe for a terminal: no control character and nothing invisible passes.

Newline and tab stay, \\r\\n becomes \\n, other C0 characters become their pictures (ESC is ␛), and C1, bidirectional
controls, zero-width characters, tags and lone surrogates become \\u{9b}. Escape sequences need no parser then: without
their first character they are ordinary text. Emoji and the scripts that need joiners keep theirs.
"""

from __future__ import annotations

import re

_SUSPECT = re.compile(
    "\r\n"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners and fillers that show nothing
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero-width, line separators, bidirectional overrides and isolates
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"  # fillers, variation selectors, byte order mark, annotations
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # shorthand, music, tags
    "\ud800-\udfff]"  # lone surrogates
)
_PICTURES = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\x7f": "␡"}
_JOINERS = "\u200c\u200d"
# What may stand before a joiner: Arabic to Sinhala letters, symbols and emoji (with or without a variation selector).
_JOINABLE = re.compile("[\u0620-\u0dff\u231a-\u2bff\ufe0f\U0001f000-\U0001faff]")
# What may stand before a variation selector: keycaps, symbols, emoji, ideographs.
_SELECTABLE = re.compile("[0-9#*©®\u203c-\u3299\u3400-\u9fff\U0001f000-\U0001faff\U00020000-\U0003ffff]")


class Sanitizer:
    """Makes a stream of text safe; pieces may be cut anywhere."""

    def __init__(self) -> None:
        self._before = ""  # the last character so far
        self._held = ""  # a \r at the end, whose \n may still come

    def feed(self, text: str) -> str:
        """Take the next piece; return what can be shown of it."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        if not text:
            return ""
        first_before = self._before
        self._before = text[-1]

        def show(match: re.Match[str]) -> str:
            at = match.start()
            return _show(match.group(), text[at - 1] if at else first_before)

        return _SUSPECT.sub(show, text)

    def finish(self) -> str:
        """Return what was held back, and be ready for another text."""
        rest = "␍" if self._held else ""
        self._before = self._held = ""
        return rest


def sanitize(text: str) -> str:
    """Return a whole text made safe."""
    sanitizer = Sanitizer()
    return sanitizer.feed(text) + sanitizer.finish()


def _show(found: str, before: str) -> str:
    """Return what to show for a suspect character (or \\r\\n) that follows `before`."""
    if found == "\r\n":
        return "\n"
    if found in _PICTURES:
        return _PICTURES[found]
    if found in _JOINERS and _JOINABLE.fullmatch(before):
        return found
    if "\ufe00" <= found <= "\ufe0f" and _SELECTABLE.fullmatch(before):
        return found
    return f"\\u{{{ord(found):x}}}"
