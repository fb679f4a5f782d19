"""Worked examples, with the arithmetic beside them. Q4_K takes 0.5625 bytes a weight; the context has 4096 tokens.

Llama 70B: a layer has 2 x 8192 x 8192 + 2 x 8192 x 1024 + 3 x 8192 x 28672 = 855 638 016 weights, 481 296 384 bytes,
and two norms of 32 768 bytes: 481 361 920. Its cache 4096 x 2 x 1024 x 2 = 16 777 216 bytes, of which a pass at 1024
tokens reads a quarter. The head has 128 256 x 8192 weights and a norm: 591 036 416 bytes.

Llama 1B, the draft: 16 layers of 34 226 176 bytes, 547 618 816 together, a head of 147 759 104 shared with the
embedding, a cache of 134 217 728; a pass reads 547 618 816 + 134 217 728 / 4 + 147 759 104 = 728 932 352 bytes.
"""

from dataclasses import replace

import pytest

from localspec.errors import ResourceError
from localspec.models.plan.layout_search import (
    PlacementPlan,
    PlacementRequest,
    Search,
    alternatives,
    best,
    best_and_plain,
)
from localspec.models.plan.machine import Machine, MachineDevice
from localspec.models.plan.memory_use import ON_CPU, Layout
from tests.models.hollow import LLAMA_8B, LLAMA_70B
from tests.models.plan.examples import GIB, gbps, of_8b, of_70b, of_experts, pair

LAYER_70B = 481_361_920
CACHE_70B = 16_777_216
READ_70B = LAYER_70B + CACHE_70B // 4  # 485 556 224
HEAD_70B = 591_036_416
DRAFT_READ = 728_932_352


def without_draft(plans: list[PlacementPlan]) -> PlacementPlan:
    return next(plan for plan in plans if plan.draft is None)


def test_70b_on_24_gb_puts_the_draft_onto_the_device() -> None:
    """93 % of 24 GiB are 23 965 917 511 bytes. The draft takes weights 695 377 920 + cache 134 217 728 + compute
    78 249 984 = 907 845 632 of them. The target's compute buffer is 2048 (3 x 28672 + 4 x 8192) + 4 194 304 for the
    mask + 591 003 648 for weights copied over = 838 467 584. What is left after the head, 21 628 567 879,
    holds 43 layers of 498 139 136 (43.42).
    """
    machine = Machine(64 * GIB, 8, (MachineDevice("CUDA0", 24 * GIB, gbps(936)),), gbps(60))
    plan = best(machine, of_70b())
    assert plan.target == Layout(("CUDA0",), (44,))
    assert plan.draft == Layout(("CUDA0",), (17,))
    assert plan.use["CUDA0"].total == 907_845_632 + 838_467_584 + HEAD_70B + 43 * (LAYER_70B + CACHE_70B)
    # A pass: 43 layers and the head at 936 GB/s, 37 layers at 60 GB/s; 13 draft passes; (1 - 0.7^14) / 0.3 tokens.
    target = (43 * READ_70B + HEAD_70B) / 936e9 + 37 * READ_70B / 60e9
    assert target == pytest.approx(0.3223643, rel=1e-6)
    assert plan.k == 13
    assert plan.seconds == pytest.approx((13 * DRAFT_READ / 936e9 + target) / 3.310726, rel=1e-5)
    assert plan.tokens_per_s == pytest.approx(9.957, abs=1e-3)


def test_70b_on_24_gb_gains_less_from_two_more_layers_than_from_the_draft() -> None:
    """Without the draft 45 layers and the head fit: 22 441 066 496 bytes at 936 and 16 994 467 840 at 60 GB/s."""
    machine = Machine(64 * GIB, 8, (MachineDevice("CUDA0", 24 * GIB, gbps(936)),), gbps(60))
    plan = without_draft(alternatives(machine, of_70b()))
    assert plan.target == Layout(("CUDA0",), (46,))
    assert plan.seconds == pytest.approx(22_441_066_496 / 936e9 + 16_994_467_840 / 60e9)
    assert plan.tokens_per_s == pytest.approx(3.255, abs=1e-3)


