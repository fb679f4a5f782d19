"""One conversation as a person goes through it: which it is, where they are in it, what is sent next.

Invariant: a conversation is made with its first message, so that looking around leaves nothing behind. Where others
change the same conversation meanwhile, their messages are other branches, and this stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from localspec.conversations.attachment import Attachment
from localspec.conversations.records import USER, Conversation, Message
from localspec.conversations.sending import to_send
from localspec.conversations.store import Store
from localspec.settings.request import Message as Sent


class Current:
    """A place in the store's conversations. `pair` is what answers, in a spelling that finds it again."""

    def __init__(self, store: Store, pair: str, system: str | None = None) -> None:
        self.store = store
        self.pair = pair
        self.id: str | None = None
        self.leaf: int | None = None
        self._system = system

    @property
    def system(self) -> str | None:
        """The system message."""
        return self._system

    @system.setter
    def system(self, text: str | None) -> None:
        self._system = text
        if self.id is not None:
            self.store.set_system(self.id, text)

    def begin(self) -> None:
        """Go to a new conversation, under the same system message."""
        self.id, self.leaf = None, None

    def resume(self, conversation: Conversation) -> None:
        """Go to where a conversation was left."""
        self.id, self.leaf = conversation.id, conversation.leaf
        self._system = conversation.system

    def switch_pair(self, pair: str) -> None:
        """Note that `pair` answers from now on."""
        self.pair = pair
        if self.id is not None:
            self.store.set_pair(self.id, pair)

    def path(self) -> list[Message]:
        """Return what was said, up to here."""
        return self.store.path(self.leaf)

    def ask(self, text: str, attachments: Iterable[Attachment] = ()) -> Message:
        """Say something below the place where we are."""
        if self.id is None:
            self.id = self.store.create(self.pair, system=self._system).id
        message = self.store.add_message(self.id, self.leaf, USER, text, attachments=attachments)
        self.leaf = message.id
        return message

    def question(self) -> Message | None:
        """Return the last thing that a person said, None before the first."""
        path = self.path_to_question()
        return path[-1] if path else None

    def path_to_question(self) -> list[Message]:
        """Return what was said up to the last thing that a person said, with that; nothing before the first."""
        path = self.path()
        while path and path[-1].role != USER:
            path.pop()
        return path

    def back_to_question(self) -> Message | None:
        """Go to the last thing that a person said, so that it is answered anew; None if there is none."""
        question = self.question()
        if question is not None:
            self.go_to(question.id)
        return question

    def before_question(self) -> Message | None:
        """Go to before the last thing that a person said, and return that; nothing is lost. None if there is none."""
        question = self.question()
        if question is not None:
            self.go_to(question.parent)
        return question

    def go_to(self, leaf: int | None) -> None:
        """Go to another place of this conversation."""
        assert self.id is not None, "it has messages"
        self.store.set_leaf(self.id, leaf)
        self.leaf = leaf

    def fork(self) -> bool:
        """Go on in a copy of what was said up to here; False if that is nothing."""
        if self.leaf is None:
            return False
        made = self.store.fork(self.leaf)
        self.id, self.leaf = made.id, made.leaf
        return True

    def to_send(self) -> tuple[Sent, ...]:
        """Return the messages that have the last thing said answered, which is a person's."""
        *before, question = self.path()
        assert question.role == USER, "the last word is a person's"
        return to_send(before, self._system, question.content)

    def to_send_with(self, content: str) -> tuple[Sent, ...]:
        """Return the messages that would have `content` answered if it were said here."""
        return to_send(self.path(), self._system, content)

    def paths(self) -> list[Message]:
        """Return where the paths of this conversation end, the oldest first."""
        if self.id is None:
            return []
        messages = self.store.messages(self.id)
        parents = {message.parent for message in messages}
        return [message for message in messages if message.id not in parents]
