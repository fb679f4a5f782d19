"""The decision: of all ways to place a pair that fit into the memory, the one that is predicted to decode fastest.

Every candidate fits by construction, and doing without the draft, leaving all on the CPU and putting all on a device
are among them; so no plan is worse, by its own prediction, than these, and more memory never makes it slower.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from localspec.control.chain import best_length
from localspec.errors import ResourceError
from localspec.models.gguf.layer_sizes import Anatomy
from localspec.models.plan.machine import CPU, DISK, Machine
from localspec.models.plan.memory import ContextPlan, Use, missing, n_states, ram_room, usable
from localspec.models.plan.memory_use import ON_CPU, Layout, MemoryUse, PassRead, pass_seconds, whole
from localspec.models.plan.models import Models
from localspec.tuning import DEFAULT_CTX, SMALLEST_CTX, TINY_WEIGHTS

ACCEPTANCE = 0.7  # of a draft token, until somebody says better: an assumption, and called one wherever it shows
MAX_PERMUTED = 3
EVERY_SPLIT = 24  # layers: up to here each split is tried, which makes more memory never slower; 80 took 1.5 s
_ANOTHER = ""  # a name that no device has


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What the person wants. None and "auto" leave it to the plan; `kv_type` "auto" may take q8_0 where it is faster.
    `acceptance` is the probability that a draft token stands, where none was measured. `needs_draft`: plan without the
    draft only where nothing with it fits. `draft_gpu` is where the draft goes, as --draft-gpu says it."""

    n_ctx: int | None = None
    kv_type: str = "f16"
    has_flash: bool = True
    is_mapped: bool = True
    acceptance: float = ACCEPTANCE
    needs_draft: bool = False
    threads: int | None = None
    draft_gpu: str = "auto"


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """One way to place a pair, with what it takes and how fast it is predicted to be.

    `threads` is 0 where the cores are not known. `use` is by place, both models together. `k` is the draft length the
    prediction is for. `seconds` a token orders plans; `tokens_per_s` is None where a rate it rests on is not known, and
    `basis` says where the rates are from. `is_paged`: the weights in main memory exceed it and are read from the disk
    in every pass. `guess` and `check` are the seconds of a pass of the draft, and of one of the target with k + 1 rows.
    """

    target: Layout
    draft: Layout | None
    context: ContextPlan
    draft_context: ContextPlan | None
    threads: int
    draft_threads: int | None
    use: Mapping[str, Use]
    is_paged: bool
    k: int
    seconds: float
    tokens_per_s: float | None
    basis: str
    guess: float = 0.0
    check: float = 0.0


def best(machine: Machine, models: Models, request: PlacementRequest | None = None) -> PlacementPlan:
    """Return the fastest plan that fits; raises ResourceError, with how much is missing, if none does."""
    return best_and_plain(machine, models, request)[0]


def best_and_plain(
    machine: Machine, models: Models, request: PlacementRequest | None = None
) -> tuple[PlacementPlan, PlacementPlan]:
    """Return the plan to follow, and the fastest one without the draft, which leaves more room to the target."""
    search = Search(machine, models, request)
    for n_ctx in search.contexts():
        plans = sorted(search.candidates(n_ctx), key=_rank)
        if plans:
            plain = next((plan for plan in plans if plan.draft is None), plans[0])
            if search.request.needs_draft:
                return next((plan for plan in plans if plan.draft is not None), plain), plain
            return plans[0], plain
    raise search.too_large()


def alternatives(machine: Machine, models: Models, request: PlacementRequest | None = None) -> list[PlacementPlan]:
    """Return the best plan for each place of the draft, for none, and with the target on the CPU; the best first."""
    search = Search(machine, models, request)
    chosen = best(machine, models, search.request)
    rows: dict[object, PlacementPlan] = {}
    for plan in sorted(search.candidates(chosen.context.n_ctx), key=_rank):
        rows.setdefault(None if plan.draft is None else plan.draft.devices, plan)
        if not plan.target.n_offloaded:
            rows.setdefault("CPU", plan)
    return sorted({id(plan): plan for plan in rows.values()}.values(), key=_rank)