def test_70b_in_64_gb_of_main_memory() -> None:
    """80 layers and the head are read at 60 GB/s: 39 435 534 336 bytes, 0.657 s a token; the draft triples that."""
    machine = Machine(64 * GIB, 8, (), gbps(60))
    chosen, plain = alternatives(machine, of_70b())
    assert plain.draft is None
    assert plain.seconds == pytest.approx(39_435_534_336 / 60e9) == pytest.approx(0.657259, abs=1e-6)
    assert chosen.draft == ON_CPU
    assert chosen.seconds == pytest.approx((8 * DRAFT_READ + 39_435_534_336) / 60e9 / ((1 - 0.7**9) / 0.3))
    assert not chosen.is_paged


def test_70b_in_32_gb_is_read_from_the_disk() -> None:
    """It does not fit, so a pass reads it all from the disk too, at 3 GB/s: 13.8 s a token."""
    machine = Machine(32 * GIB, 8, (), gbps(60), gbps(3))
    plain = without_draft(alternatives(machine, of_70b()))
    assert plain.is_paged
    assert (
        plain.seconds == pytest.approx(39_435_534_336 / 60e9 + 39_435_534_336 / 3e9) == pytest.approx(13.8024, abs=1e-4)
    )
    assert plain.use["CPU"].allocated < 32 * GIB
    with pytest.raises(ResourceError) as caught:
        best(machine, of_70b(), PlacementRequest(is_mapped=False))
    # 39.7 GB of weights, 1.34 GB of cache at 4096 tokens, an eighth of that at 512; 95 % of 32 GiB are 32.6 GB.
    assert 6.5e9 < caught.value.detail["missing_bytes"] < 8.5e9
    assert caught.value.exit_code == 7


def test_8b_on_8_gb_fits_with_its_draft() -> None:
    """Layers 32 x 122 716 160, head 295 518 208, cache 536 870 912, compute 125 829 120: 4 885 135 360, and the draft's
    907 845 632 make 5 792 980 992 of 7 988 639 170 bytes.
    """
    machine = Machine(16 * GIB, 8, (MachineDevice("CUDA0", 8 * GIB, gbps(448)),), gbps(50))
    plan = best(machine, of_8b())
    assert (plan.target, plan.draft) == (Layout(("CUDA0",), (33,)), Layout(("CUDA0",), (17,)))
    assert plan.use["CUDA0"].total == 5_792_980_992
    assert plan.use["CUDA0"].total < 8 * GIB * 0.93
    one = (32 * 122_716_160 + 295_518_208 + 536_870_912 / 4) / 448e9
    assert without_draft(alternatives(machine, of_8b())).seconds == pytest.approx(one)
    assert plan.seconds == pytest.approx((3 * DRAFT_READ / 448e9 + one) / ((1 - 0.7**4) / 0.3))


