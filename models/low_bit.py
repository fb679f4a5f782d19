"""Copies of a model in fewer bits, as drafts: what they are made of, where they are and how they are found.

A copy has the model's vocabulary and needs no training. In two or three bits it drafts for the model itself. That is
for devices: a GPU reads two bits in half the time of four. Kernels for two bits on a plain processor unpack each weight
anew, so there a pass of the copy takes longer than one of the target (`tuning.LOW_BIT_ON_CPU`).

In four bits (Q4_0) a copy of a small model drafts for larger ones, in its place: llama.cpp lays Q4_0 out for the
kernels of a processor, and does not do so with Q5_0, Q6_K and Q8_0, of which small models mostly are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.models.gguf.draft_kinds import LOW_BIT
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.header import Header
from localspec.models.gguf.layer_sizes import Anatomy
from localspec.models.gguf.shards import read_all, read_model
from localspec.models.plan.compare import PlannedDraft
from localspec.models.plan.layout_search import PlacementRequest, best_and_plain
from localspec.models.plan.machine import BITS_OF, Machine
from localspec.models.plan.memory_use import assumed
from localspec.models.plan.models import Guessing, ModelPart, Models
from localspec.sanitize import shown
from localspec.settings.folders import drafts_folder

BITS = ("2", "3", "mixed", "4")
FOUR = "Q4_0"
SUFFIX = ".gguf"
KEY = "localspec.draft."  # of the metadata that tell a copy
ENDS = 8  # of so many layers one at either end has three bits in a mixed copy
# Types whose blocks unpack by shifts and masks, which every device does fast. The last two look patterns up in tables:
# they take less room and more arithmetic, so they are for copies that do not fit otherwise.
KINDS = {"2": "Q2_K", "3": "Q3_K_S", "mixed": "Q2_K", "4": FOUR}
SMALLER = {"2": "IQ2_XXS", "mixed": "IQ2_XXS"}
# Bits of a weight of the layers, and of the head, in llama.cpp's mixes: counted in Qwen2.5-Coder 1.5B.
BODY = {"Q2_K": 2.93, "Q3_K_S": 3.44, "IQ2_XXS": 2.10}
HEAD = {"Q2_K": 6.56, "Q3_K_S": 6.56, "IQ2_XXS": 5.5}
TABLE = {"Q2_K": 2.63, "Q3_K_S": 3.44, "IQ2_XXS": 2.63}
TYPES = {"Q2_K": "Q2_K", "Q3_K_S": "Q3_K", "IQ2_XXS": "IQ2_XXS"}
COUNTED = "counted with a copy of Qwen2.5-Coder 1.5B"
# The chance that a token of such a copy is accepted at the usual temperature: docs/benchmarks.md. Q4_0: of the 0.5B.
ACCEPTED = {"Q2_K": 0.85, "Q3_K_S": 0.91, "IQ2_XXS": 0.71, FOUR: 0.97}
CUT = 0.9  # of that chance is lost, times the share of the layers that are left out
USUAL = 4.8  # bits of a weight of an unknown type
_BLOCK = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class LowBitCopy:
    """A kept copy. `kind` is llama.cpp's mix, `layers` how many of the target's stay, of `n_layers`. `has_matrix`: an
    importance matrix weighed its columns. `pays`: it was predicted to, when it was made."""

    path: Path
    target: str
    kind: str
    n_bytes: int
    layers: int
    n_layers: int
    has_matrix: bool
    pays: bool

    def is_of(self, target: Path) -> bool:
        return target.is_file() and self.target == file_fingerprint(target)

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(SUFFIX)


def low_bit_copy(header: Header) -> LowBitCopy | None:
    facts = {key: header.metadata.get(KEY + key) for key in ("target", "kind", "layers", "matrix", "pays")}
    if not all(isinstance(fact, str) for fact in facts.values()):
        return None
    target, kind, layers, matrix, pays = map(str, facts.values())
    match = re.fullmatch(r"(\d{1,4}) of (\d{1,4})", layers)
    if match is None or kind not in ACCEPTED:
        return None
    numbers = int(match[1]), int(match[2])
    return LowBitCopy(header.path, target, kind, header.size, *numbers, matrix == "yes", pays == "yes")


def kept_copies() -> tuple[list[LowBitCopy], list[tuple[Path, LocalspecError]]]:
    return read_all(drafts_folder(), lambda path: low_bit_copy(read_model(path)))


def copies_of(target: Path) -> list[LowBitCopy]:
    """Return the copies of exactly this file that draft for it: first those predicted to pay, then by size."""
    if not drafts_folder().is_dir():
        return []
    mark = file_fingerprint(target)
    copies = [copy for copy in kept_copies()[0] if copy.target == mark and copy.kind != FOUR]
    return sorted(copies, key=lambda copy: (not copy.pays, copy.n_bytes))


def four_bit_copies() -> dict[str, LowBitCopy]:
    return {copy.target: copy for copy in kept_copies()[0] if copy.kind == FOUR}


def copy_of(target: Path) -> Path:
    copies = copies_of(target)
    if not copies:
        label = shown(str(target))
        raise NotFoundError(f"{label} has no low-bit copy", hint=f"to make one: localspec drafts make {label}")
    return copies[0].path


def named_copy(name: str) -> Path:
    path = drafts_folder() / f"{name}{SUFFIX}"
    if Path(name).name != name or not path.is_file():
        raise NotFoundError(f"there is no low-bit copy {shown(name)}", hint="localspec drafts list")
    return path


def path_for(target: Path, bits: str, n_dropped: int) -> Path:
    cut = f"-less-{n_dropped}" if n_dropped else ""
    stem = target.name.removesuffix(SUFFIX)
    return drafts_folder() / f"{stem}-{bits}bit{cut}-{file_fingerprint(target)[:8]}{SUFFIX}".replace(
        "mixedbit", "mixed"
    )


def dropped_layers(text: str, n_layers: int) -> tuple[int, ...]:
    """Read which layers a copy leaves out, as in 20-39 or 8,10,12. Raises UsageError; first and last must stay."""
    dropped: set[int] = set()
    for part in text.split(","):
        match = _BLOCK.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 0 < first <= last < n_layers - 1:
            example = f"{n_layers // 2}-{max(n_layers // 2, n_layers // 2 + n_layers // 8)}"
            raise UsageError(
                f"--skip {part.strip()!r} names no layers between the first and the last of {n_layers}",
                hint=f"--skip {example}",
            )
        dropped.update(range(first, last + 1))
    return tuple(sorted(dropped))


def kinds(bits: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((KINDS[bits], SMALLER.get(bits, KINDS[bits]))))


def other_types(bits: str, n_layers: int) -> tuple[tuple[str, str], ...]:
    """Return the types that differ from the mix, by patterns of names: a mixed copy has three bits at either end.
    llama.cpp would keep the output matrix of one in four bits in six or eight."""
    if bits == "4":
        return ((r"^(output|token_embd)\.weight$", FOUR),)
    if bits != "mixed":
        return ()
    n = max(1, n_layers // ENDS)
    ends = "|".join(map(str, [*range(n), *range(n_layers - n, n_layers)]))
    return ((rf"^blk\.({ends})\.(attn|ffn)_(q|k|v|qkv|output|gate|up|down|gate_up)(_exps|_shexp)?\.weight", "Q3_K"),)


def chance_of_copy(kind: str, share: float) -> float:
    """Return the chance that a token of a copy is accepted, as COUNTED; `share` of the layers is left out."""
    return ACCEPTED[kind] * (1.0 - CUT * share)


def planned_copy(target: ModelPart, bits: str, kind: str, n_dropped: int = 0) -> Models:
    """Return a target with a copy that is not made yet, for planning: its sizes are about right."""
    parts = target.anatomy
    guessing = Guessing(assumed(chance_of_copy(kind, n_dropped / max(1, len(parts.layers)))), how=COUNTED)
    return Models(
        parts, anatomy_of_copy(parts, bits, kind, n_dropped), target.n_ctx_train, target.n_ctx_train, guessing
    )


def best_copy(
    machine: Machine, drafts: Mapping[str, Models], request: PlacementRequest, chosen: PlannedDraft
) -> PlannedDraft | None:
    """Return the plan with the best copy that nobody made yet; None where none is on a device and beats no draft. It
    has the context of the `chosen` plan. `drafts` are the target with each draft that is here."""
    if LOW_BIT in drafts or not machine.devices:
        return None
    target = next(iter(drafts.values()))
    part = ModelPart(target.target, target.n_ctx_train)
    wanted = replace(request, n_ctx=chosen.plan.context.n_ctx, needs_draft=True)
    plans = []
    for bits in ("2", "3"):
        for kind in kinds(bits):
            models = planned_copy(part, bits, kind)
            plan, plain = best_and_plain(machine, models, wanted)
            is_on_device = plan.draft is not None and plan.draft.n_offloaded > 0
            if is_on_device and plan.seconds < plain.seconds:
                plans.append(PlannedDraft(f"{bits}-bit copy", models, plan))
    return min(plans, key=lambda draft: draft.plan.seconds, default=None)


def anatomy_of_copy(parts: Anatomy, bits: str, kind: str, n_dropped: int = 0) -> Anatomy:
    now = _bits(parts)
    body = BODY[kind] if bits != "mixed" else BODY[kind] + 2 * (BODY["Q3_K_S"] - BODY[kind]) / ENDS
    n_layers = len(parts.layers) - n_dropped
    first = n_layers // 2
    layers = tuple(
        replace(layer, dense=int(layer.dense * body / now), experts=int(layer.experts * body / now))
        for layer in (*parts.layers[:first], *parts.layers[first + n_dropped :])
    )
    table = (HEAD if parts.is_tied else TABLE)[kind]
    return replace(
        parts,
        layers=layers,
        embedding=int(parts.embedding * table / now),
        output=int(parts.output * HEAD[kind] / now),
        largest=int(parts.largest * max(body, HEAD[kind]) / now),
        types=((TYPES[kind], sum(layer.dense + layer.experts for layer in layers)),),
    )


def _bits(parts: Anatomy) -> float:
    weights = (n / BITS_OF.get(name, BITS_OF.get(name.rpartition("_")[0], USUAL)) for name, n in parts.types)
    return sum(n for _, n in parts.types) / max(1e-9, sum(weights))  # Q4_K stands for the mix Q4_K_M
