"""Several answers of one pair at once: each has a `LoadedPair` of its own, on the same weights.

The target's lanes share a context where llama.cpp can (`backends/lanes.py`). A draft model has a context for each
answer: they draft in turn, and their drafts are judged in one pass. What passes cost, what was learned of drafts and
the states of earlier texts are of the pair, and shared.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from localspec.backends.head_backend import HeadBackend, HeadModel
from localspec.backends.lanes import Lane, SharedContext, SharedLane
from localspec.backends.limits import available_memory
from localspec.backends.marginals import MarginalBackend
from localspec.backends.model import Model
from localspec.backends.options import LoadOptions
from localspec.backends.passes import Passes
from localspec.backends.saved_state import SavingBackend
from localspec.engine import events
from localspec.engine.protocols import Cancel
from localspec.errors import ResourceError
from localspec.prompt.grammar import Grammars
from localspec.session.exit_drafts import EarlyExitDraft
from localspec.session.last_drafter import LastDrafter
from localspec.session.loaded_model import LoadedModel
from localspec.session.loaded_pair import LoadedPair

Tell = Callable[[events.Event], None]
Open = Callable[[Model, LoadOptions, Cancel, Callable[[int], None]], SavingBackend]


def opening(passes: Passes, n: int, *, is_shared: bool) -> Open:
    def opened(model: Model, options: LoadOptions, cancel: Cancel, tell: Callable[[int], None]) -> SavingBackend:
        if not is_shared or model.is_stateful or options.reproducible or options.n_masks:
            return Lane(passes, model, options, cancel, tell)
        lanes = n
        while lanes > 1:
            with suppress(ResourceError):
                return SharedLane(passes, SharedContext(model, options, lanes), model, cancel, tell)
            lanes //= 2
        return SavingBackend(model, options, cancel, tell)

    return opened


def side_by_side(
    pair: LoadedPair, passes: Passes, others: Sequence[tuple[Cancel, Tell]]
) -> events.EventsThen[LoadedPair]:
    """Return the pair with what makes as many `others` beside it as memory holds; passes are measured before."""
    if isinstance(pair.target.backend, Lane):
        if pair.controllers.must_measure():
            draft = None if pair.draft is None else pair.draft.backend
            yield from pair.controllers.measure(pair.target.backend, draft, pair.cancel)
        pair = replace(pair, passes=passes)
        made = [
            partial(_beside, pair, cancel, _opened(pair, passes, cancel, tell))
            for cancel, tell in others[: _room(pair)]
        ]
        pair = replace(pair, beside=tuple(made))
    if len(pair.beside) < len(others):
        n = 1 + len(pair.beside)
        yield events.Warned(
            "pair", f"memory holds {n} of {1 + len(others)} answers at once: others wait for their turn"
        )
    return pair


def _room(pair: LoadedPair) -> int:
    target, free = pair.target.backend, available_memory()
    most = target.shared.options.lanes - 1 if isinstance(target, SharedLane) else sys.maxsize
    apart = [model.backend for model in (pair.target, pair.draft) if model is not None]
    needed = sum(each.kv_bytes for each in apart if not isinstance(each, SharedLane))
    return most if free is None or not needed else min(most, free // needed)


def _opened(pair: LoadedPair, passes: Passes, cancel: Cancel, tell: Tell) -> Callable[[], Lane]:
    """Return what gives a lane for another answer: one that is there, or the opening of a context when it is needed.

    A sequence of a shared context is no matter of memory. It is made while nothing else moves that context.
    """
    first = pair.target.backend
    assert isinstance(first, Lane)

    def reading(n: int) -> None:
        tell(events.Reading(n))

    if isinstance(first, SharedLane):
        lane = SharedLane(passes, first.shared, pair.target.model, cancel, reading)
        return lambda: lane
    options = replace(first.options, threads=first.threads)
    return lambda: Lane(passes, pair.target.model, options, cancel, reading)


def _beside(pair: LoadedPair, cancel: Cancel, opened: Callable[[], Lane]) -> LoadedPair:
    """Return a pair for another answer. Raises ResourceError."""
    first, draft = pair.target.backend, pair.draft
    assert isinstance(first, Lane)
    lane = opened()
    lane.join(first.lanes)
    return replace(
        pair,
        target=replace(pair.target, backend=lane),
        draft=None if draft is None else _drafting(draft, lane, lane.passes, cancel),
        early_exit=EarlyExitDraft(pair.settings),
        controllers=pair.controllers.beside(),
        cancel=cancel,
        last_drafter=LastDrafter(),
        grammars=Grammars(),
        branching=[],
    )


def _drafting(draft: LoadedModel, target: Lane, passes: Passes, cancel: Cancel) -> LoadedModel:
    before = draft.backend
    if isinstance(before, HeadBackend | MarginalBackend):
        assert isinstance(draft.model, HeadModel)
        return replace(draft, backend=type(before)(draft.model, target, before.options))
    lane = Lane(passes, draft.model, replace(before.options, threads=before.threads), cancel)
    if isinstance(before, Lane):
        lane.join(before.lanes)
    return replace(draft, backend=lane)
