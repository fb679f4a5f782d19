"""Which draft is predicted to be the fastest: a draft model, a head, the target's own block, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from localspec.errors import ResourceError
from localspec.models.plan.machine import Machine
from localspec.models.plan.models import Models
from localspec.models.plan.search import PlacementPlan, PlacementRequest, alternatives, best


@dataclass(frozen=True, slots=True)
class PlannedDraft:
    """A plan with one of the drafts; `name` is "" where the plan has no draft."""

    name: str
    models: Models
    plan: PlacementPlan


def compare(machine: Machine, drafts: Mapping[str, Models], request: PlacementRequest) -> list[PlannedDraft]:
    """Return plans for the same target with each of `drafts` (at least one; "" is none), the fastest first.

    Of the fastest draft there is one for each place, of the others the best one. All have the context of the first that
    fits. Raises ResourceError, with how much is missing, if the target does not fit.
    """
    found: dict[str, PlacementPlan] = {}
    refused: ResourceError | None = None
    for name, models in drafts.items():
        try:
            found[name] = best(machine, models, replace(request, needs_draft=models.draft is not None))
        except ResourceError as error:
            refused = error
    if refused is not None and not found:
        raise refused
    first = min(found, key=lambda name: (-found[name].context.n_ctx, found[name].seconds))
    n_ctx = found[first].context.n_ctx
    rows = [PlannedDraft(first, drafts[first], plan) for plan in alternatives(machine, drafts[first], request)]
    rows += [
        PlannedDraft(name, drafts[name], plan)
        for name, plan in found.items()
        if name != first and plan.draft is not None and plan.context.n_ctx == n_ctx
    ]
    named = [PlannedDraft(row.name if row.plan.draft is not None else "", row.models, row.plan) for row in rows]
    return sorted(named, key=lambda row: row.plan.seconds)
