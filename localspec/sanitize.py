"""Text from a model, a file or a hub, made safe for a terminal: no control character and nothing invisible passes.

Newline and tab stay, \\r\\n becomes \\n, other C0 characters become their pictures (ESC is ␛), and C1, bidirectional
controls, zero-width characters, tags and lone surrogates become \\u{9b}. Escape sequences need no parser then: without
their first character they are ordinary text. Emoji and the scripts that need joiners keep theirs. One character keeps
at most eight combining marks and joiners, as many as any script uses: thousands of them cover the lines above, and some
terminals stall.

`decoded` makes text of a file's bytes.
"""

import codecs
import os
import re
import unicodedata
from functools import cache

# Ranges that hold combining marks. Unicode adds marks every year, so each character is asked for its category.
_MARKED = (
    "\u0300-\u034e\u0350-\u036f\u0483-\u0489\u0591-\u061b\u061d-\u115e\u1161-\u17b3\u17b6-\u180a\u1810-\u1dff"
    "\u20d0-\u20ff\u2cef-\u2cf1\u2d7f-\u2dff\u302a-\u302f\u3099\u309a\ua66f-\uabff\ufb1e\ufe20-\ufe2f"
    "\U00010100-\U0001bc9f\U0001bca4-\U0001d172\U0001d17b-\U0001efff"
)
_SUSPECT = re.compile(
    "\r\n"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners and fillers that show nothing
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero-width, line separators, bidirectional overrides and isolates
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"  # fillers, variation selectors, byte order mark, annotations
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # shorthand, music, tags
    "\ud800-\udfff]"  # lone surrogates
    f"|([{_MARKED}]+)"
)
_ORDER_MARKS = (  # that of UTF-32 begins as that of UTF-16 does
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
MARKS = 8  # on one character
QUOTED = 40  # bytes of a token that a message shows
_PICTURES = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\x7f": "␡"}
_JOINERS = "\u200c\u200d"
# What may stand before a joiner: Arabic to Sinhala letters, symbols and emoji (with or without a variation selector).
_JOINABLE = re.compile("[\u0620-\u0dff\u231a-\u2bff\ufe0f\U0001f000-\U0001faff]")
# What may stand before a variation selector: keycaps, symbols, emoji, ideographs.
_SELECTABLE = re.compile("[0-9#*©®\u203c-\u3299\u3400-\u9fff\U0001f000-\U0001faff\U00020000-\U0003ffff]")


class Sanitizer:
    """Makes a stream of text safe; pieces may be cut anywhere."""

    def __init__(self) -> None:
        self._before = ""  # the last character so far, if it is shown as it is
        self._marks = 0  # how many marks and joiners stand at the end
        self._held = ""  # a \r at the end, whose \n may still come

    def feed(self, text: str) -> str:
        """Take the next piece; return what can be shown of it."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        done = 0

        def show(match: re.Match[str]) -> str:
            nonlocal done
            self._pass(text[done : match.start()])
            done = match.end()
            return self._marked(match[0]) if match[1] else self._hidden(match[0])

        shown = _SUSPECT.sub(show, text)
        self._pass(text[done:])
        return shown

    def finish(self) -> str:
        """Return what was held back, and be ready for another text."""
        rest = "␍" if self._held else ""
        self._before, self._held, self._marks = "", "", 0
        return rest

    def _pass(self, text: str) -> None:
        """Note how text ends in which nothing is suspect."""
        if text:
            self._before, self._marks = text[-1], 0

    def _marked(self, text: str) -> str:
        """Return what to show for letters with their marks."""
        shown, n = [], self._marks
        for char in text:
            n = n + 1 if _is_mark(char) else 0
            shown.append(char if n <= MARKS else _escaped(char))
        self._before, self._marks = text[-1] if n <= MARKS else "", n
        return "".join(shown)

    def _hidden(self, char: str) -> str:
        """Return what to show for a character that a terminal obeys or does not show, or for \\r\\n."""
        if self._marks < MARKS and _joins(char, self._before):
            self._before, self._marks = char, self._marks + 1
            return char
        self._before, self._marks = "", 0
        return "\n" if char == "\r\n" else _PICTURES.get(char) or _escaped(char)


def sanitize(text: str) -> str:
    """Return a whole text made safe."""
    sanitizer = Sanitizer()
    return sanitizer.feed(text) + sanitizer.finish()


def one_line(text: str) -> str:
    """Return `text` as one line without a control character: names of files and models are other people's text."""
    return " ".join(sanitize(text).split())


def shortened(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, 3 at least: without its middle, since both ends of a name tell."""
    if len(text) <= max(3, width):
        return text
    left = max(3, width) // 2
    return f"{text[:left]}…{text[len(text) - (max(3, width) - left - 1) :]}"


def decoded(data: bytes, *, errors: str = "strict") -> str:
    """Return the text of a file without a byte order mark, its lines ended by newlines alone.

    Without a mark it is UTF-8, or UTF-16 where the bytes look like it. Raises UnicodeDecodeError.
    """
    mark, encoding = next((pair for pair in _ORDER_MARKS if data.startswith(pair[0])), (b"", _encoding(data)))
    return data[len(mark) :].decode(encoding, errors).replace("\r\n", "\n")


def _encoding(data: bytes) -> str:
    """Return the encoding of a text without a byte order mark: in UTF-16 every second byte is mostly zero."""
    odd, even, n_units = data[1::2].count(0), data[::2].count(0), len(data) // 2
    if len(data) % 2 or n_units < 2 or 4 * max(odd, even) < 3 * n_units or (odd and even):
        return "utf-8"
    return "utf-16-le" if odd else "utf-16-be"


def _joins(char: str, before: str) -> bool:
    """Whether `char` is a joiner or a variation selector that has its use behind `before`."""
    if char in _JOINERS:
        return _JOINABLE.fullmatch(before) is not None
    return "\ufe00" <= char <= "\ufe0f" and _SELECTABLE.fullmatch(before) is not None


def _escaped(char: str) -> str:
    return f"\\u{{{ord(char):x}}}"


@cache
def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Me") or unicodedata.combining(char) != 0


def shown(text: str | bytes | os.PathLike[str], limit: int = 120) -> str:
    r"""Return text fit for a one-line message: nothing that moves a cursor, changes direction or breaks the line.

    Bytes are read as UTF-8, and what is not valid or not printable appears as an escape (``\n``, ``\x1b``,
    ``\u202e``). Longer text keeps its end, which is where a path names its file.
    """
    raw = os.fspath(text)
    line = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    if len(line) > limit:
        line = "…" + line[-limit:]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def quoted(text: bytes) -> str:
    """Return a token's text between quotes, escaped like `shown`, cut at its end when long."""
    cut = text[:QUOTED] + b"..." if len(text) > QUOTED else text
    return f"'{shown(cut, limit=4 * QUOTED)}'"
