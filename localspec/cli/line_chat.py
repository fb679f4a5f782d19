"""The line chat as a renderer of the chat: answers and the replies of commands, line by line."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from localspec.bench.rounds import TOKENS
from localspec.chat.answer_writer import AnswerWriter, ending, remark
from localspec.chat.commands import TABLE
from localspec.chat.listing import ASSISTANT, said
from localspec.chat.message_tree import Node
from localspec.chat.opening import require_whole, tell_news
from localspec.chat.pair_loader import PairLoader
from localspec.chat.state import ChatState
from localspec.cli.console import Console, is_dumb, is_terminal, write_out, write_text
from localspec.cli.live import Live
from localspec.cli.output import TextSink, tell_figures
from localspec.cli.pair_engine import PairEngine, asking
from localspec.cli.race import figures, shown_race
from localspec.cli.signals import deferred
from localspec.conversations.records import FAILED
from localspec.engine.events import Event, Loaded, Warned
from localspec.errors import NotFoundError, UsageError
from localspec.sanitize import sanitize
from localspec.settings.request import LoadSettings, Request
from localspec.ui import programs
from localspec.ui.mentions import mentioned
from localspec.ui.programs import edited, left_to_it
from localspec.ui.result import result
from localspec.ui.stats import Stats
from localspec.worker.shared import SharedWorker

if TYPE_CHECKING:
    from localspec.worker.served import ServedWorker

Result = TypeVar("Result")
LONGEST_COPY = 100_000  # bytes; a terminal may drop more


class LineChat:
    """A chat on standard input and output. `find` returns how to load a pair that is named."""

    def __init__(
        self,
        console: Console,
        worker: SharedWorker | ServedWorker,
        state: ChatState,
        find: Callable[[str], LoadSettings] | None = None,
    ) -> None:
        self.console = console
        self.state = state
        self.stats: Stats | None = None
        self.has_marks = False
        self.has_stats = is_terminal(sys.stderr) and not console.quiet
        self.control = "auto"
        self.is_over = False
        self.on_stop: Callable[[], object] = lambda: None  # called once Ctrl-C has stopped something
        self.is_script = not is_terminal(sys.stdin)
        self._find = find
        self._worker = worker
        self._pairs = PairLoader(worker, deferred)

    def run(self, line: str) -> None:
        if TABLE.needs_rest(line):
            _finish(tell_news(self))
        _finish(TABLE.run(self, line))
        self.tell_trouble()

    def send(self, text: str) -> None:
        _finish(require_whole(self))
        taken = mentioned(text)
        for line in (*([taken.summary] if taken.is_news else []), *taken.remarks):
            _finish(self.tell(line))
        _finish(self.answer(self.state.say(TABLE.literal(text), taken.texts)))

    def tell_trouble(self) -> None:
        trouble = self.state.writer.trouble()
        if trouble is not None:
            self.console.warn(f"{trouble.message}; {trouble.hint}")

    def is_answering(self) -> bool:
        return False

    async def open_screen(self, name: str) -> bool:
        return False

    async def tell(self, text: str) -> None:
        await self.show([f"  {line}" for line in text.split("\n")])

    async def show(self, lines: Sequence[str]) -> None:
        write_text("\n".join(map(sanitize, lines)))

    async def warn(self, text: str) -> None:
        self.console.warn(text)

    async def moved(self, text: str, *, unsaid: Node | None = None) -> None:
        if text:
            await self.tell(text)

    async def show_path(self) -> None:
        await self.show_ended(self.state.messages.path())

    async def show_ended(self, entries: Sequence[Node]) -> None:
        write_out("".join(f"{sanitize(line)}\n" for line in said(entries)))

    async def wait(self, answer: Future[Result]) -> Result:
        return answer.result()

    async def rewrite(self, asked: Node) -> str | None:
        if not is_terminal(sys.stdin):
            raise UsageError("/edit needs the new words, since there is no terminal", hint="/edit WORDS")
        with left_to_it():
            return edited(asked.text, hint="set EDITOR, or /edit WORDS")

    async def copy(self, text: str, what: str) -> None:
        await self.tell(f"{what}: {programs.copy(text, _send_to_terminal)}")

    async def find_pair(self, pair: str) -> LoadSettings:
        if self.state.settings.verifier is not None:
            from localspec.models.available import another  # late: it brings the catalogue

            return another(self.state.settings, pair)[0]
        if self._find is None:
            raise UsageError("this chat cannot change its pair", hint="localspec chat -m PAIR")
        return replace(self._find(pair), ctx=self.state.settings.ctx)

    async def load(self, settings: LoadSettings) -> None:
        self.state.switch_pair(settings)
        self._worker.close()  # its memory is needed
        self.stats = None

    async def restart(self) -> None:
        self._worker.close()
        await self.tell("the engine starts again with your next message")

    async def toggle_tokens(self) -> None:
        self.has_marks = not self.has_marks
        await self.tell(f"marks {'on: ⟦corrected⟧, bonus⁺' if self.has_marks else 'off'}")

    async def leave(self) -> None:
        self.is_over = True

    async def race(self, rounds: int) -> None:
        question = self.state.messages.question()
        assert question is not None, "the command has looked"
        request = self.state.request_for(question)
        request, raced = replace(request, max_tokens=request.max_tokens or TOKENS), None
        try:
            with self._asking(Live(self.console)) as engine:
                engine.load(self.state.to_load())
                if not engine.is_stopped():
                    raced = shown_race(engine, request, rounds)
        except KeyboardInterrupt:
            self._worker.close()
            if self.is_script:
                raise
        engine.stop.leave_if_told(is_script=self.is_script)
        if raced is None:
            await self.tell("stopped")
        else:
            await self.tell("\n".join(figures(raced, "/race 6")))

    async def answer(self, asked: Node) -> None:
        """Answer a message. Text that came is kept, whatever happens. A second Ctrl-C ends an engine that does not
        stop; in a script the first one ends the script."""
        if self.state.messages.path()[-1] is not asked:
            self.state.go_to(asked)
        try:
            self._answer(asked)
        except KeyboardInterrupt:
            self._worker.close()
            if self.is_script:
                raise
            self.console.say("the engine was ended; your next message starts it again", "dim")
        finally:
            self.tell_trouble()

    def _answer(self, asked: Node) -> None:
        live = Live(self.console)
        loaded = None if self.stats is None else self.stats.loaded  # told once, when it was loaded
        stats = Stats(asked_at=time.monotonic(), loaded=loaded)
        label = "" if self.console.quiet else ASSISTANT
        sink = TextSink(self.console, live, control=self.control, has_marks=self.has_marks, label=label)
        writer, request, reason = AnswerWriter(self.state), self.state.next_request(asked), FAILED
        writer.begin(asked)
        try:
            with self._asking(live) as engine:
                engine.follow(writer.recorded(self._events(request, engine)), stats, sink)
            reason = stats.finished.reason if stats.finished is not None else reason
        except BaseException as error:
            reason = ending(error)
            sink.fail({})
            raise
        finally:
            writer.finish(reason, result(stats, self.state.settings, request))
            self.stats = stats
        sink.finish(stats)
        for warning in (*stats.late, remark(stats)):
            if warning:
                self.console.warn(warning)
        if self.has_stats:
            tell_figures(stats, self.console)
        engine.stop.leave_if_told(is_script=self.is_script)

    def _events(self, request: Request, engine: PairEngine) -> Iterator[Event]:
        settings = self.state.to_load()
        engine.tell_start(settings)
        yield from (Warned("no-effect", line) for line in self.state.take_remarks())
        for event in self._pairs.answer(settings, request, engine.is_stopped):
            if isinstance(event, Loaded):
                self.state.has_loaded(event)
            yield event

    def _asking(self, live: Live) -> AbstractContextManager[PairEngine]:
        def stop() -> None:
            self._worker.cancel()
            self.on_stop()

        again = signal.default_int_handler  # raises KeyboardInterrupt
        return asking(self._worker, live, self.console, pairs=self._pairs, cancel=stop, again=partial(again, 0, None))


def _finish(command: Coroutine[Any, Any, object]) -> None:
    """Run a command to its end: nothing in a line chat waits, so it takes one step."""
    try:
        command.send(None)
    except StopIteration:
        return
    raise AssertionError("a line chat waits for nothing")


def _send_to_terminal(data: bytes) -> None:
    if not is_terminal(sys.stdout) or is_dumb() or len(data) > LONGEST_COPY:
        raise NotFoundError("no clipboard can be reached from here", hint="/export FILE")
    write_out(programs.sequence(data))
