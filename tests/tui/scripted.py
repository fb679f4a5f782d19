"""A scripted worker, and the app around it: every pass is under the test's control."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from textual.pilot import Pilot
from textual.widget import Widget

from localspec.chat.conversation_writer import ConversationWriter
from localspec.chat.message_tree import MessageTree
from localspec.chat.state import ChatState
from localspec.conversations.store import Store
from localspec.engine.events import Committed, Event, Finished, Piece
from localspec.errors import LocalspecError
from localspec.settings.request import LoadSettings, Request
from localspec.tui.app import LocalspecApp
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.widgets.message import Answered, Spoken, UserMessage
from localspec.tui.worker_thread import WorkerThread
from tests.cli.fakes import FakeWorker
from tests.tui.chats import until

PATIENCE = 120.0  # seconds; far more than anything takes
NOON = 1_700_049_600.0  # 15 November 2023, 12:00 UTC
SETTINGS = LoadSettings("/models/target.gguf", "/models/draft.gguf", name="storyteller")


@dataclass
class ScriptedWorker(FakeWorker):
    """Answers with `passes`, or the next of `answers`; waits before pass `hold_at` until `go` is set or it is stopped.

    `drafter` is who drafts; pass 1 refuses a draft of " wrong".
    """

    answers: list[list[str]] = field(default_factory=list)
    hold_at: int | None = None
    load_error: LocalspecError | None = None
    drafter: str = "draft-model"
    go: threading.Event = field(default_factory=threading.Event)
    is_held: threading.Event = field(default_factory=threading.Event)

    def load(self, settings: LoadSettings) -> Iterator[Event]:
        """Load, or fail with `load_error`."""
        if self.load_error is not None:
            raise self.load_error
        for event in super().load(settings):
            self.pid = 1 << 30 | len(self.loads)  # no process of any system
            yield event

    def generate(self, request: Request) -> Iterator[Event]:
        if self.answers:
            self.passes = self.answers.pop(0)
        for event in super().generate(request):
            if isinstance(event, Committed):
                if event.index == self.hold_at:
                    self.is_held.set()
                    while not (self.go.wait(0.005) or self.is_cancelled):
                        pass
                    if self.is_cancelled:
                        yield Finished("interrupted", "", 100.0, 20.0, 1 << 26)
                        return
                refused = (Piece(7, " wrong", "rejected", 0.5),) if event.index == 1 else ()
                event = replace(event, drafted=refused, drafter=self.drafter if event.k else "", why="fixed 4")
            yield event


def made(
    worker: FakeWorker,
    *,
    is_dark: bool = True,
    has_tokens: bool = False,
    has_figures: bool = True,
    in_idle: str = "off",
    store: Store | None = None,
    **settings: Any,
) -> LocalspecApp:
    writer = ConversationWriter(store or Store.open(None, clock=lambda: NOON))
    messages = MessageTree(now=lambda: NOON)
    state = ChatState(writer, SETTINGS, Request(**settings), messages, in_idle=in_idle)
    engine = ChatEngine(state, WorkerThread(worker, clock=lambda: 1000.0), clock=lambda: 1000.0)
    return LocalspecApp(engine, is_dark=is_dark, has_tokens=has_tokens, has_figures=has_figures)


@asynccontextmanager
async def opened(
    worker: FakeWorker | None = None,
    *,
    size: tuple[int, int] = (120, 40),
    app: LocalspecApp | None = None,
    store: Store | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Pilot[int], LocalspecApp]]:
    app = app or made(worker or ScriptedWorker(), store=store, **settings)
    try:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.chat_state.loaded is not None and not app.engine.worker_thread.is_busy)
            yield pilot, app
    finally:
        app.engine.worker_thread.close()
        app.chat_state.writer.close()


async def say(pilot: Pilot[int], text: str) -> None:
    app = app_of(pilot)
    app.chat.composer.fill(text)
    await pilot.press("enter")
    await pilot.pause()


async def say_until_held(pilot: Pilot[int], worker: ScriptedWorker, text: str) -> None:
    """Send a message and wait until the worker holds its answer back."""
    await say(pilot, text)
    await until(pilot, worker.is_held.is_set)


async def ask(pilot: Pilot[int], text: str) -> Answered:
    """Send a message and wait for the whole answer."""
    app = app_of(pilot)
    n = len(app.chat_state.messages.entries)
    await say(pilot, text)
    await until(pilot, lambda: len(app.chat_state.messages.entries) > n and app.chat_state.answering is None)
    await until(pilot, lambda: not app.engine.worker_thread.is_busy)
    return answers(app)[-1]


def app_of(pilot: Pilot[int]) -> LocalspecApp:
    assert isinstance(pilot.app, LocalspecApp)
    return pilot.app


def answers(app: LocalspecApp) -> list[Answered]:
    return list(app.chat.transcript.query(Answered))


def shown(app: LocalspecApp) -> list[str]:
    return [each.entry.text for each in app.chat.transcript.query(Spoken)]


def plain(widget: UserMessage | Answered, part: str) -> str:
    return str(widget.query_one(f".{part}").render())


def markdown_text(answer: Widget) -> str:
    """Return what the blocks of Markdown in a widget show, one a line: what a person reads, not the source."""
    blocks = answer.query("MarkdownParagraph, MarkdownFence Label, MarkdownHeader, MarkdownTableCellContents")
    return "\n".join(str(block.render()) for block in blocks)


async def settled(pilot: Pilot[int]) -> None:
    for _ in range(3):
        await pilot.pause()
    await asyncio.sleep(0)
