"""A conversation as a tree: every edit and every second answer is a branch, and nothing that was said is lost.

Invariant: `path` follows, at each fork, the branch that was chosen last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from localspec.conversations.records import (
    ELSEWHERE,
    INTERRUPTED,
    SENT,
    USER,
    Attachment,
    Conversation,
    StoredMessage,
    with_attachments,
)


@dataclass(slots=True)
class Node:
    """One message. `finish` is why it ended, as in the store; None while it is being written. `key` is its name in the
    store, None until it is written there. `writer` is another process that writes it now."""

    id: int
    parent: int | None
    role: str
    text: str = ""
    finish: str | None = SENT
    at: float = 0.0  # seconds since the epoch
    key: int | None = None
    attachments: tuple[Attachment, ...] = ()
    stats: dict[str, Any] | None = None  # of an answer: the object of --json
    writer: int | None = None

    def take(self, stored: StoredMessage) -> None:
        self.writer = stored.writer if stored.writer != os.getpid() else None
        self.text, self.stats = stored.text, stored.stats
        self.finish = stored.finish or (INTERRUPTED if self.writer is None else ELSEWHERE)

    @property
    def reasoning(self) -> str:
        return (self.stats or {}).get("reasoning") or ""

    @property
    def content(self) -> str:
        return with_attachments(self.text, self.attachments)


@dataclass(slots=True)
class MessageTree:
    """Messages under an optional system message. `key` is the conversation's name in the store, None until it is
    written there. `pair` is that which answered last, "" before the first message. `editing` is the user's message that
    the next one takes the place of; going to another branch ends the edit."""

    system: str | None = None
    key: str | None = None
    pair: str = ""
    now: Callable[[], float] = time.time
    editing: Node | None = None
    entries: dict[int, Node] = field(default_factory=dict)
    _children: dict[int | None, list[int]] = field(default_factory=dict)
    _chosen: dict[int | None, int] = field(default_factory=dict)
    _seen: int = 0  # the greatest key that came from the store

    @classmethod
    def restored(cls, conversation: Conversation, messages: Iterable[StoredMessage]) -> MessageTree:
        made = cls(conversation.system, conversation.id, conversation.pair)
        made.join(messages)
        made.go_to(made._by_key().get(conversation.leaf or 0))
        return made

    def join(self, messages: Iterable[StoredMessage]) -> tuple[list[Node], list[Node]]:
        """Take in messages of the store; return those that are new here, and the answers that have ended meanwhile."""
        known, new, ended = self._by_key(), dict[int, Node](), list[Node]()
        for stored in messages:
            self._seen = max(self._seen, stored.id)
            entry = known.get(stored.id)
            if entry is not None and entry.finish == ELSEWHERE:
                entry.take(stored)
                ended += [entry] if entry.finish != ELSEWHERE else []
            parent = None if stored.parent is None else known.get(stored.parent)
            if entry is not None or (parent is None and stored.parent is not None):
                continue
            chosen = self._chosen.get(None if parent is None else parent.id)
            known[stored.id] = entry = self.add(stored.role, parent=parent, at=stored.created)
            if stored.parent not in new:  # else it is how a new branch goes on
                self._chosen.pop(entry.parent)
                self._chosen |= {entry.parent: chosen} if chosen is not None else {}
            entry.key, entry.attachments = stored.id, stored.attachments
            entry.take(stored)
            new[stored.id] = entry
        return list(new.values()), ended

    @property
    def unseen_after(self) -> int:
        open_ones = [each.key for each in self.entries.values() if each.finish == ELSEWHERE and each.key is not None]
        return min([self._seen, *(key - 1 for key in open_ones)])

    def _by_key(self) -> dict[int, Node]:
        return {each.key: each for each in self.entries.values() if each.key is not None}

    def add(
        self, role: str, text: str = "", *, parent: Node | None, finish: str | None = SENT, at: float = 0.0
    ) -> Node:
        """Append a message below `parent` (None: at the root) and choose it."""
        above = None if parent is None else parent.id
        entry = Node(len(self.entries) + 1, above, role, text, finish, at or self.now())
        self.entries[entry.id] = entry
        self._children.setdefault(above, []).append(entry.id)
        self._chosen[above] = entry.id
        return entry

    def path(self) -> list[Node]:
        nodes, at = [], self._chosen.get(None)
        while at is not None:
            nodes.append(self.entries[at])
            at = self._chosen.get(at)
        return nodes

    def path_to(self, entry: Node | None) -> list[Node]:
        path = []
        while entry is not None:
            path.append(entry)
            entry = self.parent(entry)
        return path[::-1]

    def paths(self) -> list[Node]:
        return [entry for entry in self.entries.values() if not self._children.get(entry.id)]

    def question(self) -> Node | None:
        return next((entry for entry in reversed(self.path()) if entry.role == USER), None)

    def siblings(self, entry: Node) -> list[Node]:
        return [self.entries[each] for each in self._children[entry.parent]]

    def answers(self, asked: Node) -> list[Node]:
        return [self.entries[each] for each in self._children.get(asked.id, ())]

    def parent(self, entry: Node) -> Node | None:
        return None if entry.parent is None else self.entries[entry.parent]

    def choose(self, entry: Node) -> None:
        """Make `entry` the branch that the path follows; below it the path is as it was left."""
        self._chosen[entry.parent] = entry.id
        self.editing = None

    def go_to(self, entry: Node | None) -> None:
        """Let the path end with `entry`, with None before the first message; nothing is lost."""
        self._chosen.pop(None if entry is None else entry.id, None)
        for each in self.path_to(entry):
            self.choose(each)
        self.editing = None
