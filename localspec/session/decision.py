"""Who drafts for a request: one function decides it, in one order.

1. The options are resolved to a legal combination (`speculation.resolve`).
2. It is fitted to what the loaded models can do (`speculation.capabilities`).
3. With `--reproducible` it is fitted to the exact widths (`speculation.reproducible`).
4. A draft made of the target's own layers is loaded, if one drafts (`session.exit_drafts`).
5. The controller is the one that knows the target with that draft (`session.controllers`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from localspec.engine import events
from localspec.engine.protocols import Cancel, Clock
from localspec.errors import LocalspecError
from localspec.methods._lookup import LookupDrafter
from localspec.methods.copy import Copy
from localspec.methods.draft_model import DraftModel
from localspec.models.gguf.kinds import MASKS
from localspec.session.controllers import PairController
from localspec.session.exit_drafts import EarlyExitDraft, LoadedExit
from localspec.session.loaded_model import LoadedModel
from localspec.settings.request import Request
from localspec.speculation import registered
from localspec.speculation.capabilities import Fitted, fit_axes
from localspec.speculation.reproducible import exact, fit_widths, unbranched
from localspec.speculation.resolve import Axes, resolve_axes

if TYPE_CHECKING:
    from localspec.session.remote_target import RemoteTarget

DRAFT_MODEL = DraftModel.info.name


class Pair(Protocol):
    """The part of a loaded pair that a decision reads. `widths` is () where a pass may have any number of rows."""

    @property
    def target(self) -> LoadedModel: ...
    @property
    def draft(self) -> LoadedModel | None: ...
    @property
    def remote(self) -> RemoteTarget | None: ...
    @property
    def early_exit(self) -> EarlyExitDraft: ...
    @property
    def controllers(self) -> PairController: ...
    @property
    def widths(self) -> tuple[int, ...]: ...
    @property
    def cancel(self) -> Cancel: ...
    @property
    def clock(self) -> Clock: ...


@dataclass(frozen=True, slots=True)
class Decision:
    """How one request is decoded. `draft` is the model that drafts: the pair's, or the early exit if `is_derived`."""

    axes: Axes
    warnings: tuple[str, ...]
    draft: LoadedModel | None
    is_derived: bool
    controllers: PairController

    @property
    def own_draft(self) -> LoadedModel | None:
        """Return the draft model that reads the text too, None where none does."""
        if self.draft is None or self.draft.kind != "model":
            return None
        return self.draft if self.is_derived or self.axes.is_automatic or self.axes.method == DRAFT_MODEL else None

    def unused(self, request: Request, target: LoadedModel) -> tuple[str, ...]:
        method, axes = registered("method")[self.axes.method], self.axes
        texts = {
            "prediction": (request.prediction, LookupDrafter, "a text"),
            "corpus": (request.speculation.corpus, Copy, "other files"),
        }
        can_draft = target.backend.capabilities.can_rollback
        return tuple(
            f"the {name} has no effect: --method {axes.method} does not copy from {what}"
            for name, (given, kind, what) in texts.items()
            if given and not (can_draft and (axes.is_automatic or (issubclass(method, kind) and axes.shape.nodes > 0)))
        )


def decide(request: Request, pair: Pair) -> events.EventsThen[Decision]:
    """Return the decision. Raises UsageError or IncompatibleError for a request that cannot be obeyed.

    An early exit that was not named and cannot be loaded is left out, with a warning.
    """
    fitted = _fitted(request, pair)
    if pair.remote is not None:
        pair.remote.require(fitted.axes, request)
    try:
        derived = yield from _early_exit(fitted.axes, pair)
    except LocalspecError as error:
        if not fitted.axes.is_guarded:
            raise
        pair.early_exit.give_up()
        without, derived = _fitted(request, pair), None
        fitted = Fitted(without.axes, (*without.warnings, f"{error.message}; decoding runs without the early exit"))
    if derived is None:
        return Decision(fitted.axes, fitted.warnings, pair.draft, is_derived=False, controllers=pair.controllers)
    controllers = derived.controllers if fitted.axes.is_guarded else pair.controllers
    return Decision(fitted.axes, fitted.warnings, derived.model, is_derived=True, controllers=controllers)


def _fitted(request: Request, pair: Pair) -> Fitted:
    """Resolve the options within what the loaded models can do; a warning for each that had to give way."""
    sampling = request.sampling
    asked, target = request.speculation, pair.target.capabilities()
    if pair.widths:
        asked = exact(asked, sampling)
    elif target.capabilities.max_leaves == 1 and not target.capabilities.is_lane:  # a state follows one path
        asked = unbranched(asked)
    axes = resolve_axes(
        asked,
        has_draft=pair.draft is not None,
        is_seeded=sampling.seed is not None or pair.remote is not None,
        is_greedy=sampling.temperature == 0.0,
        has_exit=pair.early_exit.pays,
        draft_kind=pair.draft.kind if pair.draft is not None else MASKS if pair.target.model.masks else "",
    )
    draft = None if pair.draft is None else pair.draft.capabilities()
    fitted = fit_axes(axes, asked, target, draft)
    return fit_widths(fitted, asked, pair.widths) if pair.widths else fitted


def _early_exit(axes: Axes, pair: Pair) -> events.EventsThen[LoadedExit | None]:
    method = registered("method")[axes.method]
    if not method.info.has_derived_draft:
        return None
    return (yield from pair.early_exit.load(partial(method.layers, axes.options), pair.target, pair.cancel, pair.clock))
