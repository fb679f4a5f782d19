"""The full-screen chat as a renderer of the chat: what the commands and the keys do with its turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from localspec.chat.commands import TABLE
from localspec.chat.conversation_commands import begin, fork_from, open_conversation, undelete_conversation
from localspec.chat.conversation_writer import recover, sent_before
from localspec.chat.listing import named, short
from localspec.chat.message_tree import MessageTree, Node
from localspec.chat.opening import catch_up, require_whole, tell_news
from localspec.chat.state import ChatState
from localspec.conversations.records import USER
from localspec.errors import LocalspecError
from localspec.sanitize import sanitize
from localspec.settings.request import LoadSettings
from localspec.tui.chat_engine import ChatEngine
from localspec.tui.host import ChatView, Host
from localspec.tui.widgets.composer import Composer
from localspec.ui import programs
from localspec.ui.mentions import Taken, mentioned
from localspec.ui.stats import Stats

Result = TypeVar("Result")
BUSY = "Still answering · Esc stops"
BUSY_ELSEWHERE = "Still answering in another conversation · F8 goes there"
QUEUE_FULL = "One message waits already · Esc stops the answer"
CUT_SHORT = ("interrupted", "error")  # after such an answer nothing is sent by itself


class ChatTurns:
    def __init__(self, host: Host, engine: ChatEngine, view: ChatView) -> None:
        self._host = host
        self._engine = engine
        self._view = view
        self._edited_in: MessageTree | None = None  # the conversation in which a message is written anew
        self._unsent = ""  # what was being written before that
        self.waiting = ""  # the message, or the command, that is sent after the answer
        self._waits_in: MessageTree | None = None  # the conversation that it is for
        self._waits_since = 0.0  # the engine's clock's time when Enter was pressed for it

    @property
    def state(self) -> ChatState:
        return self._engine.state

    @property
    def stats(self) -> Stats | None:
        trace = self._engine.trace
        return None if trace is None else trace.stats

    async def send(self, text: str, asked_at: float | None = None) -> None:
        """Send a message, or run a command; what cannot be sent is put back. `asked_at` as in `ChatEngine.answer`."""
        asked_at = self._engine.clock() if asked_at is None else asked_at
        composer = self._view.composer
        is_command = TABLE.is_command(text)
        if self.state.answering is not None and (not is_command or TABLE.needs_rest(text)):
            self._queue(text)
            return
        if is_command:
            self.stop_editing()
            await self.run(text)
            return
        try:
            await require_whole(self)
            taken = await asyncio.to_thread(mentioned, text) if "@" in text else Taken()
        except LocalspecError as error:
            composer.put_back(text)
            await self._view.fail(error)
            return
        if taken.is_news:
            self._host.say(sanitize(taken.summary))
        is_edited = self.state.messages.editing is not None
        asked = self.state.say(TABLE.literal(text), taken.texts)
        answer = self._engine.answer(asked, asked_at)
        if is_edited:
            self._host.say("")  # the edit is over, and so is the notice of its keys
            composer.put_back(self._unsent)
            await self._view.renew()
        else:
            await self._view.show(asked, answer)
        for line in (*taken.remarks, *self.state.take_remarks()):
            await self.warn(line)

    def _queue(self, text: str) -> None:
        if self.waiting or self.state.messages.editing is not None:
            self._host.say(QUEUE_FULL if self.waiting else BUSY)
            self._view.composer.put_back(text)
        else:
            self.waiting, self._waits_since = text, self._engine.clock()
            self._waits_in = self.state.messages
            self._view.show_attached()

    async def go_on(self, finish: str | None) -> None:
        text, self.waiting = self.waiting, ""
        self._view.show_attached()
        if text and (finish is None or finish in CUT_SHORT):
            self._view.composer.put_back(text)
        elif text:
            await self.send(text, self._waits_since)

    @property
    def away(self) -> str:
        """The first words of another conversation in which an answer is being written, "" if there is none."""
        answered = self.state.answered
        if answered is None or answered is self.state.messages:
            return ""
        return f"“{short(next((entry.text for entry in answered.path()), ''))}”"

    @property
    def unsent(self) -> str:
        unsent_before = self._unsent if self.state.messages.editing is not None else ""
        texts = (self.waiting, unsent_before, self._view.composer.message, self.state.mentions)
        return "\n".join(filter(None, texts))

    async def run(self, line: str) -> None:
        async def act() -> None:
            if TABLE.needs_rest(line):
                await tell_news(self)
            await TABLE.run(self, line)

        await self._try(act())
        self._view.show_attached()

    async def _try(self, change: Awaitable[object]) -> None:
        try:
            await change
        except LocalspecError as error:
            await self._view.fail(error)

    def is_answering(self) -> bool:
        """Whether an answer is being written, which is then said."""
        if self.state.answering is not None:  # while a pair loads, a message may wait for it
            self._host.say(BUSY if self.state.answering_here is not None else BUSY_ELSEWHERE)
        return self.state.answering is not None

    async def open_screen(self, name: str) -> bool:
        self._host.open(name)
        return True

    async def tell(self, text: str) -> None:
        await self._view.tell(text)

    async def show(self, lines: Sequence[str]) -> None:
        await self._view.tell("\n".join(lines))

    async def warn(self, text: str) -> None:
        await self._view.tell(text)

    async def moved(self, text: str, *, unsaid: Node | None = None) -> None:
        self.stop_editing()
        if self.waiting and self._waits_in is not self.state.messages:  # it is for the one that was left
            text, self.waiting = self.waiting, ""
            self._view.composer.put_back(text)
        await self._view.renew()
        if unsaid is not None:
            self._view.composer.fill(unsaid.text)

    async def show_path(self) -> None:
        await self._view.run_action("top")

    async def show_ended(self, entries: Sequence[Node]) -> None:
        await self._view.renew()

    async def wait(self, answer: Future[Result]) -> Result:
        return await asyncio.wrap_future(answer)

    async def rewrite(self, asked: Node) -> str | None:
        self.edit(asked)
        return None

    async def copy(self, text: str, what: str) -> None:
        self.copy_text(text, what)

    def copy_text(self, text: str, what: str) -> None:
        self._host.say(f"{what}: {programs.copy(text, lambda _data: self._host.copy_to_clipboard(text))}")

    async def find_pair(self, pair: str) -> LoadSettings:
        from localspec.models.available import another  # late: the first screen is waited for

        settings, remark = await asyncio.to_thread(another, self.state.settings, pair)
        self.state.remark(remark)
        return settings

    async def load(self, settings: LoadSettings) -> None:
        self._engine.switch_pair(settings)
        self._host.say(sanitize(f"loading {settings.name}"))

    async def restart(self) -> None:
        await self._view.run_action("app.restart")

    async def race(self, rounds: int) -> None:
        self._host.race(rounds)

    async def toggle_tokens(self) -> None:
        await self._view.run_action("origins")

    async def leave(self) -> None:
        await self._view.run_action("app.quit")

    async def answer(self, asked: Node) -> None:
        self._engine.answer(asked)
        await self._view.renew()

    async def again(self, entry: Node) -> None:
        if not self.is_answering():
            asked = self.state.ask_again(entry)
            line = self.state.seed_of_next(asked)
            await self.answer(asked)
            if line:
                await self.tell(line)

    def edit(self, entry: Node) -> None:
        messages, composer = self.state.messages, self._view.composer
        asked = entry if entry.role == USER else messages.parent(entry)
        if messages.editing is None:
            self._unsent = composer.message
        messages.editing, self._edited_in = asked, messages
        composer.clear_sent()
        composer.fill("" if asked is None else asked.text)
        composer.focus()
        self._host.say("Enter sends it as a new branch · Esc cancels")

    def stop_editing(self) -> bool:
        """Go on with what was being written before a message was to be written anew; whether one was."""
        edited_in, self._edited_in = self._edited_in, None
        if edited_in is None or edited_in.editing is None:
            return False
        edited_in.editing = None
        self._view.composer.clear_sent()
        self._view.composer.fill(self._unsent)
        self._host.say("")  # the notice of the edit is over too
        return True

    async def step(self, entry: Node, by: int) -> None:
        await self.look_again()
        siblings = self.state.messages.siblings(entry)
        at = siblings.index(entry) + by
        if not 0 <= at < len(siblings):
            self._host.say(f"There is no branch {'before' if by < 0 else 'after'} this one")
        elif not self.is_answering():
            self.state.choose(siblings[at])
            await self._view.renew(entry, siblings[at])  # the next key goes to the next branch

    async def look_again(self) -> None:
        news = await catch_up(self)
        if news and self.state.messages.editing is None and self.state.answering is None:
            await self._view.renew()
        if news:
            self._host.say(news)

    def inspect(self, entry: Node) -> None:
        trace = self._engine.traces.get(entry.id)
        if trace is not None and trace.passes:
            self._host.inspect(trace)
        elif entry.role == USER:
            self._host.say("Enter shows the passes of an answer, and this is your message")
        else:
            self._host.say("only the text of this answer was kept, not its passes")

    async def fork(self, entry: Node) -> None:
        if not self.is_answering():
            await self._try(fork_from(self, entry))

    async def restore(self) -> str | None:
        try:
            conversation = await undelete_conversation(self, self.state.deleted[-1])
        except LocalspecError as error:
            self._host.say(f"{error.message}{error.advice}", is_wrong=True)
            return None
        self._host.say(f"Restored {named(conversation)}")
        return conversation.id

    async def begin(self) -> None:
        await begin(self, "")
        self._view.composer.focus()

    async def open(self, conversation: str) -> None:
        await self._try(open_conversation(self, conversation))

    async def act(self, what: str, entry: Node) -> None:
        match what:
            case "copy":
                self.copy_text(entry.text, "the message")
            case "edit" if not self.is_answering():
                self.edit(entry)
            case "again":
                await self.again(entry)
            case "inspect":
                self.inspect(entry)
            case "fork":
                await self.fork(entry)
            case "back":
                await self.step(entry, -1)
            case "on":
                await self.step(entry, 1)


async def recall(host: Host, state: ChatState, composer: Composer) -> None:
    writer, key = state.writer, state.session
    composer.remember(await asyncio.wrap_future(writer.ask(sent_before)))
    left = await asyncio.wrap_future(writer.ask(lambda _store: recover(key))) if writer.is_saved else ""
    if left:
        composer.put_back(left)
        host.say("What was not sent the last time is back · Ctrl+C clears it")
