"""What holds of every plan for every pair on every machine: it fits, nothing simpler beats it, memory never hurts."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from localspec.errors import ResourceError
from localspec.models.gguf.layer_sizes import Anatomy, Layer
from localspec.models.plan.layout_search import PlacementPlan, PlacementRequest, Search, best
from localspec.models.plan.machine import CPU, Machine, MachineDevice, flat
from localspec.models.plan.memory import ContextPlan, compute_bytes, layer_cache
from localspec.models.plan.memory_use import ON_CPU, Layout, MemoryUse, whole
from localspec.models.plan.models import Models

MB = 10**6
QUICK = settings(max_examples=40, deadline=None)


@st.composite
def anatomies(draw: st.DrawFn, largest: int = 40, largest_head: int = 0) -> Anatomy:
    """Models of up to eight layers that differ in everything planning looks at."""
    n_experts = draw(st.sampled_from([0, 0, 8]))
    layers = tuple(
        Layer(
            draw(st.integers(1, largest)) * MB,
            draw(st.integers(1, largest)) * MB if n_experts else 0,
            draw(st.sampled_from([0, 256, 1024])),
            draw(st.sampled_from([0, 256, 1024])),
        )
        for _ in range(draw(st.integers(1, 8)))
    )
    head = draw(st.integers(1, largest_head or largest)) * MB
    return Anatomy(
        layers=layers,
        embedding=head,
        output=head,
        is_tied=draw(st.booleans()),
        width=draw(st.sampled_from([128, 1024])),
        ff=draw(st.sampled_from([256, 4096])),
        n_heads=8,
        n_vocab=draw(st.sampled_from([100, 30_000])),
        n_experts=n_experts,
        n_used=2 if n_experts else 0,
        n_next=0,
        largest=head,
        types=(("Q4_K", 2), ("Q8_0", 1)),
    )


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    devices = tuple(
        MachineDevice(
            f"GPU{i}",
            draw(st.integers(0, 800)) * MB,
            flat(draw(st.integers(1, 1000)) * 1e9, "given"),
            is_unified=draw(st.booleans()),
        )
        for i in range(draw(st.integers(0, 2)))
    )
    disk = flat(draw(st.integers(1, 5)) * 1e9, "given")
    return Machine(draw(st.integers(50, 2000)) * MB, 4, devices, flat(draw(st.integers(5, 100)) * 1e9, "given"), disk)


PAIRS = st.builds(Models, anatomies(), st.none() | anatomies(10), st.just(2048), st.sampled_from([1024, 4096]))
HEADY = st.builds(Models, anatomies(40, 400), st.none() | anatomies(10, 100), st.just(2048), st.just(2048))
WISHES = st.builds(
    PlacementRequest,
    n_ctx=st.sampled_from([None, 256, 2048]),
    kv_type=st.sampled_from(["f16", "q8_0", "auto"]),
    has_flash=st.booleans(),
    is_mapped=st.booleans(),
    acceptance=st.floats(0, 1),
)


def planned(machine: Machine, models: Models, request: PlacementRequest) -> PlacementPlan | None:
    refusal: ResourceError | None = None
    try:
        return best(machine, models, request)
    except ResourceError as error:
        refusal = error
    assert refusal.detail["missing_bytes"] > 0
    return None


@QUICK
@given(machines(), PAIRS, WISHES)
def test_never_over_the_memory(machine: Machine, models: Models, request: PlacementRequest) -> None:
    plan = planned(machine, models, request)
    assume(plan is not None)
    assert plan is not None
    on_devices = {name: use.total for name, use in plan.use.items() if name != CPU}
    for name, total in on_devices.items():
        assert total <= machine.by_name[name].memory
    in_ram = plan.use[CPU].allocated + sum(n for name, n in on_devices.items() if machine.by_name[name].is_unified)
    assert in_ram <= machine.ram
    if not (request.is_mapped and plan.is_paged):
        assert in_ram + plan.use[CPU].weights <= machine.ram
    if request.n_ctx is not None:
        assert plan.context.n_ctx == request.n_ctx


@QUICK
@given(machines(), PAIRS | HEADY, WISHES)
def test_never_slower_than_the_plans_anybody_would_try_first(
    machine: Machine, models: Models, request: PlacementRequest
) -> None:
    plan = planned(machine, models, request)
    search = Search(machine, models, request)
    names = [CPU, *(device.name for device in machine.devices)]
    contexts = (
        [plan.context] if plan is not None else [ContextPlan(n, "f16", request.has_flash) for n in search.contexts()]
    )
    drafts: list[Layout | None] = [None]
    if models.draft is not None:
        drafts += [whole(name, models.draft) for name in names]
    for context in contexts:
        for name in names:
            for draft in drafts:
                trivial = search.predict(context, whole(name, models.target), draft)
                if trivial is not None and (request.kv_type == "auto" or plan is not None):
                    assert plan is not None
                    assert plan.seconds <= trivial.seconds * (1 + 1e-12)


@QUICK
@given(machines(), PAIRS, WISHES, st.integers(1, 2000), st.integers(-1, 1))
def test_more_memory_never_makes_it_slower(
    machine: Machine, models: Models, request: PlacementRequest, more: int, where: int
) -> None:
    """`where` -1 is main memory. A larger context counts as better, whatever it costs."""
    assume(where < len(machine.devices))
    if where < 0:
        larger = replace(machine, ram=machine.ram + more * MB)
    else:
        devices = list(machine.devices)
        devices[where] = replace(devices[where], memory=devices[where].memory + more * MB)
        larger = replace(machine, devices=tuple(devices))
    before, after = planned(machine, models, request), planned(larger, models, request)
    if before is not None:
        assert after is not None
        assert after.context.n_ctx >= before.context.n_ctx
        if after.context.n_ctx == before.context.n_ctx:
            assert after.seconds <= before.seconds * (1 + 1e-12)


LAYOUTS = st.builds(lambda a, b, experts: (a, b, experts), st.integers(0, 9), st.integers(0, 9), st.integers(0, 8))


@QUICK
@given(anatomies(), LAYOUTS, st.sampled_from(["f16", "q8_0"]))
def test_the_ledger_adds_up(parts: Anatomy, numbers: tuple[int, int, int], kv_type: str) -> None:
    """Against a sum over the layers, one by one."""
    n = len(parts.layers)
    first, second, experts = min(numbers[0], n + 1), numbers[1], min(numbers[2], n)
    counts = (first, min(second, n + 1 - first))
    names = tuple(name for name, count in zip(("a", "b"), counts, strict=True) if count)
    layout = Layout(names, tuple(count for count in counts if count), experts if parts.n_experts else 0)
    context = ContextPlan(1024, kv_type)
    weights, cache = {CPU: parts.embedding, "a": 0, "b": 0}, {CPU: 0, "a": 0, "b": 0}
    for index, layer in enumerate(parts.layers):
        place = layout.place(index, n)
        weights[place] += layer.dense
        weights[CPU if index < layout.cpu_experts else place] += layer.experts
        cache[place] += layer_cache(parts, layer, context)
    if layout.place(n, n) != CPU or not parts.is_tied:
        weights[layout.place(n, n)] += parts.output
    use = MemoryUse(parts, context).use(layout)
    assert set(use) == {CPU, *names}
    for place, one in use.items():
        assert (one.weights, one.cache) == (weights[place], cache[place])
    assert use[CPU].outputs == 4 * 128 * parts.n_vocab
    if layout == ON_CPU:
        assert use[CPU].compute == compute_bytes(parts, context, has_layers=True, has_head=True)
