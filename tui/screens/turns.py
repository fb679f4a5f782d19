"""What is done with the turns of a conversation: send, answer again, edit, go to another branch, copy, fork."""

from __future__ import annotations

import asyncio

from textual import on

from localspec.conversations.records import ASSISTANT, USER
from localspec.errors import LocalspecError
from localspec.tui.chat_state import ChatState
from localspec.tui.clipboard import copy
from localspec.tui.commands import obey
from localspec.tui.message_tree import MessageTree, Node
from localspec.tui.talk import Talk, in_turn
from localspec.tui.widgets.composer import Composer
from localspec.tui.widgets.message import Spoken
from localspec.ui.slash import is_command, literal

BUSY = "an answer is being written; Esc stops it"


class Turns(Talk):
    """The actions of the chat; what is drawn is left to `ChatScreen`."""

    def __init__(self, chat_state: ChatState) -> None:
        super().__init__()
        self.chat_state = chat_state
        self._unsent = ""  # what was being written before a message was to be written anew

    @on(Composer.Sent)
    async def send(self, sent: Composer.Sent) -> None:
        """Send a message, or obey a command; what cannot be sent stays where it is."""
        if is_command(sent.text):
            self.composer.clear_sent()
            try:
                await obey(self, sent.text)
            except LocalspecError as error:
                await self.fail(error)
            return
        if self.is_answering():
            return
        self.composer.clear_sent()
        is_edited = self.chat_state.messages.editing is not None
        answer = self.chat_state.ask(literal(sent.text))
        if is_edited:
            self.composer.fill(self._unsent)
            await self.renew()
            return
        asked = self.chat_state.messages.parent(answer)
        assert asked is not None
        await self.show(asked, answer)

    def is_answering(self) -> bool:
        """Whether an answer is being written, which is then said."""
        if self.chat_state.answering is not None:  # while a pair loads, a message may wait for it
            self.app.say(BUSY)
        return self.chat_state.answering is not None

    @in_turn
    async def action_regenerate(self) -> None:
        """Answer the last message again, beside the answers it has."""
        path = self.chat_state.messages.path()
        if not path or self.is_answering():
            return
        await self.again(path[-1])

    async def again(self, entry: Node) -> None:
        """Answer anew: what `entry` says, or what it answers."""
        if entry.role == ASSISTANT:
            self.chat_state.again(entry)
        else:
            self.chat_state.answer(entry)
        await self.renew()

    def edit(self, entry: Node) -> None:
        """Let a message be written anew; it then stands beside the old one, with all that followed."""
        asked = entry if entry.role == USER else self.chat_state.messages.parent(entry)
        assert asked is not None
        if self.chat_state.messages.editing is None:
            self._unsent = self.composer.message
        self.chat_state.messages.editing = asked
        self.composer.clear_sent()
        self.composer.fill(asked.text)
        self.composer.focus()
        self.app.say("Enter sends it as another branch; Esc keeps the old one")

    def stop_editing(self) -> bool:
        """Go on with what was being written before a message was to be written anew; whether one was."""
        was, self.chat_state.messages.editing = self.chat_state.messages.editing is not None, None
        if was:
            self.composer.clear_sent()
            self.composer.fill(self._unsent)
        return was

    @on(Composer.Changed)
    def emptied(self) -> None:
        """Give an edit up of which nothing is left: what is written next may be another question."""
        if not self.composer.text and self.stop_editing():
            self.app.say("the old message stays; what you write now is a new one")

    async def step(self, entry: Node, by: int) -> None:
        """Go to a branch beside this one."""
        siblings = self.chat_state.messages.siblings(entry)
        at = siblings.index(entry) + by
        if 0 <= at < len(siblings) and not self.is_answering():
            self.chat_state.choose(siblings[at])
            await self.renew()

    def copy_text(self, text: str, what: str) -> None:
        """Copy, and say how."""
        self.app.say(f"{what}: {copy(self.app, text)}")

    def action_copy(self) -> None:
        """Copy the last answer as it was written, not as it is shown."""
        answer = self.chat_state.last_answer
        if answer is not None:
            self.copy_text(answer.text, "the answer")

    def inspect(self, entry: Node) -> None:
        """Show the passes of an answer."""
        trace = self.chat_state.traces.get(entry.id)
        if trace is not None and trace.passes:
            from localspec.tui.screens.inspector import Inspector  # late: the first screen is waited for

            self.app.push_screen(Inspector(trace))
        else:
            self.app.say("the passes of this answer were not kept: only its text was")

    async def fork(self, entry: Node) -> None:
        """Begin a conversation that has said what was said up to here; the old one stays."""
        if self.is_answering() or entry.key is None:
            return
        key = entry.key
        try:
            made = await asyncio.wrap_future(self.app.writer.ask(lambda store: store.fork(key)))
        except LocalspecError as error:
            await self.fail(error)
            return
        attached = self.chat_state.attached
        await self.open(made.id)
        self.chat_state.attached = attached
        self.show_attached()
        self.app.say("a fork: the conversation it came from is unchanged")

    async def begin(self) -> None:
        """Begin a new conversation."""
        if self.is_answering():
            return
        self.stop_editing()
        self.chat_state.renew()
        await self.renew()
        self.composer.focus()

    async def open(self, conversation: str) -> None:
        """Go on with a conversation that was kept."""
        if self.is_answering():
            return
        try:
            found = await asyncio.wrap_future(
                self.app.writer.ask(lambda store: (store.get(conversation), store.messages(conversation)))
            )
        except LocalspecError as error:
            await self.fail(error)
            return
        kept, messages = found
        self.stop_editing()
        self.chat_state.open(MessageTree.restored(messages, system=kept.system, key=kept.id, leaf=kept.leaf))
        await self.renew()

    @on(Spoken.Wanted)
    async def act(self, wanted: Spoken.Wanted) -> None:
        """Do what a key on a message asks for."""
        entry = wanted.entry
        match wanted.what:
            case "copy":
                self.copy_text(entry.text, "the message")
            case "edit" if not self.is_answering():
                self.edit(entry)
            case "again" if not self.is_answering():
                await self.again(entry)
            case "inspect":
                self.inspect(entry)
            case "fork":
                await self.fork(entry)
            case "back":
                await self.step(entry, -1)
            case "on":
                await self.step(entry, 1)