class Search:
    def __init__(self, machine: Machine, models: Models, request: PlacementRequest | None = None) -> None:
        self.machine = machine
        self.models = models
        self.request = request or PlacementRequest()
        self._ledgers: dict[tuple[bool, ContextPlan], MemoryUse] = {}

    def contexts(self) -> Iterator[int]:
        """Yield the contexts to try: the one that is wanted, or the default and then half as much each time."""
        if self.request.n_ctx is not None:
            yield self.request.n_ctx
            return
        n = min(self.models.n_ctx_train or DEFAULT_CTX, DEFAULT_CTX)
        smallest = min(SMALLEST_CTX, n)
        while n >= smallest:
            yield n
            n //= 2

    def candidates(self, n_ctx: int) -> Iterator[PlacementPlan]:
        for kv_type in ("f16", "q8_0") if self.request.kv_type == "auto" else (self.request.kv_type,):
            context = ContextPlan(n_ctx, kv_type, self.request.has_flash)
            drafts: list[Layout | None] = [None]
            if self.models.draft is not None:
                drafts += self._draft_layouts(context, self.models.draft)
            for draft in drafts:
                for target in self._layouts(context, self._room_beside(draft, context)):
                    plan = self.predict(context, target, draft)
                    if plan is not None:
                        yield plan

    def predict(self, context: ContextPlan, target: Layout, draft: Layout | None) -> PlacementPlan | None:
        ledger, draft_ledger = self._ledger(context), None
        use = dict(ledger.use(target))
        if draft is not None:
            draft_ledger = self._ledger(context, is_draft=True)
            for place, needed in draft_ledger.use(draft).items():
                use[place] = use.get(place, Use()) + needed
        if missing(self.machine, use, is_mapped=self.request.is_mapped) or self._is_apart(target, draft):
            return None
        is_paged = use[CPU].weights > ram_room(self.machine, use)
        seconds, k, guess, check = self._seconds(ledger, target, draft_ledger, draft, is_paged)
        is_behind = target.n_offloaded < len(self.models.target.layers) + 1 or bool(target.cpu_experts)
        needs_cpu = is_behind or (draft is not None and not draft.n_offloaded)
        places = {place for place in use if place != CPU or needs_cpu} | ({DISK} if is_paged else set())
        is_known = all(self.machine.knows(place) for place in places)
        threads = self.request.threads or self.machine.cores
        return PlacementPlan(
            target=target,
            draft=draft,
            context=context,
            draft_context=None if draft_ledger is None else draft_ledger.context,
            threads=threads,
            draft_threads=None if draft_ledger is None else 1 if draft_ledger.parts.weights < TINY_WEIGHTS else threads,
            use=use,
            is_paged=is_paged,
            k=k,
            seconds=seconds,
            tokens_per_s=1 / seconds if is_known else None,
            basis=" and ".join(sorted({self.machine.rates(p).source for p in places})) if is_known else "not measured",
            guess=guess,
            check=check,
        )

    def too_large(self) -> ResourceError:
        n_ctx = list(self.contexts())[-1]
        kv_type = "q8_0" if self.request.kv_type == "auto" else self.request.kv_type
        use = self._ledger(ContextPlan(n_ctx, kv_type, self.request.has_flash)).use(ON_CPU)
        short = missing(self.machine, use, is_mapped=self.request.is_mapped)
        needed = use[CPU].allocated if self.request.is_mapped else use[CPU].total
        smaller = "a smaller --ctx, or --kv q8_0"
        return ResourceError(
            f"no way to place the model fits: a context of {n_ctx} tokens needs {needed / 1e9:.2f} GB of main memory, "
            f"and {short / 1e9:.2f} GB are missing",
            hint=smaller if self.request.is_mapped else "leave out --no-mmap, or take a smaller quantisation",
            detail={"needed_bytes": needed, "missing_bytes": short, "n_ctx": n_ctx},
        )

    def _seconds(
        self, ledger: MemoryUse, target: Layout, draft_ledger: MemoryUse | None, draft: Layout | None, is_paged: bool
    ) -> tuple[float, int, float, float]:
        """Return the time of a token, the draft length at which it is shortest, and those of both passes for that."""
        read = ledger.reads(target)

        def check(rows: int) -> float:
            return pass_seconds(self.machine, ledger.parts, read, rows, is_paged=is_paged)

        if draft is None or draft_ledger is None:
            return check(1), 0, 0.0, check(1)
        # The draft is used all the time, so its pages are the last to go.
        guess = pass_seconds(self.machine, draft_ledger.parts, draft_ledger.reads(draft), 1)
        how = self.models.guessing
        guess *= how.spelled
        if how.borrowed:
            head = target.place(ledger.n, ledger.n)
            guess += pass_seconds(self.machine, ledger.parts, {head: PassRead(how.borrowed)}, 1)
        accepted = how.chances(self.request.acceptance)
        checks = [check(k + 1) for k in range(1, len(accepted) + 1)]
        k, tokens, seconds = best_length(accepted, checks, guess, at_once=how.at_once)
        return seconds / tokens, k, guess, checks[k - 1]

    def _is_apart(self, target: Layout, draft: Layout | None) -> bool:
        if draft is None or self.models.draft is None or not self.models.guessing.is_own:
            return False
        n, own = len(self.models.target.layers), len(self.models.draft.layers)
        return target.place(n, n) != draft.place(own, own)

    def _ledger(self, context: ContextPlan, *, is_draft: bool = False) -> MemoryUse:
        ledger = self._ledgers.get((is_draft, context))
        if ledger is None:
            parts, own = self.models.target, context
            if is_draft:
                assert self.models.draft is not None, "there is a draft to place"
                trained = self.models.draft_n_ctx_train or context.n_ctx
                parts, own = self.models.draft, replace(context, n_ctx=min(context.n_ctx, trained))
            own = replace(own, n_states=n_states(parts, is_draft=is_draft))
            ledger = self._ledgers[is_draft, context] = MemoryUse(parts, own)
        return ledger

    def _room_beside(self, draft: Layout | None, context: ContextPlan) -> Mapping[str, int]:
        room = {device.name: usable(device) for device in self.machine.devices}
        if draft is not None:
            for name, use in self._ledger(context, is_draft=True).use(draft).items():
                if name != CPU:
                    room[name] -= use.total
        return room

    def _layouts(self, context: ContextPlan, room: Mapping[str, int]) -> Iterator[Layout]:
        """Yield ways to put the target onto the machine: on the CPU, and each number of last layers on the devices.

        A device is filled from the head down, and what does not fit goes on to the next: the fastest first, of up to
        three devices in every order, since which is fastest depends on the rows. Of a model of
        few layers, two devices also share them in every way. With routed experts, also all layers with the experts of
        the first so many kept in main memory.
        """
        yield ON_CPU
        ledger = self._ledger(context)
        fast = tuple(device.name for device in self.machine.fastest_first)
        orders = permutations(fast) if len(fast) <= MAX_PERMUTED else [fast]
        seen: set[Layout] = set()
        for chosen in dict.fromkeys(order[:i] for order in orders for i in range(1, len(fast) + 1)):
            for experts in range(ledger.n + 1) if ledger.parts.n_experts else (0,):
                counts = (ledger.n + 1,) if 0 < experts < ledger.n else range(1, ledger.n + 2)
                for count in counts:
                    for layout in _splits(ledger, chosen, room, count, experts):
                        if layout not in seen:
                            seen.add(layout)
                            yield layout

    def _draft_layouts(self, context: ContextPlan, parts: Anatomy) -> list[Layout]:
        """Return where a draft may go: altogether in one place, or with as many layers on devices as are asked for.
        Those may take several devices, but no more than they need."""
        asked, total = self.request.draft_gpu, len(parts.layers) + 1
        if asked == "auto":
            return [ON_CPU, *(whole(device.name, parts) for device in self.machine.devices)]
        count = 0 if asked == "off" else total if asked == "all" else min(int(asked), total)
        if not count:
            return [ON_CPU]
        ledger, room = self._ledger(context, is_draft=True), self._room_beside(None, context)
        fast = tuple(device.name for device in self.machine.fastest_first)
        for n in range(1, len(fast) + 1):
            orders = permutations(fast, n) if n == 1 or len(fast) <= MAX_PERMUTED else [fast[:n]]
            layouts = [_fill(ledger, order, room, count, 0) for order in orders]
            if any(layouts):
                return list(dict.fromkeys(layout for layout in layouts if layout is not None))
        return []


