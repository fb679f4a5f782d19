"""Copies in fewer bits: what is left out, what they are predicted to bring, and on which machine."""

from dataclasses import replace

import pytest

from localspec.cli.drafts import predicted
from localspec.errors import UsageError
from localspec.models.low_bit import (
    ACCEPTED,
    anatomy_of_copy,
    best_copy,
    chance_of_copy,
    dropped_layers,
    other_types,
)
from localspec.models.plan.compare import compare
from localspec.models.plan.layout_search import PlacementRequest
from localspec.models.plan.machine import CPU, Machine, MachineDevice, Rates
from localspec.models.plan.models import ModelPart, placed
from tests.models.hollow import LLAMA_8B, LLAMA_70B
from tests.models.plan.examples import GIB, gbps, of_70b, parts

GPU = MachineDevice("CUDA0", 24 * GIB, gbps(936))
BESIDE = Machine(64 * GIB, 8, (GPU,), gbps(60))
ALONE = Machine(64 * GIB, 8, (), gbps(60))
BIG, SMALL = ModelPart(parts(LLAMA_70B), 131_072), ModelPart(parts(LLAMA_8B), 131_072)


def test_layers_are_read_and_the_ends_stay() -> None:
    assert dropped_layers("3-5,7", 10) == (3, 4, 5, 7)
    for wrong in ("0", "9", "5-3", "x", "", "3-9"):
        with pytest.raises(UsageError, match="between the first and the last of 10"):
            dropped_layers(wrong, 10)


def test_a_mixed_copy_has_three_bits_at_either_end() -> None:
    ((pattern, kind),) = other_types("mixed", 16)
    assert (pattern[: len(r"^blk\.(0|1|14|15)\.")], kind) == (r"^blk\.(0|1|14|15)\.", "Q3_K")
    ((pattern, _),) = other_types("mixed", 4)
    assert pattern.startswith(r"^blk\.(0|3)\."), "at least one"
    assert other_types("2", 16) == other_types("3", 16) == ()


def test_a_copy_is_refused_on_a_processor_and_pays_beside_a_gpu() -> None:
    """On a processor a byte of two bits takes longer than one of four, so a pass of the copy costs more."""
    assert predicted(ALONE, BIG, "2", 0).gain < 0.8
    assert predicted(BESIDE, BIG, "2", 0).gain > 1.1


def test_it_is_told_whether_the_machine_was_measured() -> None:
    assert predicted(ALONE, BIG, "2", 0).is_measured
    assert not predicted(Machine(64 * GIB, 8, (), None), BIG, "2", 0).is_measured


def test_a_copy_without_some_layers_is_right_less_often() -> None:
    """Counted with three of 28 layers of Qwen2.5-Coder 1.5B left out: 77 % for 85 %."""
    assert chance_of_copy("Q2_K", 0.0) == ACCEPTED["Q2_K"] == 0.85
    assert chance_of_copy("Q2_K", 3 / 28) == pytest.approx(0.77, abs=0.005)


def test_the_smaller_mix_is_taken_where_the_other_does_not_fit() -> None:
    assert predicted(BESIDE, BIG, "2", 0).kind == "IQ2_XXS"
    roomy = replace(BESIDE, devices=(replace(GPU, memory=32 * GIB),))
    assert predicted(roomy, BIG, "2", 0).kind == "Q2_K"


def test_measured_rates_of_few_bits_take_the_place_of_the_rule() -> None:
    fast = Rates({"Q4_K": ((1, 60e9),), "Q2_K": ((1, 60e9),), "IQ2_XXS": ((1, 60e9),)}, "measured")
    assert predicted(replace(ALONE, cpu=fast), BIG, "2", 0).gain > predicted(ALONE, BIG, "2", 0).gain


def test_the_plan_tells_of_a_copy_beside_a_gpu_alone() -> None:
    """A small sibling wins where it is as often right; without one the copy does, with the target in main memory."""
    request = PlacementRequest()
    drafts = {"": placed(BIG), "small": of_70b()}
    rows = compare(BESIDE, drafts, request)
    copy = best_copy(BESIDE, drafts, request, rows[0])
    assert copy is not None
    assert copy.plan.draft is not None
    assert (copy.plan.draft.devices, rows[0].name) == (("CUDA0",), "small")
    assert copy.plan.use[CPU].weights > 37e9
    assert rows[0].plan.seconds < copy.plan.seconds < next(row for row in rows if not row.name).plan.seconds
    seconds = copy.plan.k * copy.plan.guess + copy.plan.check
    kept = 1 + sum(copy.models.guessing.accepted[: copy.plan.k])
    assert copy.plan.seconds == pytest.approx(seconds / kept)
    assert best_copy(ALONE, {"": placed(BIG)}, request, compare(ALONE, {"": placed(BIG)}, request)[0]) is None


def test_no_copy_is_told_of_where_the_target_fits_the_gpu_and_rows_cost_little_less() -> None:
    drafts = {"": placed(SMALL)}
    slow = Machine(64 * GIB, 8, (replace(GPU, rates=Rates({"Q8_0": ((1, 936e9), (16, 100e9))}, "given")),), gbps(60))
    assert best_copy(slow, drafts, PlacementRequest(), compare(slow, drafts, PlacementRequest())[0]) is None


def test_sizes_are_about_right() -> None:
    """Q2_K of Llama 70B has 26.4 GB, IQ2_XXS 19.1 GB, Q3_K_S 30.9 GB (published files)."""
    sizes = {kind: anatomy_of_copy(BIG.anatomy, bits, kind).weights / 1e9 for bits, kind in
             (("2", "Q2_K"), ("2", "IQ2_XXS"), ("3", "Q3_K_S"))}  # fmt: skip
    assert sizes == pytest.approx({"Q2_K": 26.4, "IQ2_XXS": 19.1, "Q3_K_S": 30.9}, rel=0.05)


def test_a_type_that_nobody_knows_has_the_usual_bits() -> None:
    """Of a mix the type in its name counts."""
    n = BIG.anatomy.types[0][1]
    usual, known, mix = (
        anatomy_of_copy(replace(BIG.anatomy, types=((name, n),)), "2", "Q2_K") for name in ("NEW_9", "Q8_0", "Q4_K_M")
    )
    assert usual.output / known.output == pytest.approx(8.5 / 4.8, rel=1e-3)
    assert mix.output / known.output == pytest.approx(8.5 / 4.5, rel=1e-3)
