"""The plans of `localspec plan` as people read them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localspec.cli.console import columns_of_stdout, is_terminal
from localspec.control.chain import NEXT, Worth
from localspec.models.plan.compare import PlannedDraft
from localspec.models.plan.machine import CPU, DISK, Machine
from localspec.models.plan.memory_use import Layout
from localspec.models.plan.models import Models
from localspec.models.plan.search import PlacementPlan, PlacementRequest
from localspec.sanitize import one_line, shortened, shown
from localspec.settings.sizes import counted, size, three_digits

COPIES = "copies only"
FOREIGN = ", other vocabulary"  # behind the name of a draft, which gives way before it
SHORTEST = 12 + len(FOREIGN)  # characters of a draft's cell that stay where there is no room
LONGEST = 1000  # characters of a line that no terminal cuts


@dataclass(frozen=True, slots=True)
class Loads:
    """The `draft` that a load takes unasked, "" for none, and what drafts were measured to be worth here.

    `why` says why it is that draft, and `target` what to type for the target alone.
    """

    draft: str
    worths: Mapping[str, Worth] = field(default_factory=dict)
    why: str = ""
    target: str = ""


def plan_table(
    name: str,
    machine: Machine,
    request: PlacementRequest,
    rows: list[PlannedDraft],
    loads: Loads,
    copy: PlannedDraft | None = None,
) -> str:
    """Return the plans, the chosen one first; on a terminal a draft's name gives way where a line has no room.

    `copy` is a plan with a low-bit copy of the target, which nobody made yet. It comes last.
    """
    chosen = rows[0].plan
    places = [CPU, *(device.name for device in machine.devices)]
    free = [f"{size(machine.ram)} RAM", *(f"{size(device.memory)} {device.name}" for device in machine.devices)]
    lines = [f"{name}, context {chosen.context.n_ctx} tokens in {chosen.context.kv_type}; free: {', '.join(free)}", ""]
    room = columns_of_stdout() if is_terminal(sys.stdout) else LONGEST
    names = [place if place != CPU else "RAM" for place in places]
    table = [["draft", "accepted", "on", "target on", *names, "tok/s"]]
    for row in rows if copy is None else [*rows, copy]:
        one, parts = row.plan, row.models.draft
        named = os.path.basename(row.name) if os.path.isabs(row.name) else row.name
        short = one_line(named) + (FOREIGN if row.models.guessing.is_foreign else "")
        draft = [COPIES, "-", "-"]
        if one.draft is not None and parts is not None:
            draft = [short, _accepted(row, request), one.draft.tell(parts)]
        memory = [size(one.use[place].total) if place in one.use else "-" for place in places]
        told = "not measured" if one.tokens_per_s is None else three_digits(one.tokens_per_s)
        table.append([*draft, one.target.tell(row.models.target), *memory, told])
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    is_known = all(row.name in loads.worths and loads.worths[row.name].is_measured for row in rows if row.name)
    mark = "<- chosen" if rows[0].name == loads.draft else f"<- {'fastest' if is_known else 'predicted fastest'}"
    over = max(0, sum(widths) + 2 * len(widths) + len(mark) - room)
    widths[0] = max(SHORTEST, widths[0] - over)
    for index, cells in enumerate(table):
        text = [_fitting(cell, width).ljust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append(("  ".join(text).rstrip() + (f"  {mark}" if index == 1 else "")).rstrip())
    notes = [*_taken(rows[0].name, loads), *_notes(rows, request), *_of_copy(loads.target, rows[0], copy)]
    return "\n".join([*lines, "", *notes]) + "\n"


def _taken(fastest: str, loads: Loads) -> list[str]:
    """Say what was measured of drafts, what to type where one loses, and which is loaded if it is not the fastest."""
    told = [f"{shown(name)} {one.told}" for name, one in loads.worths.items()]
    told += [f"of a draft that does not pay: {NEXT}"] * any(one.loses for one in loads.worths.values())
    if fastest == loads.draft:
        return told
    loaded = f"localspec run loads {shown(loads.draft) or 'no draft'} here, {loads.why}"
    command = shlex.join(("localspec", "run", "-m", loads.target, "-d", fastest or "none"))
    return [*told, f"{loaded}; to load the first of these: {one_line(command)}"]


def _accepted(row: PlannedDraft, request: PlacementRequest) -> str:
    """Return the chance that the first guess stands, with a mark where it is assumed."""
    guessing = row.models.guessing
    first = guessing.accepted[0] if guessing.accepted else request.acceptance * guessing.share
    return f"{first:.2f}{'?' if guessing.is_assumed else ''}"


def _of_copy(target: str, chosen: PlannedDraft, copy: PlannedDraft | None) -> list[str]:
    """Say how a copy compares with what is chosen, and why, and how it is made."""
    if copy is None:
        return []
    one = copy.plan
    kept = sum(copy.models.guessing.accepted[: one.k])
    ratio = chosen.plan.seconds / one.seconds
    told = "" if one.tokens_per_s is None else f", {ratio:.2f} of the speed that is chosen"
    make = f"localspec drafts make {one_line(shlex.quote(target))} --bits {copy.name.partition('-')[0]}"
    lines = [f"{copy.name}: not made yet{told}. To make it: {make}"]
    if one.tokens_per_s is not None:
        on_devices = one.target.n_offloaded  # the head counts as a layer
        where = "a part" if on_devices else "all"
        where = "none" if on_devices > len(copy.models.target.layers) else where
        lines.append(
            f"why: {counted(one.k, 'pass')} of the copy: {_ms(one.k * one.guess)}; "
            f"one of the target with {one.k + 1} rows: "
            f"{_ms(one.check)}, {where} of it from RAM; {1 + kept:.1f} tokens come of both ({copy.models.guessing.how})"
        )
    return lines


def _ms(seconds: float) -> str:
    return f"{three_digits(1e3 * seconds)} ms" if seconds < 1.0 else f"{seconds:.2g} s"


def _fitting(cell: str, width: int) -> str:
    """Return a cell in `width` characters; of a draft's name the middle gives way."""
    name, mark, _ = cell.partition(FOREIGN)
    return shortened(name, width - len(mark)) + mark


