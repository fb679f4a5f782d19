"""The source of every token, inline: accepted as it is (green), corrected ⟦so⟧, bonus so⁺, plain as it is.

The marks carry the meaning, the colour only helps.
"""

from __future__ import annotations

from localspec.ui.sources import Span

_GREEN, _RESET = "\x1b[32m", "\x1b[0m"


def marked(span: Span, *, can_color: bool) -> str:
    """Return a span with its mark, around the word and not around the space before it."""
    word = span.text.lstrip()
    space = span.text[: len(span.text) - len(word)]
    match span.source:
        case "corrected":
            return f"{space}⟦{word}⟧"
        case "bonus":
            return f"{space}{word}⁺"
        case "accepted" if can_color and word:
            return f"{space}{_GREEN}{word}{_RESET}"
    return span.text
