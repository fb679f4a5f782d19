"""Small files of JSON that localspec keeps for itself: read as a typed value, replaced in one step.

A file that is damaged, or of another shape than is asked for, counts as none.
"""

import json
from pathlib import Path
from typing import TypeVar

from localspec.settings.folders import replacing

T = TypeVar("T")


def read_stored(file: Path, kind: type[T]) -> T | None:
    """Return what `file` holds as a value of `kind`, a dataclass for example; None where it holds none."""
    import msgspec  # late: a command that reads nothing begins sooner

    try:
        return msgspec.convert(json.loads(file.read_bytes()), kind)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None


def write_stored(file: Path, value: object) -> None:
    """Replace `file` by `value` as JSON, for its owner alone; its folder is made. Raises OSError."""
    import msgspec

    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replacing(file) as out:
        out.write(json.dumps(msgspec.to_builtins(value), indent=1).encode() + b"\n")
