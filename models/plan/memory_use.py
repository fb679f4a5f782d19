"""Where the parts of a model are, the memory they take in each place, and how fast a pair so placed decodes.

Planning asks this of thousands of layouts, so the layers are summed once and a range of them is a difference of sums.
The speed is that of reading weights and caches.

A pass over one token reads every weight that the token uses once, wherever it is, one layer after the other:

    seconds = sum over places of bytes / rate(rows)

A pass over n rows reads the same, at the rate for n rows; of routed experts it reads all that some row uses, taken to
be drawn evenly, N (1 - (1 - used/N)^n). Speculation with k draft tokens, of which the first i all stand with the
probability a_i, yields 1 + a_1 + ... + a_k tokens a pass for k draft passes and one of k + 1 rows. Where each token is
accepted with the probability a, that is (1 - a^(k+1)) / (1 - a) (arXiv 2211.17192). Launches, samplers and copies of
memory are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from localspec.models.gguf.layer_sizes import Anatomy
from localspec.models.gguf.types import TENSOR_TYPES
from localspec.models.plan.machine import CPU, DISK, Machine
from localspec.models.plan.memory import ContextPlan, Use, compute_bytes, layer_cache
from localspec.tuning import LOW_BIT_ON_CPU

LONGEST_DRAFT = 16
FEW_BITS = frozenset(kind.name for kind in TENSOR_TYPES.values() if kind.bits < 4)
DEPTH = 1024  # tokens in the cache of the passes whose reading is told


@dataclass(slots=True)
class PassRead:
    """Bytes a pass reads in one place: whatever its rows, and of all routed experts, of which it reads a share."""

    steady: float = 0.0
    routed: float = 0.0


@dataclass(frozen=True, slots=True)
class LayerSpan:
    """The layers from `start` to before `end` that are at `place`, and how many bytes of theirs are what."""

    place: str
    start: int
    end: int
    dense: int
    experts: int
    experts_behind: int  # of these layers, in main memory
    cache: int


class MemoryUse:
    def __init__(self, parts: Anatomy, context: ContextPlan) -> None:
        self.parts = parts
        self.context = context
        self.n = len(parts.layers)
        self._dense = [0, *accumulate(layer.dense for layer in parts.layers)]
        self._experts = [0, *accumulate(layer.experts for layer in parts.layers)]
        self._cache = [0, *accumulate(layer_cache(parts, layer, context) for layer in parts.layers)]

    def use(self, layout: Layout) -> Mapping[str, Use]:
        """Return what the model and its context take in each place, main memory under "CPU"."""
        weights, cache = {CPU: self.parts.embedding}, {CPU: 0}  # rows are looked up there, wherever the layers are
        computing = set()
        for span in self._spans(layout):
            weights[span.place] = weights.get(span.place, 0) + span.dense + span.experts
            weights[CPU] += span.experts_behind
            cache[span.place] = span.cache
            computing |= {span.place} if span.end > span.start else set()
            computing |= {CPU} if span.experts_behind else set()
        head = layout.place(self.n, self.n)
        if head != CPU or not self.parts.is_tied:  # on the CPU a shared head is the embedding itself
            weights[head] += self.parts.output
        return {
            place: Use(
                weights[place],
                cache.get(place, 0),
                compute_bytes(self.parts, self.context, has_layers=place in computing, has_head=place == head)
                # A prompt's rows are multiplied on a device by weights that are copied over for it.
                + (self.parts.largest if place != CPU and CPU in computing else 0),
                4 * self.context.n_outputs * self.parts.n_vocab if place == CPU else 0,
            )
            for place in weights
        }

    def reads(self, layout: Layout) -> Mapping[str, PassRead]:
        """Return what a pass for the next token reads in each place, with `DEPTH` tokens in the cache."""
        depth = min(DEPTH, self.context.n_ctx) / max(1, self.context.n_ctx)
        read: dict[str, PassRead] = defaultdict(PassRead)
        for span in self._spans(layout):
            read[span.place].steady += span.dense + depth * span.cache
            read[span.place].routed += span.experts
            if span.experts_behind:
                read[CPU].routed += span.experts_behind
        read[layout.place(self.n, self.n)].steady += self.parts.output
        for index in range(self.n - self.parts.n_next, self.n):  # blocks that predict further tokens
            layer, place = self.parts.layers[index], layout.place(index, self.n)
            read[place].steady -= layer.dense + depth * (self._cache[index + 1] - self._cache[index])
            read[CPU if index < layout.cpu_experts else place].routed -= layer.experts
        return read

    def _spans(self, layout: Layout) -> Iterator[LayerSpan]:
        """Yield the runs of layers, main memory's first; the head belongs to the last one and is not counted."""
        start = 0
        counts = (self.n + 1 - layout.n_offloaded, *layout.counts)
        for place, count in zip((CPU, *layout.devices), counts, strict=True):
            end = start + count
            low, high = min(start, self.n), min(end, self.n)
            behind = min(max(layout.cpu_experts, low), high) if place != CPU else low
            yield LayerSpan(
                place,
                low,
                high,
                self._dense[high] - self._dense[low],
                self._experts[high] - self._experts[behind],
                self._experts[behind] - self._experts[low],
                self._cache[high] - self._cache[low],
            )
            start = end


