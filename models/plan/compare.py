"""Which draft is predicted to be the fastest: a draft model, a head, the target's own block, or none."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from localspec.control.chain import MEASURED, Worth
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
    passes: list[float] = []  # seconds of a plain pass, as measured over those predicted
    refused: ResourceError | None = None
    for name, models in drafts.items():
        try:
            asked = replace(request, needs_draft=models.draft is not None)
            plans[name], plain = best_and_plain(machine, models, asked)
            if worths and name in worths:
                scales[name] = plain.seconds / worths[name].gain / plans[name].seconds
                passes += [took / plain.seconds] if (took := worths[name].plain) else []
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
    named = []
    for row in rows:
        name, plan = row.name if row.plan.draft is not None else "", row.plan
        if name and worths and name in scales:
            scale = scales[name]
            rate = None if plan.tokens_per_s is None else plan.tokens_per_s / scale
            plan = replace(plan, k=worths[name].k, seconds=plan.seconds * scale, tokens_per_s=rate)
        if passes and (name in scales or not name):
            plan = replace(plan, tokens_per_s=1 / (plan.seconds * passes[0]), basis=MEASURED)
        named.append(PlannedDraft(name, row.models, plan))
    return sorted(named, key=lambda row: row.plan.seconds)
