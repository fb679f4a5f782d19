"""A line for what the app has to say: the newest notice, or nothing. It has a place of its own and covers nothing."""

from __future__ import annotations

from textual.app import App
from textual.content import Content
from textual.timer import Timer

from localspec.sanitize import sanitize
from localspec.tui.widgets.folded import Folded

LASTS = 6.0  # seconds: time to read two lines


class NoticeBar(Folded):
    """Shows one notice; without one it is the rule that stands there, or takes no room."""

    def __init__(self) -> None:
        super().__init__(classes="-empty")

    def show(self, text: str, *, is_wrong: bool = False) -> None:
        self.set_class(not text, "-empty")
        self.set_class(is_wrong, "-wrong")
        self.update(Content(text))


class Notices:
    """The present notice, shown on every open screen: when one closes, the one below shows it too."""

    def __init__(self, app: App[int]) -> None:
        self.text = ""
        self._app = app
        self._end: Timer | None = None

    def say(self, text: str, *, is_wrong: bool = False) -> None:
        if self._end is not None:
            self._end.stop()
        self._end = self._app.set_timer(LASTS, lambda: self._show(""))
        self._show(sanitize(text), is_wrong=is_wrong)

    def _show(self, text: str, *, is_wrong: bool = False) -> None:
        self.text = text
        for screen in self._app.screen_stack:
            for line in screen.query(NoticeBar):
                line.show(text, is_wrong=is_wrong)
