"""The four axes of speculation, from the names people type to one consistent choice.

method, tree, length and verifier are independent, but not every combination is exact or possible; an illegal one is
refused with a legal one named. Nothing here imports llama.cpp, so that the command line can refuse before it loads.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.config import Speculation
from localspec.control import LENGTHS
from localspec.draft import Draw
from localspec.errors import UsageError
from localspec.methods import registered, resolve
from localspec.trees import TREES
from localspec.verify import VERIFIERS

MAX_LEAVES = 32  # sequences that a tree may use; each costs the cache of sliding-window models memory


@dataclass(frozen=True, slots=True)
class Axes:
    """A legal combination: at most `nodes` draft tokens in `depth` levels, drawn as `draw`."""

    method: str
    tree: str
    widths: tuple[int, ...]
    length: str
    verify: str
    nodes: int
    depth: int
    draw: Draw


def resolve_axes(speculation: Speculation, *, has_draft: bool, is_seeded: bool) -> Axes:
    """Return the axes with every `auto` decided; raise UsageError for names that do not exist or do not fit."""
    method = _method(speculation.method, has_draft=has_draft)
    tree, widths = _tree(speculation.tree)
    length = _name("--length", speculation.length, LENGTHS)
    default_k = resolve(registered()[method]).info.default_k
    if method == "plain":
        if tree != "chain":
            raise UsageError("--method plain drafts nothing, so it has no --tree", hint="--method draft-model")
        widths, depth = (), 0
    else:
        depth = len(widths) or (default_k if speculation.k is None else speculation.k)
    nodes = _n_nodes(widths) if widths else depth
    if widths and speculation.k is not None:
        nodes = min(nodes, speculation.k)
    verify = _verify(speculation.verify, is_chain=tree == "chain", is_seeded=is_seeded)
    return Axes(method, tree, widths, length, verify, nodes, depth if nodes else 0, _draw(verify, tree))


def _name(option: str, name: str, known: Mapping[str, str]) -> str:
    """Return `name` if it is known; else raise UsageError with the nearest one."""
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=1)
    raise UsageError(
        f"{option} {name!r} does not exist; there are {', '.join(known)}",
        hint=f"{option} {near[0] if near else next(iter(known))}",
    )


def _method(name: str, *, has_draft: bool) -> str:
    """Decide `auto` and refuse a method whose model is missing."""
    if name == "auto":
        return "draft-model" if has_draft else "plain"
    method = _name("--method", name, registered())
    if resolve(registered()[method]).info.needs == "a draft model" and not has_draft:
        raise UsageError(f"--method {method} needs a draft model, and the pair has none", hint="--draft FILE.gguf")
    return method


def _tree(spelling: str) -> tuple[str, tuple[int, ...]]:
    """Split "static:3,2,1" into name and widths, checked."""
    name, _, argument = spelling.partition(":")
    tree = _name("--tree", name, TREES)
    if tree == "chain":
        if argument:
            raise UsageError(f"--tree chain takes no widths, not {argument!r}", hint="--tree chain -k 4")
        return tree, ()
    try:
        widths = tuple(int(width) for width in argument.split(","))
    except ValueError:
        widths = (0,)
    if min(widths) < 1:
        raise UsageError(
            f"--tree {spelling!r} is not a list of children per level, one or more each", hint="--tree static:3,2,1"
        )
    if math.prod(widths) > MAX_LEAVES:
        raise UsageError(
            f"--tree {spelling} has {math.prod(widths)} leaves, and at most {MAX_LEAVES} fit",
            hint="--tree static:4,2,2",
        )
    return tree, widths


def _verify(name: str, *, is_chain: bool, is_seeded: bool) -> str:
    """Decide `auto`: block rejection on drawn chains; coupled where a seed promises the text, and on trees."""
    if name == "auto":
        return "block" if is_chain and not is_seeded else "coupled"
    verify = _name("--verify", name, VERIFIERS)
    if not is_chain and not resolve(VERIFIERS[verify]).trees:
        raise UsageError(f"--verify {verify} judges chains, not trees", hint="--verify tree")
    return verify


def _draw(verify: str, tree: str) -> Draw:
    """Return how drafts are best drawn for a rule: the way that loses no acceptance."""
    rule: Any = resolve(VERIFIERS[verify])
    if Draw.COUPLED in rule.accepts:
        return Draw.COUPLED if verify == "coupled" else Draw.FIXED
    return Draw.IID if tree == "chain" else Draw.WITHOUT_REPLACEMENT


def _n_nodes(widths: tuple[int, ...]) -> int:
    """Return the number of nodes below the root of the full tree."""
    return sum(math.prod(widths[: level + 1]) for level in range(len(widths)))
