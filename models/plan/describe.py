"""A plan as a JSON object and in words."""

from __future__ import annotations

from typing import Any

from localspec.models.plan.memory_use import Layout
from localspec.models.plan.models import Models
from localspec.models.plan.search import PlacementPlan


def to_wire(plan: PlacementPlan, models: Models) -> dict[str, Any]:
    """Return the JSON object of a plan; sizes in bytes."""
    return {
        "target": _layout(plan.target, len(models.target.layers)),
        "draft": None if plan.draft is None or models.draft is None else _layout(plan.draft, len(models.draft.layers)),
        "n_ctx": plan.context.n_ctx,
        "draft_n_ctx": None if plan.draft_context is None else plan.draft_context.n_ctx,
        "kv_type": plan.context.kv_type,
        "threads": plan.threads,
        "draft_threads": plan.draft_threads,
        "draft_tokens": plan.k,
        "is_paged": plan.is_paged,
        "memory": {
            place: {
                "weights": use.weights,
                "cache": use.cache,
                "compute": use.compute,
                "outputs": use.outputs,
                "total": use.total,
            }
            for place, use in plan.use.items()
        },
        "tokens_per_s": plan.tokens_per_s,
        "basis": plan.basis,
    }


def _layout(layout: Layout, n_layers: int) -> dict[str, Any]:
    return {
        "devices": dict(zip(layout.devices, layout.counts, strict=True)),
        "gpu_layers": layout.n_offloaded,
        "n_layers": n_layers + 1,
        "cpu_experts": layout.cpu_experts,
    }