@dataclass(frozen=True, slots=True)
class Layout:
    """A model's last layers on devices; the first stay in main memory. `devices` name them in the model's order,
    `counts` how many layers each has. The head counts as a layer after the last, as in llama.cpp, and so is on the last
    device. Routed experts of the first `cpu_experts` layers stay in main memory."""

    devices: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    cpu_experts: int = 0

    @property
    def n_offloaded(self) -> int:
        return sum(self.counts)

    def place(self, index: int, n_layers: int) -> str:
        """Return where layer `index` is; `n_layers` itself means the head."""
        at = n_layers + 1 - self.n_offloaded
        if index < at:
            return CPU
        for device, count in zip(self.devices, self.counts, strict=True):
            at += count
            if index < at:
                return device
        raise AssertionError("there are no layers after the head")

    def in_words(self, parts: Anatomy) -> str:
        total = len(parts.layers) + 1
        if not self.n_offloaded:
            return CPU
        where = " + ".join(
            name if count == total else f"{count} of {total} layers on {name}"
            for name, count in zip(self.devices, self.counts, strict=True)
        )
        return where + (f", experts of {self.cpu_experts} on {CPU}" if self.cpu_experts else "")


ON_CPU = Layout()


def whole(device: str, parts: Anatomy) -> Layout:
    return ON_CPU if device == CPU else Layout((device,), (len(parts.layers) + 1,))


def pass_seconds(
    machine: Machine, parts: Anatomy, read: Mapping[str, PassRead], rows: int, *, is_paged: bool = False
) -> float:
    """Return the time of a pass of `rows` rows; `is_paged`: main memory does not hold its share of the weights."""
    share = 1 - (1 - min(1.0, parts.used_share)) ** rows
    total = max(1, sum(n for _, n in parts.types))
    seconds = 0.0
    for place, bytes_read in read.items():
        n_bytes = bytes_read.steady + share * bytes_read.routed
        a_byte = sum(n / total * _seconds_per_byte(machine, place, kind, rows) for kind, n in parts.types)
        seconds += n_bytes * a_byte
        if place == CPU and is_paged:
            seconds += n_bytes * machine.rates(DISK).seconds_per_byte("Q8_0", 1)
    return seconds


def _seconds_per_byte(machine: Machine, place: str, kind: str, rows: int) -> float:
    """Return the time for a byte of weights of a type; a processor that was not measured with few bits is slower."""
    rates = machine.rates(place)
    slower = LOW_BIT_ON_CPU if place == CPU and kind in FEW_BITS and kind not in rates.points else 1.0
    return slower * rates.seconds_per_byte(kind, rows)


def assumed(acceptance: float) -> tuple[float, ...]:
    """Return the probabilities that the first k tokens all stand, for k from 1, if each does with `acceptance`."""
    return tuple(acceptance**k for k in range(1, LONGEST_DRAFT + 1))
