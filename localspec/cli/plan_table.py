"""The answer of `localspec plan`: does a draft pay, does the model fit, the table, and a line for each draft."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import Any

from localspec.cli.console import columns_of_stdout, is_terminal, wrapped
from localspec.control.chain import ASSUMED, MEASURED, NEXT, Worth
from localspec.models.plan.compare import PlannedDraft
from localspec.models.plan.layout_search import PlacementRequest
from localspec.models.plan.machine import CPU, Machine
from localspec.models.plan.memory import ram_room
from localspec.models.plan.memory_use import Layout
from localspec.sanitize import one_line, shown
from localspec.settings.sizes import counted, size, three_digits
from localspec.ui.columns import fitted

COPIES = "copies only"
GAIN = 1.05  # times as fast: less is a small gain
COLUMNS = 80  # of a pipe
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
UNKNOWN = (
    "Speeds are not measured (localspec calibrate --machine, or --bandwidth gpu=...,cpu=...): the order rests on "
    "typical bandwidths."
)


@dataclass(frozen=True, slots=True)
class Loads:
    """The `draft` that a load takes unasked, "" for none, and what drafts were measured to be worth here.

    `why` says why it is that draft, and `target` what to type for the target alone. `can_measure`: --measure may try
    the drafts, since the plan is for this machine and all files are on it. `has_none`: no draft is asked for.
    `has_drafts`: there are some, whether memory holds them or not.
    """

    draft: str
    worths: Mapping[str, Worth] = field(default_factory=dict)
    why: str = ""
    target: str = ""
    can_measure: bool = False
    has_none: bool = False
    has_drafts: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a draft brings: a pass with `k` guesses gives `tokens`, in the time of `price` passes without a draft.
    `accepted` is the chance that the first guess is right, as `how` says."""

    name: str
    k: int
    tokens: float
    price: float
    accepted: float
    how: str
    is_measured: bool = False
    is_foreign: bool = False

    @property
    def speed(self) -> float:
        return self.tokens / self.price

    @property
    def line(self) -> str:
        other = "; it has another vocabulary" if self.is_foreign else ""
        return (
            f"{brief(self.name)}: {self.speed:.2f} times the speed without a draft. A pass with "
            f"{counted(self.k, 'guess')} gives {self.tokens:.2f} tokens and takes {self.price:.2f} times as long "
            f"({self.accepted:.0%} right, {self.how}{other})."
        )

    def to_wire(self) -> dict[str, Any]:
        return {"speedup": self.speed, "tokens_per_pass": self.tokens, "price": self.price,
                "is_measured": self.is_measured}  # fmt: skip


def brief(name: str) -> str:
    return one_line(os.path.basename(name) if os.path.isabs(name) or name.startswith("hf:") else name)


def judgements(
    rows: Sequence[PlannedDraft], request: PlacementRequest, worths: Mapping[str, Worth]
) -> dict[str, Judgement]:
    plain = next(row.plan for row in rows if row.plan.draft is None)
    judged: dict[str, Judgement] = {}
    for row in rows:
        if row.plan.draft is None or row.name in judged:
            continue
        guessing, k, known = row.models.guessing, row.plan.k, worths.get(row.name)
        accepted = guessing.chances(request.acceptance)
        tokens = 1.0 + sum(accepted[:k]) if known is None else known.tokens
        judged[row.name] = Judgement(
            row.name, k, tokens, tokens * row.plan.seconds / plain.seconds, accepted[0],
            known.how if known is not None else ASSUMED if guessing.is_assumed else guessing.how,
            is_measured=known is not None and known.was_loaded and not guessing.is_assumed,
            is_foreign=guessing.is_foreign,
        )  # fmt: skip
    return judged


def verdict(judged: Mapping[str, Judgement], loads: Loads) -> str:
    if not judged:
        none = "No draft, as asked" if loads.has_none else "No draft for it is on this machine"
        return f"{'No draft fits into memory beside it' if loads.has_drafts else none}: {COPIES}."
    first, others = next(iter(judged.values())), list(judged.values())
    is_known = first.is_measured if first.speed > 1.0 else all(each.is_measured for each in others)
    pays = "pays here" if is_known else "is expected to pay here"
    if 1.0 < first.speed < GAIN:
        pays = "gains little here" if is_known else "is expected to gain little here"
    if first.speed > 1.0:
        basis = ", if the assumed share of its guesses is right" if first.how == ASSUMED else ""
        return f"{brief(first.name)} {pays}: {first.speed:.2f} times the speed without a draft{basis}."
    if len(others) == 1:
        return f"{brief(first.name)} {'does not pay here' if is_known else 'is not expected to pay here'}: {COPIES}."
    n = NUMBERS[len(others)] if len(others) < len(NUMBERS) else str(len(others))
    return f"{'Neither' if len(others) == 2 else 'None'} of these {n} drafts {pays}: {COPIES}."


