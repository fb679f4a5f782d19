"""The four axes of speculation, their legal combinations, and what the loaded models allow.

`axis_names` reads the names from the registers. It imports none of the classes, because commands wait for it.
"""

from __future__ import annotations

from localspec.control import LENGTHS
from localspec.methods import registered
from localspec.trees import TREES
from localspec.verify import VERIFIERS


def axis_names(axis: str) -> tuple[str, ...]:
    """Return the names of an axis (method, tree, length, verify), `auto` first where it is one."""
    known = {"method": registered(), "tree": TREES, "length": LENGTHS, "verify": VERIFIERS}[axis]
    return (*(("auto",) if axis != "tree" else ()), *known)