def _notes(rows: list[PlannedDraft], request: PlacementRequest) -> list[str]:
    chosen, accepted = rows[0].plan, rows[0].models.guessing.accepted
    accepted_share = request.acceptance * rows[0].models.guessing.share
    draft_threads = f", draft {chosen.draft_threads}" if chosen.draft_threads else ""
    notes = [f"threads {chosen.threads}{draft_threads}" if chosen.threads else "threads: as many as physical cores"]
    if chosen.is_paged:
        notes.append(f"the weights exceed the free memory: each pass reads them from the {DISK}")
    if chosen.tokens_per_s is None:
        notes.append("speeds: not measured (localspec calibrate --machine, or --bandwidth gpu=...,cpu=...)")
        return [*notes, "the order rests on typical bandwidths, and on what was measured of pairs here"]
    if chosen.draft is not None and accepted:
        kept = sum(accepted[: chosen.k])
        notes.append(f"{chosen.k} draft tokens a pass, {kept:.2f} accepted: {rows[0].models.guessing.how}")
    elif chosen.draft is not None:
        notes.append(f"{chosen.k} draft tokens a pass, each accepted with probability {accepted_share:.2g}: assumed")
    if any(row.name and row.models.guessing.is_assumed for row in rows):
        notes.append("accepted with ?: assumed, for this machine has not measured it; without: measured")
    if any(row.models.guessing.is_foreign and row.models.guessing.is_assumed for row in rows):
        told = f"another vocabulary: {request.acceptance:g} is assumed of the tokens that both have"
        notes.append(
            f"{told}; one such pair measured 0.66 on shipped texts, and won no time with it (docs/benchmarks.md)"
        )
    if any(not row.name for row in rows):
        notes.append(f"{COPIES}: the speed of plain decoding; a text that repeats itself is faster")
    return [*notes, f"bandwidths: {chosen.basis}; only the reading of weights and cache is counted"]


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
