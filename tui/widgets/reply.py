"""The text of an answer: Markdown while it is of a size that Markdown can be, plain rows beyond that.

While text comes it is appended piece by piece, which can differ from what the whole would look like (a table's cells,
a fence's end); so at the end the whole is parsed once more. Nothing here parses markup.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical

from localspec.conversations.export import MAX_CHARACTERS, MAX_LINE, is_plain, parser
from localspec.tui.widgets.flow import Flow

if TYPE_CHECKING:
    from textual.widgets import Markdown


class ReplyText(Vertical):
    """Text that is safe to show already. `append` while it comes, `finish` when it is whole."""

    DEFAULT_CSS = """
    ReplyText { height: auto; }
    ReplyText Markdown { padding: 0 2; margin: 0; background: transparent; }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._text = text
        self._line = 0  # characters since the last newline
        self._markdown: Markdown | None = None
        self._flow: Flow | None = None

    def compose(self) -> ComposeResult:
        if is_plain(self._text):
            self._flow = Flow(self._text)
            yield self._flow
        else:
            made = parser()  # one for all pieces: else every piece makes its own
            self._markdown = markdown()(self._text, open_links=False, parser_factory=lambda: made)
            yield self._markdown

    @property
    def is_plain(self) -> bool:
        return self._flow is not None

    async def append(self, text: str) -> None:
        self._text += text
        end = text.rfind("\n")
        self._line = self._line + len(text) if end < 0 else len(text) - end - 1
        if self._flow is not None:
            self._flow.append(text)
        elif self._markdown is not None:
            if len(self._text) > MAX_CHARACTERS or self._line > MAX_LINE or is_plain(text):
                await self._turn_plain()
            else:
                await self._markdown.append(text)

    async def finish(self) -> None:
        if self._markdown is None:
            return
        if is_plain(self._text):
            await self._turn_plain()
        else:
            await self._markdown.update(self._text)

    async def _turn_plain(self) -> None:
        if self._markdown is not None:
            await self._markdown.remove()
        self._markdown, self._flow = None, Flow(self._text)
        await self.mount(self._flow)


def markdown() -> type[Markdown]:
    """Import the widget: late, since the first screen, which is waited for, has no answer."""
    from textual.widgets import Markdown

    return Markdown


def prepare() -> None:
    """Do what an answer would otherwise wait for: import the widget, compile the parser's expressions, find garbage."""
    markdown()
    parser().parse("www.example.org")
    gc.collect()
    gc.freeze()
