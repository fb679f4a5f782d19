"""Drafting methods: one file, one Drafter class, one line here.

`METHODS` maps the name people type to "module:Class"; other packages add theirs through the entry-point group
`localspec.methods`. `describe` reads what a class says of itself, without importing llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from localspec.settings.method_options import Option, Value

if TYPE_CHECKING:  # the register is read by every command, which need not wait for numpy
    from localspec.engine.protocols import Backend, Cancel, TreePolicy
    from localspec.engine.sampling import Sampler

METHODS: dict[str, str] = {
    "plain": "localspec.methods.plain:Plain",
    "draft-model": "localspec.methods.draft_model:DraftModel",
    "copy": "localspec.methods.copy:Copy",
    "suffix": "localspec.methods.suffix:Suffix",
    "prompt-lookup": "localspec.methods.prompt_lookup:PromptLookup",
    "ngram-cache": "localspec.methods.ngram_cache:NgramCache",
    "lookahead": "localspec.methods.lookahead:Lookahead",
    "early-exit": "localspec.methods.early_exit:EarlyExit",
}


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """What a method says of itself: what it needs, the paper (arXiv id) it comes from, its options.

    `has_own_shape`: its drafts are not grown by a tree policy, so --tree does not apply; its class then has
    `shape(k, options) -> Shape`, and `unbranched` is what to type for a shape without branches. `has_derived_draft`:
    it drafts with some of the target's own layers, which its class's `layers(options, n_layers, tuned)` names; the
    session makes a model of them and passes it as `DrafterContext.draft`.
    """

    name: str
    summary: str
    needs: str
    paper: str
    is_lossless: bool
    default_k: int
    options: tuple[Option, ...] = ()
    has_own_shape: bool = False
    unbranched: str = "another --method"
    has_derived_draft: bool = False


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """What a session offers a method to build its drafter from.

    `draft` is the draft model's backend (None without one), `sampler` the distribution of drafts, `n_vocab` the
    target's vocabulary, `is_eog` which of its tokens end a text, `options` the method's own.
    """

    draft: Backend | None
    sampler: Sampler
    policy: TreePolicy
    cancel: Cancel
    n_vocab: int
    options: Mapping[str, Value] = field(default_factory=dict)
    is_eog: Callable[[int], bool] = lambda token: False


def registered() -> dict[str, str]:
    """Return all methods, those of installed plug-ins included."""
    from importlib.metadata import entry_points  # late: most commands name no method

    found = {entry.name: entry.value for entry in entry_points(group="localspec.methods")}
    return {**found, **METHODS}


def resolve(path: str) -> Any:
    """Import "module:Name" and return what it names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def describe() -> tuple[MethodInfo, ...]:
    """Return the facts of every method, in the order of the register."""
    return tuple(resolve(path).info for path in registered().values())
