"""The text of answers that are being written, on its way to the file: gathered, and written now and then.

It is written within `INTERVAL`, and at once if nothing was written for that long. A process that is killed loses less
than a second of text. A transaction for every token would take longer than the token.
"""

import threading
import time
from collections.abc import Callable

INTERVAL = 0.5  # seconds


class AnswerStream:
    """Pieces of text by message. Any thread may add; `write` is called from a thread of the stream's own."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._pieces: dict[int, list[str]] = {}
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._next = 0.0  # when the file may be written to again

    def add(self, message: int, text: str) -> None:
        with self._lock:
            self._pieces.setdefault(message, []).append(text)
            self._write_soon()

    def take(self) -> dict[int, str]:
        with self._lock:
            taken = {message: "".join(pieces) for message, pieces in self._pieces.items()}
            self._pieces.clear()
            return taken

    def put_back(self, taken: dict[int, str]) -> None:
        """Take again what could not be written; it stands before what came since, and is tried again."""
        with self._lock:
            for message, text in taken.items():
                self._pieces[message] = [text, *self._pieces.get(message, [])]
            if taken:
                self._write_soon()

    def close(self) -> None:
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _write_soon(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(max(0.0, self._next - time.monotonic()), self._due)
            self._timer.daemon = True
            self._timer.start()

    def _due(self) -> None:
        with self._lock:
            self._timer = None
            self._next = time.monotonic() + INTERVAL
        self._write()
