"""The names on the four axes, read from the registers. What they stand for is not imported: a prompt is waited for."""

from __future__ import annotations

from localspec.control import LENGTHS
from localspec.methods import registered
from localspec.trees import TREES
from localspec.verify import VERIFIERS


def axis_names(axis: str) -> tuple[str, ...]:
    """Return the names of an axis (method, tree, length, verify), `auto` first where it is one."""
    known = {"method": registered(), "tree": TREES, "length": LENGTHS, "verify": VERIFIERS}[axis]
    return (*(("auto",) if axis != "tree" else ()), *known)