def _rank(plan: PlacementPlan) -> tuple[float, bool, int, str]:
    return plan.seconds, plan.context.kv_type != "f16", -plan.target.n_offloaded, str(plan.draft)


def _fill(ledger: MemoryUse, chosen: Sequence[str], room: Mapping[str, int], count: int, experts: int) -> Layout | None:
    """Put the last `count` layers onto `chosen`, the one to fill first in front; None if they do not fit."""
    layout, left = Layout((), (), experts), count
    for name in chosen:
        taken = _most(ledger, room[name], name, left, layout)
        if taken:
            layout = Layout((name, *layout.devices), (taken, *layout.counts), experts)
            left -= taken
        if not left:
            return layout
    return None


def _splits(
    ledger: MemoryUse, chosen: Sequence[str], room: Mapping[str, int], count: int, experts: int
) -> Iterator[Layout]:
    if len(chosen) != 2 or ledger.n > EVERY_SPLIT:
        layout = _fill(ledger, chosen, room, count, experts)
        if layout is not None:
            yield layout
        return
    first, second = chosen
    for taken in range(_most(ledger, room[first], first, count, Layout((), (), experts)), 0, -1):
        behind = Layout((first,), (taken,), experts)
        left = count - taken
        if not left:
            yield behind
        elif _most(ledger, room[second], second, left, behind) < left:
            return  # with fewer on the first, the second would have to take still more
        else:
            yield Layout((second, *behind.devices), (left, *behind.counts), experts)


def _most(ledger: MemoryUse, room: int, name: str, limit: int, behind: Layout) -> int:
    """Return how many layers, at most `limit`, fit onto a device in front of those that are placed already. The others
    of the `limit` are counted as on yet another device: then main memory has the layers that it has in the end, none
    where all go onto devices, and what a device takes only grows with its layers."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        devices, counts = (_ANOTHER, name, *behind.devices), (limit - middle, middle, *behind.counts)
        layout = Layout(devices, counts, behind.cpu_experts)
        if ledger.use(layout)[name].total <= room:
            low = middle
        else:
            high = middle - 1
    return low
