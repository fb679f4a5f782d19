"""A conversation as a tree: every edit and every second answer is a branch, and nothing that was said is lost.

Invariant: `path` alternates user and assistant and follows, at each fork, the branch that was chosen last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from localspec.conversations.attachment import Attachment, fenced
from localspec.conversations.records import ASSISTANT, INTERRUPTED, USER
from localspec.conversations.records import Message as Kept
from localspec.settings.request import Message

_STATES = {INTERRUPTED: "interrupted", "timeout": "interrupted", "error": "failed", None: "interrupted"}


@dataclass(slots=True)
class Node:
    """One message. `status`: streaming, done, interrupted or failed; `key` is its name where it is kept."""

    id: int
    parent: int | None
    role: str
    text: str = ""
    status: str = "done"
    at: float = 0.0  # seconds since the epoch
    key: int | None = None
    attachments: tuple[Attachment, ...] = ()

    @property
    def content(self) -> str:
        """What is sent: what is attached, fenced, and then the text."""
        return "\n\n".join([*map(fenced, self.attachments), self.text])


@dataclass(slots=True)
class MessageTree:
    """Messages under an optional system message.

    `key` is the conversation's name where it is kept, None while it is not. `editing` is the user's message that the
    next one takes the place of; going to another branch gives that up.
    """

    system: str | None = None
    key: str | None = None
    now: Callable[[], float] = time.time
    editing: Node | None = None
    entries: dict[int, Node] = field(default_factory=dict)
    _children: dict[int | None, list[int]] = field(default_factory=dict)
    _chosen: dict[int | None, int] = field(default_factory=dict)

    @classmethod
    def restored(cls, messages: Iterable[Kept], *, system: str | None, key: str, leaf: int | None) -> MessageTree:
        """Return a conversation as it was kept, looking at the path that ends in `leaf`."""
        made, by_key = cls(system, key=key), dict[int, Node]()
        for kept in messages:
            parent = None if kept.parent is None else by_key[kept.parent]
            entry = made.add(kept.role, kept.text, parent=parent, at=kept.created)
            entry.status, entry.key = _STATES.get(kept.finish, "done"), kept.id
            entry.attachments = kept.attachments
            by_key[kept.id] = entry
        at = by_key.get(leaf) if leaf is not None else None
        made._chosen.pop(None if at is None else at.id, None)  # what follows the leaf was taken back
        while at is not None:
            made.choose(at)
            at = made.parent(at)
        return made

    def add(self, role: str, text: str = "", *, parent: Node | None, status: str = "done", at: float = 0.0) -> Node:
        """Append a message below `parent` (None: at the root) and choose it."""
        above = None if parent is None else parent.id
        entry = Node(len(self.entries) + 1, above, role, text, status, at or self.now())
        self.entries[entry.id] = entry
        self._children.setdefault(above, []).append(entry.id)
        self._chosen[above] = entry.id
        return entry

    def path(self) -> list[Node]:
        """Return the messages from the root along the chosen branches."""
        found, at = [], self._chosen.get(None)
        while at is not None:
            found.append(self.entries[at])
            at = self._chosen.get(at)
        return found

    def siblings(self, entry: Node) -> list[Node]:
        """Return the branches that `entry` is one of, oldest first."""
        return [self.entries[each] for each in self._children[entry.parent]]

    def parent(self, entry: Node) -> Node | None:
        """Return what `entry` follows."""
        return None if entry.parent is None else self.entries[entry.parent]

    def choose(self, entry: Node) -> None:
        """Make `entry` the branch that the path follows."""
        self._chosen[entry.parent] = entry.id
        self.editing = None

    def hide(self, entry: Node) -> None:
        """End the path before `entry`, which stays a branch."""
        self._chosen.pop(entry.parent, None)
        self.editing = None

    def messages(self, last: Node) -> tuple[Message, ...]:
        """Return what to send so that the message `last` of a user is answered.

        Messages that got no answer are left out with theirs.
        """
        above: list[Node] = []
        at = self.parent(last)
        while at is not None:
            above.insert(0, at)
            at = self.parent(at)
        sent = [] if not self.system else [Message("system", self.system)]
        for asked, answered in pairwise(above):
            if (asked.role, answered.role) == (USER, ASSISTANT) and answered.text:
                sent += [Message(USER, asked.content), Message(ASSISTANT, answered.text)]
        return (*sent, Message(USER, last.content))
