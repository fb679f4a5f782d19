"""Which draft is predicted to be the fastest: a draft model, a head, the target's own block, or none."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from localspec.control.chain import Worth
from localspec.errors import ResourceError
from localspec.models.plan.layout_search import PlacementPlan, PlacementRequest, alternatives, best_and_plain
from localspec.models.plan.machine import Machine
from localspec.models.plan.models import Models


@dataclass(frozen=True, slots=True)
class PlannedDraft:
    name: str
    models: Models
    plan: PlacementPlan


def compare(
    machine: Machine, drafts: Mapping[str, Models], request: PlacementRequest, worths: Mapping[str, Worth] | None = None
) -> list[PlannedDraft]:
    """Return plans for the same target with each of `drafts` (at least one; "" is none), the fastest first.

    Of the fastest draft there is one for each place, of the others the best one. All have the context of the first that
    fits. Where `worths` has what a draft was measured to be worth here, that counts instead of the prediction. Raises
    ResourceError, with how much is missing, if the target does not fit.
    """
    plans: dict[str, PlacementPlan] = {}
    scales: dict[str, float] = {}  # seconds as measured over those predicted
    refused: ResourceError | None = None
    for name, models in drafts.items():
        try:
            asked = replace(request, needs_draft=models.draft is not None)
            plans[name], plain = best_and_plain(machine, models, asked)
            if worths and name in worths:
                scales[name] = plain.seconds / worths[name].gain / plans[name].seconds
        except ResourceError as error:
            refused = error
    if refused is not None and not plans:
        raise refused
    first = min(plans, key=lambda name: (-plans[name].context.n_ctx, plans[name].seconds * scales.get(name, 1.0)))
    n_ctx = plans[first].context.n_ctx
    rows = [PlannedDraft(first, drafts[first], plan) for plan in alternatives(machine, drafts[first], request)]
    rows += [
        PlannedDraft(name, drafts[name], plan)
        for name, plan in plans.items()
        if name != first and plan.draft is not None and plan.context.n_ctx == n_ctx
    ]
    named = [
        PlannedDraft("", row.models, row.plan)
        if row.plan.draft is None
        else PlannedDraft(row.name, row.models, _measured(row.plan, worths[row.name].k, scales[row.name]))
        if worths and row.name in scales
        else row
        for row in rows
    ]
    return sorted(named, key=lambda row: row.plan.seconds)


def _measured(plan: PlacementPlan, k: int, scale: float) -> PlacementPlan:
    rate = None if plan.tokens_per_s is None else plan.tokens_per_s / scale
    return replace(plan, k=k, seconds=plan.seconds * scale, tokens_per_s=rate)
