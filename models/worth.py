"""What a draft is worth for a target on this machine: the tokens of a pass over its price, in plain passes.

Everything that ranks drafts, takes one or says whether it pays asks `worth`. What loads of the pair measured counts;
where they measured nothing, acceptance is assumed, and prices follow from bandwidths, with both models in one place.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.control.chain import ASSUMED, MEASURED, TYPICAL, Worth, best_length
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.header import read_header
from localspec.models.low_bit import COUNTED, chance_of_copy, low_bit_copy
from localspec.models.pair_check import require_fit
from localspec.models.plan import calibration
from localspec.models.plan.layout_search import Search
from localspec.models.plan.machine import CPU, Machine
from localspec.models.plan.memory import ContextPlan
from localspec.models.plan.memory_use import ON_CPU
from localspec.models.plan.models import TRIED, ModelPart, Models, placed
from localspec.settings.folders import cache_folder

if TYPE_CHECKING:
    from localspec.control.profile import Learned

UNLIMITED = 1 << 60  # bytes of memory: whether both fit is not asked here


def pair_models(target: ModelPart, draft: ModelPart | None = None) -> tuple[Models, Learned | None]:
    """Return both models as plans take them, and what loads of the pair measured, None where there was none. Raises
    IncompatibleError if they do not fit."""
    if draft is None or target.info is None or draft.info is None:
        return placed(target, draft), None
    shared = require_fit(target.info, draft.info).overlap
    known = learned(target.info.path, draft.info.path)
    accepted, how = None if known is None else known.accepted, TRIED
    if accepted is None and draft.info.path.is_file():
        copy = low_bit_copy(read_header(draft.info.path))  # of one file: perhaps a header without its parts
        if copy is not None and copy.is_of(target.info.path):
            accepted, how = chance_of_copy(copy.kind, 1.0 - copy.layers / copy.n_layers), COUNTED
    return placed(target, draft, shared=shared, accepted=accepted, how=how), known


def worth(models: Models, known: Learned | None = None, machine: Machine | None = None) -> Worth:
    """Return what the draft of `models` is worth, by what is `known` of the pair, else by the machine's bandwidths."""
    search = Search(machine or this_processor(), models)
    guessing = models.guessing
    accepted = guessing.chances(search.request.acceptance)
    how = ASSUMED if guessing.is_assumed else MEASURED if guessing.how == TRIED else guessing.how
    rows = None if known is None else known.rows
    if rows is not None and known is not None and known.guess is not None:
        best = best_length(accepted, rows[1:], known.guess, at_once=guessing.at_once)
        return Worth(*best, accepted[0], how, MEASURED, is_timed=True, plain=known.plain)
    context = ContextPlan(next(search.contexts()), search.request.kv_type, search.request.has_flash)
    plain, plan = (search.predict(context, ON_CPU, draft) for draft in (None, ON_CPU))
    assert plain is not None, "there is memory enough"
    if plan is None:  # a block of the target that would be elsewhere than its head
        return Worth(0, 1.0, 1.0, accepted[0], how, TYPICAL)
    basis = TYPICAL if plan.tokens_per_s is None else f"by bandwidths {plan.basis}"
    if rows is not None and known is not None:
        best = best_length(accepted, rows[1:], plan.guess / plain.seconds, at_once=guessing.at_once)
        how_long = f"checks {MEASURED}, guesses {basis}"
        return Worth(*best, accepted[0], how, how_long, is_timed=True, plain=known.plain)
    tokens = 1.0 + sum(accepted[: plan.k])
    return Worth(plan.k, tokens, tokens * plan.seconds / plain.seconds, accepted[0], how, basis)


def this_processor() -> Machine:
    known = calibration.load(cache_folder("machine"))
    figures = () if known is None else known.figures
    described = next((figure.description for figure in figures if figure.device == CPU), "")
    return Machine(UNLIMITED, cpu=None if known is None else known.rates(CPU, described))


def learned(target: Path, draft: Path) -> Learned | None:
    folder = cache_folder("profiles")
    if not folder.is_dir():
        return None
    from localspec.control.profile import learned_of  # late: it brings numpy

    with suppress(OSError):
        return learned_of(folder, [file_fingerprint(target), file_fingerprint(draft)])
    return None
