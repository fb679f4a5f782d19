"""Markdown of a text that is not trusted: its parser, what is too much for it, and a page's HTML of it.

HTML in the text stays text, an address that is not one of the web's or a mail's is no link, and a picture is a link.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from localspec.sanitize import sanitize

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore

MAX_CHARACTERS = 48_000  # characters; a screen full of widgets takes seconds to lay out beyond that
MAX_LINE = 8_000  # characters of one of its lines
DEEPEST = 12  # nested quotes


def parser() -> MarkdownIt:
    """Return a parser of GitHub's Markdown whose tokens hold no control characters."""
    from markdown_it import MarkdownIt  # late: most commands show none

    made = MarkdownIt("gfm-like", {"html": False})
    made.core.ruler.push("safe", _make_safe)
    return made


def is_plain(text: str) -> bool:
    """Whether `text` is too much for Markdown: in all, in one line, or in nested quotes."""
    if len(text) > MAX_CHARACTERS:
        return True
    return any(len(line) > MAX_LINE or line[:200].count(">") > DEEPEST for line in text.split("\n"))


def as_html(text: str) -> str:
    """Return a text for a page: as Markdown, or as it is where that would be too much."""
    text = sanitize(text)
    if is_plain(text):
        return f'<div class="text">{html.escape(text)}</div>'
    made = parser().disable(["image", "html_block", "html_inline"])
    shown: str = made.render(text)
    return f'<div class="markdown">\n{shown}</div>'


def _make_safe(state: StateCore) -> None:
    """Make safe what the parser has decoded: &#8238; is a character again, and so is %1B in an address."""
    todo = list(state.tokens)
    while todo:
        token = todo.pop()
        token.content = sanitize(token.content)
        todo += token.children or ()
