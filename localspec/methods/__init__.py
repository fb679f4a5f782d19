"""Drafting methods: one file, one Drafter class, one line here.

`METHODS` maps the name people type to "module:Class"; other packages add theirs through the entry-point group
`localspec.methods`. `describe` reads what a class says of itself, without importing llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from localspec.protocols import Backend, Cancel, TreePolicy
from localspec.sampling import Sampler

METHODS: dict[str, str] = {
    "plain": "localspec.methods.plain:Plain",
    "draft-model": "localspec.methods.draft_model:DraftModel",
}


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """What a method says of itself: in a word what it needs, and the paper (arXiv id) it comes from."""

    name: str
    summary: str
    needs: str
    paper: str
    is_lossless: bool
    default_k: int


@dataclass(frozen=True, slots=True)
class Parts:
    """What a session offers a method to build its drafter from.

    `draft` is the draft model's backend (None without one), `sampler` the law of drafts, `n_vocab` the target's
    vocabulary.
    """

    draft: Backend | None
    sampler: Sampler
    policy: TreePolicy
    cancel: Cancel
    n_vocab: int


def registered() -> dict[str, str]:
    """Return all methods, those of installed plug-ins included."""
    found = {entry.name: entry.value for entry in entry_points(group="localspec.methods")}
    return {**found, **METHODS}


def resolve(path: str) -> Any:
    """Import "module:Name" and return what it names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def describe() -> tuple[MethodInfo, ...]:
    """Return the facts of every method, in the order of the register."""
    return tuple(resolve(path).info for path in registered().values())
