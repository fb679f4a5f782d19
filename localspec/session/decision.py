"""What was decided of one request: who drafts (`LoadedPair.decide`), and by which plans."""

from dataclasses import dataclass

from localspec.methods._lookup import LookupDrafter
from localspec.methods.copy import Copy
from localspec.methods.draft_model import DraftModel
from localspec.session.controllers import PairController
from localspec.session.loaded_model import LoadedModel
from localspec.settings.request import Request
from localspec.speculation import registered
from localspec.speculation.resolve import Axes

DRAFT_MODEL = DraftModel.info.name


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
