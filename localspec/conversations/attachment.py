"""Text that is sent with a message: a file or standard input, between fences that mark it as data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attached text; `name` is that of its file, "" for standard input."""

    name: str
    text: str


def fenced(attachment: Attachment) -> str:
    """Return the text between fences that it cannot close itself."""
    longest = max((len(fence) for fence in _FENCE.findall(attachment.text)), default=2)
    fence = "`" * max(3, longest + 1)
    end = "" if attachment.text.endswith("\n") else "\n"
    path = Path(attachment.name)
    is_outside = path.is_absolute() or ".." in path.parts  # where a folder is nobody's business
    return f"{fence}{path.name if is_outside or not attachment.name else path}\n{attachment.text}{end}{fence}"


def with_attachments(words: str, attachments: Sequence[Attachment]) -> str:
    """Return what is sent: each attachment fenced, a blank line, the words."""
    blocks = [fenced(attachment) for attachment in attachments]
    return "\n\n".join([*blocks, words] if words or not blocks else blocks)
