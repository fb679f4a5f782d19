"""What the screens beside the chat share with it: the settings' form, and the one download."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from localspec.sanitize import sanitize
from localspec.settings.setting import Setting
from localspec.tui.chat_state import ChatState
from localspec.tui.conversation_writer import ConversationWriter
from localspec.tui.face import Face
from localspec.tui.form import Form
from localspec.tui.screens.turns import Turns

if TYPE_CHECKING:
    from localspec.tui.downloads import Download

WATCH = 0.25  # seconds between two looks at a download


class Shared(Face):
    """The app as the pairs, the race and the settings see it."""

    def __init__(
        self,
        chat_state: ChatState,
        writer: ConversationWriter,
        clock: Callable[[], float] = time.monotonic,
        settings: Callable[[], Sequence[Setting]] = tuple,
    ) -> None:
        super().__init__(chat_state, writer, clock)
        self._began, self._settings = chat_state.request, settings
        self.download: Download | None = None

    @cached_property
    def form(self) -> Form:
        """The settings as a form, made when it is wanted: to know every method, plug-ins are looked for on the disk."""
        return Form.of(self.chat_state, self._settings(), self._began)

    @property
    @abstractmethod
    def chat(self) -> Turns:
        """The home screen."""

    def watch_download(self) -> None:
        """Tell how the download ends, whatever is shown then."""

        def look() -> None:
            download = self.download
            if download is None or download.is_over:
                timer.stop()
            if download is not None and download.phase == "done":
                self.say(sanitize(f"{download.ref} is here; Ctrl+O uses it"))
            elif download is not None and download.error is not None:
                self.say(sanitize(f"{download.ref}: {download.error.message}"), is_wrong=True)

        timer = self.set_interval(WATCH, look)
