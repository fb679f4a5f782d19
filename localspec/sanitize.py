"""Text from a model, a file or a hub, made safe for a terminal: no control character and nothing invisible passes.

Newline and tab stay, \\r\\n becomes \\n, other C0 characters become their pictures (ESC is ␛), and C1, bidirectional
controls, zero-width characters, tags and lone surrogates become \\u{9b}. Escape sequences need no parser then: without
their first character they are ordinary text. Emoji and the scripts that need joiners keep theirs. Of combining marks
on one character so many pass as any script piles up: thousands of them cover lines above, and some terminals stall.
"""

from __future__ import annotations

import re

# Marks that pile up on the character before them: Latin to Cyrillic, Hebrew, Arabic, Thai, and those for symbols.
_MARKS = (
    "[\u0300-\u034e\u0350-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u06d6-\u06dc\u0e34-\u0e3a"
    "\u0e47-\u0e4e\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
)
_SUSPECT = re.compile(
    "\r\n"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners and fillers that show nothing
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero-width, line separators, bidirectional overrides and isolates
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"  # fillers, variation selectors, byte order mark, annotations
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # shorthand, music, tags
    "\ud800-\udfff]"  # lone surrogates
    f"|{_MARKS}+"
)
MARKS = 8  # on one character
_MARK = re.compile(_MARKS)
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
        self._marks = 0  # how many marks it is the last of
        self._held = ""  # a \r at the end, whose \n may still come

    def feed(self, text: str) -> str:
        """Take the next piece; return what can be shown of it."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        if not text:
            return ""
        first_before, n_marks = self._before, self._marks
        self._before, self._marks = text[-1], 0

        def show(match: re.Match[str]) -> str:
            at, found = match.start(), match.group()
            if not _is_mark(found[0]):
                return _show(found, text[at - 1] if at else first_before)
            n_before = 0 if at else n_marks
            if match.end() == len(text):
                self._marks = n_before + len(found)
            n_kept = max(0, MARKS - n_before)
            return found[:n_kept] + "".join(map(_escaped, found[n_kept:]))

        return _SUSPECT.sub(show, text)

    def finish(self) -> str:
        """Return what was held back, and be ready for another text."""
        rest = "␍" if self._held else ""
        self._before, self._held, self._marks = "", "", 0
        return rest


def sanitize(text: str) -> str:
    """Return a whole text made safe."""
    sanitizer = Sanitizer()
    return sanitizer.feed(text) + sanitizer.finish()


def one_line(text: str) -> str:
    """Return `text` as one line without a control character: names of files and models are other people's text."""
    return " ".join(sanitize(text).split())


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
    return _escaped(found)


def _escaped(char: str) -> str:
    return f"\\u{{{ord(char):x}}}"


def _is_mark(char: str) -> bool:
    return _MARK.fullmatch(char) is not None
