"""What a context takes beside the weights: cache, compute buffers, outputs.

The cache follows from the header. The compute buffer is llama.cpp's own; its size was read off its dry runs
(`no_alloc`) for eight shapes from 5 million to 70 billion parameters at contexts of 1024, 4096 and 16384, with and
without flash attention, batches of 512. It is the largest stage of a pass, beside the attention mask:

    feed-forward   4 n_batch (3 ff + 4 width [+ used experts x width])
    head           4 n_outputs n_vocab + 8 n_batch width
    attention      4 n_batch (n_ctx heads + 5 width) without flash attention
    mask           2 n_batch n_ctx with flash attention, 4 without

Of the 48 sizes 41 are met within 6 %; one is told 10 % too small (experts without flash attention), six are told 8 to
40 % too large (the most where the feed-forward part is no wider than the model). A test repeats part of this. What
devices other than the CPU and the RPC backend's add was not measured; planning leaves a margin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.models.gguf.layer_sizes import Anatomy, Layer
from localspec.models.plan.machine import CPU, Machine, MachineDevice
from localspec.tuning import MARGIN_DEVICE, MARGIN_RAM, ROLLBACK

PAD = 256  # llama.cpp rounds contexts up to this


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """How a context is opened: see `backends.context`, which opens it so. Layers that look at a window keep the whole
    text too (swa_full): a window that forgets can neither roll back nor reuse a prefix. Recurrent layers have
    `n_states` states."""

    n_ctx: int
    kv_type: str = "f16"
    has_flash: bool = True
    n_batch: int = 512
    n_outputs: int = 128
    n_sequences: int = 16
    n_states: int = 1


@dataclass(frozen=True, slots=True)
class Use:
    """Bytes in one place. `weights` in main memory are mapped from the file; everything else is allocated."""

    weights: int = 0
    cache: int = 0
    compute: int = 0
    outputs: int = 0

    @property
    def allocated(self) -> int:
        return self.cache + self.compute + self.outputs

    @property
    def total(self) -> int:
        return self.weights + self.allocated

    def __add__(self, other: Use) -> Use:
        return Use(
            self.weights + other.weights,
            self.cache + other.cache,
            self.compute + other.compute,
            self.outputs + other.outputs,
        )


def layer_cache(parts: Anatomy, layer: Layer, context: ContextPlan) -> int:
    n = -(-context.n_ctx // PAD) * PAD
    return parts.cache_bytes(layer, n, context.kv_type) + (context.n_states - 1) * layer.state


def n_states(parts: Anatomy, *, is_draft: bool = False) -> int:
    """Return how many states a context has, as `LoadOptions.n_states`: one more for what may be taken back. A target
    that rolls back in place has one for each such token. It also keeps one for another answer to its prompt."""
    if is_draft:
        return 2
    return (1 + ROLLBACK if parts.rolls_back else 2) + 1


def compute_bytes(parts: Anatomy, context: ContextPlan, *, has_layers: bool, has_head: bool) -> int:
    batch = min(context.n_batch, context.n_ctx)
    mask = (2 if context.has_flash else 4) * batch * context.n_ctx
    stages = [4 * batch * parts.width * 2]  # rows that come and go
    if has_layers:
        routed = parts.n_used * parts.width if parts.n_experts else 0
        stages.append(4 * batch * (3 * parts.ff + 4 * parts.width + routed))
        if not context.has_flash:
            stages.append(4 * batch * (context.n_ctx * parts.n_heads + 5 * parts.width))
    if has_head:
        stages.append(4 * min(context.n_outputs, batch) * parts.n_vocab + 8 * batch * parts.width)
    return max(stages) + mask


def usable(device: MachineDevice) -> int:
    return int(device.memory * (1 - MARGIN_DEVICE))


def ram_room(machine: Machine, use: Mapping[str, Use]) -> int:
    unified = sum(needed.total for name, needed in use.items() if name != CPU and machine.by_name[name].is_unified)
    return int(machine.ram * (1 - MARGIN_RAM)) - use[CPU].allocated - unified


def missing(machine: Machine, use: Mapping[str, Use], *, is_mapped: bool) -> int:
    """Return by how many bytes a plan exceeds the memory, 0 where it fits. Mapped weights may exceed main memory: they
    are then read from the disk as they are used."""
    over = [needed.total - usable(machine.by_name[name]) for name, needed in use.items() if name != CPU]
    room = ram_room(machine, use)
    return max(0, *over, -room if is_mapped else use[CPU].weights - room)
