"""The four axes of speculation, from the names people type to one consistent choice.

method, tree, length and verifier are independent, but not every combination is exact or possible; an illegal one is
refused with a legal one named. Nothing here imports llama.cpp, so that the command line can refuse before it loads.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.config import Speculation
from localspec.control import LENGTHS
from localspec.draft import Draw
from localspec.errors import UsageError
from localspec.methods import registered, resolve
from localspec.protocols import Shape, TreePolicy
from localspec.trees import TREES
from localspec.verify import VERIFIERS

MAX_LEAVES = 32  # sequences that a tree may use; each costs the cache of sliding-window models memory


@dataclass(frozen=True, slots=True)
class Axes:
    """A legal combination. `policy` grows trees of at most `shape`, whose nodes are drawn as `draw`.

    `is_guarded`: nobody asked for this method by name, so it may be parked when it does not pay.
    """

    method: str
    tree: str
    length: str
    verify: str
    policy: TreePolicy
    shape: Shape
    draw: Draw
    is_guarded: bool


def resolve_axes(speculation: Speculation, *, has_draft: bool, is_seeded: bool) -> Axes:
    """Return the axes with every `auto` decided; raise UsageError for names that do not exist or do not fit."""
    method = _method(speculation.method, has_draft=has_draft)
    length = _name("--length", speculation.length, LENGTHS)
    info = resolve(registered()[method]).info
    k = 0 if method == "plain" else info.default_k if speculation.k is None else speculation.k
    policy, shape = _tree(speculation.tree, k)
    is_chain = shape.leaves == 1
    if k == 0:
        if not is_chain:
            raise UsageError(
                f"--tree {speculation.tree} needs drafts, and there are none", hint="--method draft-model -k 4"
            )
        shape = Shape(0, 0, 1)
    verify = _verify(speculation.verify, is_chain=is_chain, is_seeded=is_seeded)
    return Axes(
        method,
        speculation.tree,
        length,
        verify,
        policy,
        shape,
        _draw(verify, is_chain=is_chain),
        speculation.method == "auto",
    )


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


def _tree(spelling: str, k: int) -> tuple[TreePolicy, Shape]:
    """Build the policy that "name" or "name:argument" stands for, with the largest tree it grows."""
    name, _, argument = spelling.partition(":")
    policy: TreePolicy = resolve(TREES[_name("--tree", name, TREES)]).parse(argument)
    shape = policy.shape(k)
    if shape.leaves > MAX_LEAVES:
        raise UsageError(
            f"--tree {spelling} has {shape.leaves} leaves, and at most {MAX_LEAVES} fit", hint="--tree static:4,2,2"
        )
    return policy, shape


def _verify(name: str, *, is_chain: bool, is_seeded: bool) -> str:
    """Decide `auto`: block rejection on drawn chains; coupled where a seed promises the text, and on trees."""
    if name == "auto":
        return "block" if is_chain and not is_seeded else "coupled"
    verify = _name("--verify", name, VERIFIERS)
    if not is_chain and not resolve(VERIFIERS[verify]).trees:
        raise UsageError(f"--verify {verify} judges chains, not trees", hint="--verify tree")
    return verify


def _draw(verify: str, *, is_chain: bool) -> Draw:
    """Return how drafts are best drawn for a rule: the way that loses no acceptance."""
    rule: Any = resolve(VERIFIERS[verify])
    if Draw.COUPLED in rule.accepts:
        return Draw.COUPLED if verify == "coupled" else Draw.FIXED
    return Draw.IID if is_chain else Draw.WITHOUT_REPLACEMENT
