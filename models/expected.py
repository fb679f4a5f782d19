"""Whether the target is the file that a conversation was held with."""

from __future__ import annotations

from pathlib import Path

from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.store import target_reference
from localspec.settings.request import LoadSettings


def another_file(settings: LoadSettings) -> str:
    """Return a warning where the target is another file than the one that was expected, else ""."""
    name, mark = settings.expected or ("", "")
    if not mark or name != target_reference(settings) or mark == file_fingerprint(Path(settings.target)):
        return ""
    return f"{Path(settings.target).name} is another file than the one that answered in this conversation"
