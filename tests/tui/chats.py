"""The app with a scripted engine, or with the real one, driven without a terminal."""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from textual.pilot import Pilot

from localspec.chat.conversation_writer import ConversationWriter
from localspec.chat.message_tree import MessageTree
from localspec.chat.pair_loader import ChatWorker
from localspec.chat.state import ChatState
from localspec.conversations.store import Store
from localspec.engine.events import Event, Finished, Inspected, Prefilled, Started
from localspec.errors import LocalspecError
from localspec.models.store import parse_pair
from localspec.settings.declaration import Setting
from localspec.settings.jobs import Generate, LoadedJob
from localspec.settings.request import LoadSettings, Request
from localspec.tui.app import LocalspecApp
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.worker_thread import WorkerThread
from tests.cli.fakes import FakeWorker, committed

NOON = 1_700_049_600.0  # 15 November 2023, 12:00 UTC
TIMEOUT = 120.0  # seconds; far more than anything takes
WORDS = [
    "Once",
    "upon",
    "a",
    "time",
    "there",
    "was",
    "a",
    "king",
    "who",
    "had",
    "three",
    "sons",
    "and",
    "no",
    "crown",
    "at",
    "all",
]


@dataclass
class ScriptedEngine(FakeWorker):
    """Tells one story, token by token where it is asked to decode plainly, else in passes of four.

    `other` is the story with speculation where that is another one, and `fork` what is said of the difference.
    """

    words: list[str] = field(default_factory=lambda: [*WORDS])
    other: list[str] | None = None
    fork: dict[str, Any] = field(default_factory=dict)
    error: LocalspecError | None = None

    def generate(self, request: Request) -> Iterator[Event]:
        """Answer as asked: at most as many words as tokens were allowed."""
        self.is_cancelled = False
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        is_plain = request.speculation.method == "plain" or request.speculation.k == 0
        story = self.words if is_plain or self.other is None else self.other
        words = [word if i == 0 else f" {word}" for i, word in enumerate(story[: request.max_tokens])]
        method = "plain" if is_plain else "draft-model"
        yield Started(method, "chain", "fixed", 0 if is_plain else 4, "coupled", 7, True, 16)
        yield Prefilled(16, 0, 10.0)
        step = 1 if is_plain else 4
        for index, at in enumerate(range(0, len(words), step)):
            self._wait(self.pause)
            if self.is_cancelled:
                yield Finished("interrupted", "", 100.0, 20.0, 1 << 26)
                return
            text = "".join(words[at : at + step])
            yield _pass(index, text, at, 0 if is_plain else 4)
        yield Finished("length", "", 100.0, 20.0, 1 << 26)

    def start(self, job: LoadedJob) -> Iterator[Event]:
        """Answer, or say what the script says of the fork."""
        return self.generate(job.request) if isinstance(job, Generate) else iter([Inspected({"fork": self.fork})])


def _pass(index: int, text: str, position: int, k: int) -> Any:
    """Return a pass whose tokens have numbers of their own, so that texts that differ differ in tokens."""
    event = committed(index, text.lstrip(" ") if k else text, position=position, k=k)
    lead = text[: len(text) - len(text.lstrip(" "))] if k else ""
    spelt = [(lead if i == 0 else "") + piece.text for i, piece in enumerate(event.out)]
    out = tuple(replace(piece, id=sum(map(ord, word)), text=word) for piece, word in zip(event.out, spelt, strict=True))
    return replace(event, out=out, text=text)


def engine_of(engine: ChatWorker, **settings: Any) -> ChatEngine:
    """Return a chat with the bundled pair and short answers, which keeps nothing on the disk."""
    pair = parse_pair("storyteller")
    load = LoadSettings(str(pair.target), str(pair.draft), pair.name, ctx=512)
    request = replace(Request(max_tokens=16), **settings)
    writer = ConversationWriter(Store.open(None, clock=lambda: NOON))
    return ChatEngine(ChatState(writer, load, request, MessageTree(now=lambda: NOON)), WorkerThread(engine))


def app_of(engine: ChatWorker, *, is_dark: bool = True, form: Sequence[Setting] = (), **settings: Any) -> LocalspecApp:
    """Return the app. Its clock stands still, so that no picture depends on when it was taken."""
    made = engine_of(engine, **settings)
    made.state.settings_at_start = lambda: form
    return LocalspecApp(made, is_dark=is_dark, clock=lambda: 0.0)


@asynccontextmanager
async def opened(app: LocalspecApp, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Pilot[int]]:
    try:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.screen is app.chat and app.chat_state.loaded is not None)
            yield pilot
    finally:
        app.engine.worker_thread.close()
        app.chat_state.writer.close()


async def until(pilot: Pilot[Any], condition: Callable[[], bool]) -> None:
    """Let the app go on until `condition` holds and is drawn."""
    app = pilot.app
    assert isinstance(app, LocalspecApp)
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if app.bug is not None:
            raise RuntimeError("the app has failed") from app.bug
        assert time.monotonic() < deadline, shown(app)
        await pilot.pause(0.01)
    await pilot.pause()


def shown(app: LocalspecApp) -> str:
    """Return what is on the screen, as text."""
    lines = []
    for y in range(app.size.height):
        lines.append("".join(segment.text for segment in app.screen._compositor.render_strips()[y]).rstrip())
    return "\n".join(lines)
