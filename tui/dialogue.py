"""A conversation as a tree: every edit and every second answer is a branch, and nothing that was said is lost.

Invariant: `path` alternates user and assistant and follows, at each fork, the branch that was chosen last.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from localspec.config import Message

USER, ASSISTANT = "user", "assistant"


@dataclass(slots=True)
class Entry:
    """One message. `status`: streaming, done, interrupted or failed; `key` is its name where it is kept."""

    id: int
    parent: int | None
    role: str
    text: str = ""
    status: str = "done"
    at: float = 0.0  # seconds since the epoch
    key: int | None = None


@dataclass(slots=True)
class Dialogue:
    """Messages under an optional system message; `first` is the number of messages of the path no longer sent."""

    system: str | None = None
    first: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
    _children: dict[int | None, list[int]] = field(default_factory=dict)
    _chosen: dict[int | None, int] = field(default_factory=dict)

    def add(self, role: str, text: str = "", *, parent: Entry | None, status: str = "done", at: float = 0.0) -> Entry:
        """Append a message below `parent` (None: at the root) and choose it."""
        above = None if parent is None else parent.id
        entry = Entry(len(self.entries) + 1, above, role, text, status, at or time.time())
        self.entries[entry.id] = entry
        self._children.setdefault(above, []).append(entry.id)
        self._chosen[above] = entry.id
        return entry

    def path(self) -> list[Entry]:
        """Return the messages from the root along the chosen branches."""
        found, at = [], self._chosen.get(None)
        while at is not None:
            found.append(self.entries[at])
            at = self._chosen.get(at)
        return found

    def siblings(self, entry: Entry) -> list[Entry]:
        """Return the branches that `entry` is one of, oldest first."""
        return [self.entries[each] for each in self._children[entry.parent]]

    def parent(self, entry: Entry) -> Entry | None:
        """Return what `entry` follows."""
        return None if entry.parent is None else self.entries[entry.parent]

    def choose(self, entry: Entry) -> None:
        """Make `entry` the branch that the path follows."""
        self._chosen[entry.parent] = entry.id

    def messages(self, last: Entry) -> tuple[Message, ...]:
        """Return what to send so that the message `last` of a user is answered.

        Messages that got no answer are left out with theirs, and so are the oldest ones that no longer fit.
        """
        above: list[Entry] = []
        at = self.parent(last)
        while at is not None:
            above.insert(0, at)
            at = self.parent(at)
        sent = [] if not self.system else [Message("system", self.system)]
        for asked, answered in zip(above[::2], above[1::2], strict=False):
            if answered.text and above.index(asked) >= self.first:
                sent += [Message(USER, asked.text), Message(ASSISTANT, answered.text)]
        return (*sent, Message(USER, last.text))

    def forget_oldest(self, last: Entry) -> bool:
        """Send one message and its answer less from now on; False if only `last` is left."""
        if len(self.messages(last)) <= 1 + bool(self.system):
            return False
        self.first += 2
        return True
