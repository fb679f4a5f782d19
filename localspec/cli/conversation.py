"""A conversation: what was said, what of it is sent, and how it is kept in a file.

Invariant: what is sent alternates user and assistant after the system message and ends with the user.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.config import Message
from localspec.errors import IntegrityError, NotFoundError, ResourceError, UsageError

SCHEMA = "localspec.chat/1"
MAX_FILE = 64 << 20  # bytes; a longer conversation fits no context


@dataclass(slots=True)
class Turn:
    """One message and its answer, None until there is one."""

    user: str
    assistant: str | None = None


@dataclass(slots=True)
class Conversation:
    """Turns under an optional system message; `first` is the oldest turn that is still sent."""

    system: str | None = None
    turns: list[Turn] = field(default_factory=list)
    first: int = 0

    def messages(self) -> tuple[Message, ...]:
        """Return what to send so that the last turn is answered; earlier turns that got no answer are left out."""
        sent = [] if self.system is None else [Message("system", self.system)]
        for turn in self.turns[self.first : -1]:
            if turn.assistant is not None:
                sent += [Message("user", turn.user), Message("assistant", turn.assistant)]
        return (*sent, Message("user", self.turns[-1].user))

    def forget_oldest(self) -> bool:
        """Send one turn less from now on; False if only the last is left."""
        if self.first >= len(self.turns) - 1:
            return False
        self.first += 1
        return True

    def clear(self) -> None:
        """Start anew under the same system message."""
        self.turns.clear()
        self.first = 0

    def undo(self) -> Turn | None:
        """Remove and return the last turn, None without one."""
        if not self.turns:
            return None
        turn = self.turns.pop()
        self.first = min(self.first, max(0, len(self.turns) - 1))
        return turn

    def save(self, path: Path, pair: str) -> None:
        """Write the conversation to `path` in one step; refuses to replace a file that is not one of ours."""
        if path.exists() and not _is_ours(path):
            raise UsageError(f"{path} exists and is not a localspec chat", hint="/save with another name")
        turns = [{"user": turn.user, "assistant": turn.assistant} for turn in self.turns]
        text = json.dumps({"schema": SCHEMA, "pair": pair, "system": self.system, "turns": turns}, indent=1)
        try:
            with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as file:
                file.write(text + "\n")
            os.replace(file.name, path)
        except OSError as error:
            if "file" in locals():
                Path(file.name).unlink(missing_ok=True)
            raise ResourceError(f"cannot write {path}: {error.strerror}", hint="/save with another name") from None

    @classmethod
    def load(cls, path: Path) -> Conversation:
        """Read what `save` wrote. Raises NotFoundError or IntegrityError and changes nothing."""
        made = _read(path)
        try:
            turns = [Turn(_text(turn["user"]), _text_or_none(turn["assistant"])) for turn in made["turns"]]
            return cls(_text_or_none(made["system"]), turns)
        except (KeyError, TypeError):
            raise IntegrityError(f"{path} is a damaged localspec chat", hint="/load another file") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_FILE or not path.is_file():
            raise ValueError
        made = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}", hint="/load FILE that /save wrote") from None
    except (ValueError, RecursionError):
        made = None
    if not isinstance(made, dict) or made.get("schema") != SCHEMA:
        raise IntegrityError(f"{path} is not a localspec chat", hint="/load FILE that /save wrote")
    return made


def _is_ours(path: Path) -> bool:
    try:
        return bool(_read(path))
    except (NotFoundError, IntegrityError):
        return False


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)