@pytest.mark.parametrize("n_devices", [1, 2])
def test_8b_is_put_onto_the_devices_whole_wherever_that_fits(n_devices: int) -> None:
    """While main memory has a layer, a device also keeps room for the largest weights, the head's 295 501 824 bytes: 32
    of the 33 layers come to 5 041 143 808, all of them to 4 885 135 360. At every size that holds all, all is there.
    """
    models, before, n_whole = pair(LLAMA_8B, None), float("inf"), 0
    for memory in range(4 * GIB // n_devices, 6 * GIB // n_devices, GIB // 32):
        devices = tuple(MachineDevice(f"CUDA{i}", memory, gbps(448)) for i in range(n_devices))
        machine = Machine(16 * GIB, 8, devices, gbps(50))
        plan, search = best(machine, models), Search(machine, models)
        names = tuple(device.name for device in devices)
        splits = [(n, 33 - n) for n in range(1, 33)] if n_devices == 2 else [(33,)]
        fits = any(search.predict(plan.context, Layout(names, counts), None) is not None for counts in splits)
        assert (plan.target.n_offloaded == 33) == fits, memory
        assert plan.seconds <= before * (1 + 1e-12), "more memory never makes it slower"
        before, n_whole = plan.seconds, n_whole + fits
    assert 10 < n_whole < 64


def test_apple_unified_memory_is_counted_once() -> None:
    """Two thirds of 16 GiB are the GPU's; what it takes is main memory too. At 8 GiB, of which 5 are the GPU's, the
    pair's 5.8 GB no longer fit: 93 % of 5 GiB are 4.99 GB, enough for the target's 4.885 GB alone.
    """
    metal = MachineDevice("MTL0", int(16 * GIB * 2 / 3), gbps(100), is_unified=True)
    plan = best(Machine(16 * GIB, 8, (metal,), gbps(80)), of_8b())
    assert (plan.target.devices, plan.draft) == (("MTL0",), Layout(("MTL0",), (17,)))
    assert sum(use.total for use in plan.use.values()) < 16 * GIB
    small = MachineDevice("MTL0", 5 * GIB, gbps(100), is_unified=True)
    plan = best(Machine(8 * GIB, 8, (small,), gbps(80)), of_8b())
    assert plan.use["MTL0"].total <= 5 * GIB * 0.93
    assert plan.use["MTL0"].total + plan.use["CPU"].allocated <= 8 * GIB * 0.95


def test_a_gpu_in_the_processor_is_used_once_it_was_found_faster() -> None:
    """It reads the same memory; one of Apple's is faster than the cores beside it, which is known of all of them."""
    within = MachineDevice("Vulkan0", 12 * GIB, is_unified=True, is_integrated=True)
    plan = best(Machine(16 * GIB, 8, (within,)), of_8b())
    assert (plan.target, plan.draft) == (ON_CPU, ON_CPU)
    apart = replace(within, is_integrated=False)
    assert best(Machine(16 * GIB, 8, (apart,)), of_8b()).target.devices == ("Vulkan0",)
    measured = replace(within, rates=gbps(60))
    assert best(Machine(16 * GIB, 8, (measured,), gbps(50)), of_8b()).target.devices == ("Vulkan0",)


def test_cpu_only() -> None:
    """8B: 3 926 917 120 + 295 518 208 + 134 217 728 bytes at 40 GB/s, 9.2 tokens a second without a draft."""
    plain = without_draft(alternatives(Machine(16 * GIB, 4, (), gbps(40)), of_8b()))
    assert plain.tokens_per_s == pytest.approx(40e9 / 4_356_653_056)
    assert plain.threads == 4


def test_experts_stay_in_main_memory() -> None:
    """A layer of the 30B model has 339 738 624 bytes of experts, of which a token reads 8 of 128, and 10.7 MB of all
    else, which it reads whole: on 8 GB the experts of 29 layers stay behind, and no layer does. A token reads an eighth
    of the weights, so a draft of 1B costs more than it brings.
    """
    machine = Machine(32 * GIB, 8, (MachineDevice("CUDA0", 8 * GIB, gbps(448)),), gbps(50))
    models = of_experts()
    plan = best(machine, models)
    assert plan.target == Layout(("CUDA0",), (49,), cpu_experts=29)
    assert plan.draft is None
    assert models.target.layers[0].experts == 128 * 3 * 2048 * 768 * 9 // 16 == 339_738_624
    assert plan.use["CPU"].weights == models.target.embedding + 29 * 339_738_624


def test_two_devices_are_filled_fastest_first_and_the_head_is_on_the_last() -> None:
    devices = (MachineDevice("slow", 24 * GIB, gbps(448)), MachineDevice("fast", 24 * GIB, gbps(936)))
    plan = best(Machine(64 * GIB, 8, devices, gbps(60)), of_70b())
    assert plan.target.devices == ("slow", "fast")
    assert sum(plan.target.counts) == 81
    assert plan.draft == Layout(("fast",), (17,))


def test_without_figures_plans_are_put_in_order_and_nothing_is_predicted() -> None:
    plans = alternatives(Machine(64 * GIB, 8, (MachineDevice("CUDA0", 24 * GIB),)), of_70b())
    assert [plan.tokens_per_s for plan in plans] == [None] * len(plans)
    assert {plan.basis for plan in plans} == {"not measured"}
    assert plans[0].draft == Layout(("CUDA0",), (17,))
    half = Machine(64 * GIB, 8, (MachineDevice("CUDA0", 24 * GIB, gbps(936)),))  # the CPU's are not known
    assert best(half, of_70b()).tokens_per_s is None
    assert best(half, of_8b()).tokens_per_s is not None  # and not needed


def test_a_smaller_context_is_taken_only_where_none_is_asked_for() -> None:
    machine = Machine(int(0.5 * GIB), 2, (), gbps(40), gbps(2))
    models = pair(LLAMA_8B, None)
    assert best(machine, models).context.n_ctx < 4096
    with pytest.raises(ResourceError) as caught:
        best(machine, models, PlacementRequest(n_ctx=8192))
    assert caught.value.detail["missing_bytes"] > 0


def test_a_quantised_cache_is_taken_only_where_it_is_left_to_the_plan() -> None:
    """It changes the target's distribution a little, so speed alone is no reason."""
    machine = Machine(64 * GIB, 8, (MachineDevice("CUDA0", 24 * GIB, gbps(936)),), gbps(60))
    assert best(machine, of_70b(), PlacementRequest(n_ctx=32768)).context.kv_type == "f16"
    assert best(machine, of_70b(), PlacementRequest(n_ctx=32768, kv_type="auto")).context.kv_type == "q8_0"


def test_a_draft_that_is_named_is_kept_and_what_is_faster_without_it_is_told() -> None:
    """The model with experts, whose draft costs more than it brings."""
    machine = Machine(32 * GIB, 8, (MachineDevice("CUDA0", 8 * GIB, gbps(448)),), gbps(50))
    plan, plain = best_and_plain(machine, of_experts(), PlacementRequest(needs_draft=True))
    assert plan.draft is not None
    assert plain.draft is None
    assert plain.seconds < plan.seconds
    assert best(machine, of_experts()) == plain


@pytest.mark.parametrize(
    ("asked", "draft", "layers"),
    [
        ("off", ON_CPU, 46),
        ("0", ON_CPU, 46),
        ("all", Layout(("CUDA0",), (17,)), 44),
        ("99", Layout(("CUDA0",), (17,)), 44),
        ("5", Layout(("CUDA0",), (5,)), 45),
    ],
)
def test_a_draft_that_is_put_somewhere_is_counted_there(asked: str, draft: Layout, layers: int) -> None:
    """What it takes of the device is not the target's, and without it there are 46 layers (see above)."""
    machine = Machine(64 * GIB, 8, (MachineDevice("CUDA0", 24 * GIB, gbps(936)),), gbps(60))
    plan, plain = best_and_plain(machine, of_70b(), PlacementRequest(needs_draft=True, draft_gpu=asked))
    assert plan.draft == draft
    assert plan.target == Layout(("CUDA0",), (layers,))
    assert plan.use["CUDA0"].total <= 24 * GIB * 0.93
    assert plain.target == Layout(("CUDA0",), (46,))


@pytest.mark.parametrize(("asked", "n_layers"), [("all", 33), ("40", 33), ("30", 30)])
def test_a_draft_that_no_device_holds_is_spread_over_several(asked: str, n_layers: int) -> None:
    """An 8B of 5 GB on two devices of 4 GiB; a larger third has it alone, one of them by itself does not."""
    small = [MachineDevice(f"CUDA{i}", 4 * GIB, gbps(400)) for i in range(2)]
    machine = Machine(64 * GIB, 8, tuple(small), gbps(60))
    models, request = pair(LLAMA_70B, LLAMA_8B), PlacementRequest(needs_draft=True, draft_gpu=asked)
    plan = best(machine, models, request)
    assert plan.draft is not None
    assert (set(plan.draft.devices), plan.draft.n_offloaded) == ({"CUDA0", "CUDA1"}, n_layers)
    for device in small:
        assert plan.use[device.name].total <= device.memory * 0.93
    larger = replace(machine, devices=(*small, MachineDevice("CUDA2", 8 * GIB, gbps(100))))
    assert best(larger, models, request).draft == Layout(("CUDA2",), (n_layers,))
    assert best(replace(machine, devices=tuple(small[:1])), models, request).draft is None
