"""Drafting methods: one file each, with a Drafter class whose `info` says its name and what it needs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from localspec.engine.corpus import Corpus
from localspec.engine.protocols import Backend, Cancel, TreePolicy
from localspec.engine.sampling import Sampler
from localspec.engine.translation import Translation
from localspec.settings.declaration import Option, Value


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """What a method says of itself: what it needs, the paper (arXiv id) it comes from, its options.

    `has_own_shape`: its drafts are not grown by a tree policy, so --tree does not apply; its class then has
    `shape(k, options) -> Shape`, and `unbranched` is what to type for a shape without branches. `has_derived_draft`:
    it drafts with some of the target's own layers, which its class's `layers(options, n_layers, tuned)` names; the
    session makes a model of them and passes it as `DrafterContext.draft`. `draft_kind` is the kind of file that drafts:
    "model", that of a head such as "eagle3", or "" for none. `has_scratch`: a pass holds scratch nodes beside the tree,
    whose rows guess for the next pass; its class then has `pass_shape(shape) -> Shape`, and `auto` never chooses it.
    `reads_rows`: it learns from the target's own rows, so the target has to be on this machine.
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
    draft_kind: str = ""
    has_scratch: bool = False
    reads_rows: bool = False


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """What a session offers a method to build its drafter from.

    `draft` is the draft model's backend (None without one), `sampler` the distribution of drafts, `n_vocab` the
    target's vocabulary, `is_eog` which of its tokens end a text, `options` the method's own. `translation` is that of a
    draft model with other tokens than the target's, which drafts the tokens of text that it writes if `writes_text`.
    `masks` are the target's mask tokens. `prediction` is what the answer may turn out to be, in the target's tokens: a
    text to copy from, before all others. `corpus` are texts of other files to copy from.
    """

    draft: Backend | None
    sampler: Sampler
    policy: TreePolicy
    cancel: Cancel
    n_vocab: int
    options: Mapping[str, Value] = field(default_factory=dict)
    is_eog: Callable[[int], bool] = lambda token: False
    translation: Translation | None = None
    writes_text: bool = False
    masks: tuple[int, ...] = ()
    prediction: tuple[int, ...] = ()
    corpus: Corpus | None = None
