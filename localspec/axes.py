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
from localspec.methods import MethodInfo, registered, resolve
from localspec.options import Value, read_options
from localspec.protocols import Controller, Shape, TreePolicy
from localspec.trees import TREES
from localspec.trees.argument import MAX_LEAVES as MAX_LEAVES
from localspec.verify import VERIFIERS

DRAWN = frozenset({Draw.IID, Draw.WITHOUT_REPLACEMENT})


@dataclass(frozen=True, slots=True)
class Axes:
    """A legal combination. `policy` grows trees of at most `shape`, whose nodes are drawn as `draw`.

    `is_guarded`: nobody asked for this method by name, so it may be parked when it does not pay. A seed with a rule
    that draws in order of need is not guarded: there the text would depend on the machine's timing.
    """

    method: str
    tree: str
    length: str
    verify: str
    policy: TreePolicy
    shape: Shape
    draw: Draw
    options: Mapping[str, Value]
    is_guarded: bool

    def controller(self, shape: Shape) -> Controller:
        """Build the length rule for drafts of at most `shape`."""
        name, _, argument = self.length.partition(":")
        controller: Controller = resolve(LENGTHS[name]).build(argument, self.method, shape, self.draw)
        return controller


def resolve_axes(speculation: Speculation, *, has_draft: bool, is_seeded: bool) -> Axes:
    """Return the axes with every `auto` decided; raise UsageError for names that do not exist or do not fit."""
    method = _method(speculation.method, has_draft=has_draft)
    info = resolve(registered()[method]).info
    options = read_options(info.options, speculation.options, of=f"--method {method}")
    policy, shape = _shaped(speculation, method, info, options)
    is_chain = shape.leaves <= 1
    _name("--length", speculation.length.partition(":")[0], LENGTHS)
    is_drawn = is_chain or not (info.has_own_shape or policy.draws.isdisjoint(DRAWN))
    verify = _verify(speculation, is_chain=is_chain, is_drawn=is_drawn, is_seeded=is_seeded)
    axes = Axes(
        method=method,
        tree=speculation.tree,
        length=speculation.length,
        verify=verify,
        policy=policy,
        shape=shape,
        draw=_draw(verify, policy, is_chain=is_chain),
        options=options,
        is_guarded=speculation.method == "auto" and (verify == "coupled" or not is_seeded),
    )
    axes.controller(shape)  # reads the rule's argument: a wrong one is told before anything loads
    return axes


def _shaped(
    asked: Speculation, method: str, info: MethodInfo, options: Mapping[str, Value]
) -> tuple[TreePolicy, Shape]:
    """Return the policy and the largest tree; refuse sizes and shapes that would have no effect."""
    k = info.default_k if asked.k is None else asked.k
    policy = _tree(asked.tree)
    if method == "plain":
        if asked.k:
            raise UsageError(
                f"-k {asked.k} needs something that drafts, and there is nothing",
                hint=f"--method draft-model -k {asked.k}",
            )
        k = 0
    if k == 0:
        if asked.tree != "chain":
            raise UsageError(f"--tree {asked.tree} needs drafts, and there are none", hint="--tree chain")
        return policy, Shape(0, 0, 1)
    if info.has_own_shape:
        if asked.tree != "chain":
            raise UsageError(f"--method {method} has a shape of its own, and no --tree", hint="leave out --tree")
        shape: Shape = resolve(registered()[method]).shape(k, options)
    else:
        if asked.k is not None and policy.shape(1) == policy.shape(2):
            raise UsageError(f"--tree {asked.tree} has a size of its own, and no -k", hint=f"--tree chain -k {asked.k}")
        shape = policy.shape(k)
    if shape.leaves > MAX_LEAVES:
        raise UsageError(
            f"--tree {asked.tree} has {shape.leaves} leaves, and at most {MAX_LEAVES} fit", hint="--tree static:4,2,2"
        )
    return policy, shape


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


def _tree(spelling: str) -> TreePolicy:
    """Build the policy that "name" or "name:argument" stands for."""
    name, _, argument = spelling.partition(":")
    policy: TreePolicy = resolve(TREES[_name("--tree", name, TREES)]).parse(argument)
    return policy


def _verify(asked: Speculation, *, is_chain: bool, is_drawn: bool, is_seeded: bool) -> str:
    """Decide `auto`: joint rejection of what can be drawn; coupled where it cannot, or a seed promises the text."""
    if asked.verify == "auto":
        if is_seeded or not is_drawn:
            return "coupled"
        return "block" if is_chain else "traversal"
    verify = _name("--verify", asked.verify, VERIFIERS)
    rule = resolve(VERIFIERS[verify])
    if not is_chain and not rule.trees:
        raise UsageError(f"--verify {verify} judges chains, not trees", hint="--verify tree")
    if not rule.is_lossless and not asked.approximate:
        raise UsageError(
            f"--verify {verify} changes the distribution of the output", hint=f"--approximate --verify {verify}"
        )
    return verify


def _draw(verify: str, policy: TreePolicy, *, is_chain: bool) -> Draw:
    """Return how drafts are best drawn for a rule: the way that loses no acceptance, of those right for the policy."""
    rule: Any = resolve(VERIFIERS[verify])
    if Draw.COUPLED in rule.accepts:
        return Draw.COUPLED if verify == "coupled" else Draw.FIXED
    drawn = (Draw.IID, Draw.WITHOUT_REPLACEMENT) if is_chain else (Draw.WITHOUT_REPLACEMENT, Draw.IID)
    return next((way for way in drawn if way in rule.accepts and way in policy.draws), Draw.FIXED)
