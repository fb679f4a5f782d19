"""The models that a plan places: a target, and a draft model, a head or the target's own block for further tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.models.gguf.draft_kinds import EAGLE1, EAGLE3, MTP
from localspec.models.gguf.header import Header
from localspec.models.gguf.info import ModelInfo
from localspec.models.gguf.layer_sizes import Anatomy, anatomy
from localspec.models.overlap import Overlap
from localspec.models.plan.memory_use import assumed
from localspec.tuning import DEFAULT_CTX

TRAINED = "counted when the head was trained"
# Of the acceptance that is assumed of a draft, what one of another vocabulary has: 0.27 to 0.57 were measured of drafts
# of other families at T=0, where those of the target's own had 0.53 to 0.87 [docs/benchmarks.md].
OTHER_FAMILY = 0.5
TRIED = "measured on sample texts when the pair was first loaded"


@dataclass(frozen=True, slots=True)
class Guessing:
    """How a draft guesses.

    `accepted[k - 1]` is the probability that the first k guesses all stand, () where it was not measured as `how` says.
    `at_once`: one pass gives all guesses. `borrowed` bytes are read of the target's for a pass, where the target's head
    is. `is_own`: the draft is a block of the target, and is where the target's head is. `share` of the acceptance that
    is assumed is expected: of a draft with another vocabulary (`is_foreign`) the share of the target's tokens that it
    can draft, times OTHER_FAMILY. It takes `spelled` tokens of its own for one guess.
    """

    accepted: tuple[float, ...] = ()
    at_once: bool = False
    borrowed: int = 0
    is_own: bool = False
    share: float = 1.0
    is_foreign: bool = False
    how: str = ""
    spelled: float = 1.0

    @property
    def is_assumed(self) -> bool:
        return not self.accepted or self.how.startswith("assumed")

    def chances(self, acceptance: float) -> tuple[float, ...]:
        return self.accepted or assumed(acceptance * self.share)


@dataclass(frozen=True, slots=True)
class Models:
    """The pair to be placed, and what contexts the models were trained for."""

    target: Anatomy
    draft: Anatomy | None = None
    n_ctx_train: int = DEFAULT_CTX
    draft_n_ctx_train: int = DEFAULT_CTX
    guessing: Guessing = Guessing()


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One model of a pair. `info` is None where only the catalogue knows of it."""

    anatomy: Anatomy
    n_ctx_train: int
    info: ModelInfo | None = None

    @property
    def seen(self) -> ModelInfo:
        assert self.info is not None, "its header was read"
        return self.info

    @staticmethod
    def of(header: Header, info: ModelInfo) -> ModelPart:
        parts = anatomy(header)
        return ModelPart(parts if info.head is None else replace(parts, n_next=0), info.n_ctx_train, info)


def placed(
    target: ModelPart,
    draft: ModelPart | None = None,
    *,
    shared: Overlap | None = None,
    accepted: float | None = None,
    how: str = TRIED,
) -> Models:
    """Return a pair for planning. A draft that is the target's own file stands for the target's own block. `shared` is
    what a draft model of another vocabulary has of the target's, None for one of the same. Its tokens are `accepted`
    with this probability, as `how` says; None: nobody knows."""
    if draft is None:
        return Models(target.anatomy, n_ctx_train=target.n_ctx_train)
    if target.info is not None and draft.info is not None and draft.info.path == target.info.path:
        return with_own_block(target)
    head = None if draft.info is None else draft.info.head
    tried, how = ((), "") if accepted is None else (assumed(accepted), how)
    guessing = Guessing(tried, how=how)
    if shared is not None:
        guessing = replace(guessing, share=OTHER_FAMILY * shared.use, is_foreign=True, spelled=max(1.0, shared.spelled))
    if head is not None:
        borrowed = target.anatomy.output if head.borrows_output else 0
        guessing = Guessing(head.accepted, head.kind not in (EAGLE1, EAGLE3, MTP), borrowed, how=TRAINED)
    return Models(target.anatomy, draft.anatomy, target.n_ctx_train, draft.n_ctx_train, guessing)


def with_own_block(target: ModelPart) -> Models:
    """Return a target whose own block for further tokens drafts. Only its cache is counted: the weights are there."""
    parts = target.anatomy
    block = parts.layers[-1]  # llama.cpp runs the first of several for every step; they are alike
    own = replace(
        parts, layers=(replace(block, dense=0, experts=0, state=0),), embedding=0, output=0, is_tied=False, n_next=0
    )
    borrowed = block.dense + int(block.experts * parts.used_share) + parts.output
    return Models(parts, own, target.n_ctx_train, target.n_ctx_train, Guessing(borrowed=borrowed, is_own=True))