def layers_on_disk(machine: Machine, row: PlannedDraft) -> int:
    plan, n_layers = row.plan, len(row.models.target.layers)
    if not plan.is_paged:
        return 0
    there, weights = n_layers + 1 - plan.target.n_offloaded, plan.use[CPU].weights
    return min(n_layers, max(1, ceil(there * (weights - ram_room(machine, plan.use)) / weights)))


def fitting(machine: Machine, row: PlannedDraft) -> str:
    plan = row.plan
    free = {CPU: (machine.ram, "RAM"), **{device.name: (device.memory, device.name) for device in machine.devices}}
    if n := layers_on_disk(machine, row):
        took = f"{plan.seconds:.1f}" if plan.seconds >= 1.0 else f"{plan.seconds:.2f}"
        layers = f"{n} of {counted(len(row.models.target.layers), 'layer')}"
        return f"It runs with {layers} on disk, and each pass reads the whole file: about {took} seconds a token."
    used = ", ".join(f"{size(use.total)} of {size(free[place][0])} {free[place][1]}" for place, use in plan.use.items())
    return f"It fits: {used}, with a context of {plan.context.n_ctx} tokens in {plan.context.kv_type}."


def plan_text(
    machine: Machine,
    request: PlacementRequest,
    rows: Sequence[PlannedDraft],
    loads: Loads,
    copy: PlannedDraft | None = None,
    elsewhere: Sequence[str] = (),
) -> str:
    """Return the whole answer; lines of a terminal are wrapped at words."""
    judged = judgements(rows, request, loads.worths)
    notes = [*(each.line for each in judged.values()), *_notes(rows, judged, loads)]
    if copy is not None:
        compared = f", {rows[0].plan.seconds / copy.plan.seconds:.2f} of the speed of the first"
        make = f"localspec drafts make {one_line(shlex.quote(loads.target))} --bits {copy.name.partition('-')[0]}"
        notes.append(f"{copy.name}: not made yet{compared if copy.plan.tokens_per_s else ''}. To make it: {make}")
    notes += ["", *elsewhere] if elsewhere else []
    above, below = (
        [wrapped(one_line(line), sys.stdout) for line in lines]
        for lines in ([verdict(judged, loads), fitting(machine, rows[0])], notes)
    )
    return "\n".join([*above, "", *_table(machine, request, [*rows, *filter(None, [copy])]), "", *below]) + "\n"


def _table(machine: Machine, request: PlacementRequest, rows: Sequence[PlannedDraft]) -> list[str]:
    places = [CPU, *(device.name for device in machine.devices)]
    names = [place if place != CPU else "RAM" for place in places]
    table = [["draft", "accepted", "on", "target on", *names, "tok/s"]]
    for row in rows:
        plan, parts = row.plan, row.models.draft
        draft = [COPIES, "-", "-"]
        if plan.draft is not None and parts is not None:
            guessing = row.models.guessing
            accepted = f"{guessing.chances(request.acceptance)[0]:.2f}{'?' if guessing.is_assumed else ''}"
            draft = [brief(row.name), accepted, plan.draft.in_words(parts)]
        memory = [size(plan.use[place].total) if place in plan.use else "-" for place in places]
        if plan.is_paged:  # the rest stays on the disk
            memory[0] = f"{size(machine.ram)} of {memory[0]}"
        speed = "-" if plan.tokens_per_s is None else three_digits(plan.tokens_per_s)
        table.append([*draft, plan.target.in_words(row.models.target), *memory, speed])
    room = columns_of_stdout() if is_terminal(sys.stdout) else COLUMNS
    return fitted(table, room, right=())


def _notes(rows: Sequence[PlannedDraft], judged: Mapping[str, Judgement], loads: Loads) -> list[str]:
    chosen, fastest = rows[0].plan, rows[0].name
    notes = [f"{COPIES}: no draft. Text that repeats itself is still guessed, by copies."]
    if any(each.accepted and not each.is_measured for each in judged.values()) or not judged:
        is_known = chosen.basis == MEASURED
        basis = f"Speeds are {MEASURED}." if is_known else f"Speeds are predicted from bandwidths: {chosen.basis}."
        notes.append(UNKNOWN if chosen.tokens_per_s is None else basis)
    if any(each.loses for each in loads.worths.values()):
        notes.append(f"Of a draft that does not pay: {NEXT}.")
    if loads.can_measure and not loads.has_none and not (judged and all(each.is_measured for each in judged.values())):
        why, flag = ("To know", "--measure") if judged else ("To look further", "--hub")
        notes.append(f"{why}: localspec plan {one_line(shlex.quote(loads.target))} {flag}")
    if fastest != loads.draft:
        loaded = f"localspec run loads {shown(loads.draft) or 'no draft'} here, {loads.why}"
        command = shlex.join(("localspec", "run", "-m", loads.target, "-d", fastest or "none"))
        notes.append(f"{loaded}; to load the first of these: {one_line(command)}")
    return notes


def to_wire(row: PlannedDraft) -> dict[str, Any]:
    plan, models = row.plan, row.models
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
        "memory": {place: {**asdict(use), "total": use.total} for place, use in plan.use.items()},
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
