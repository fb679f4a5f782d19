"""Where the parts of one model are: which of its last layers on which device, which experts stay behind."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.models.gguf.layer_sizes import Anatomy
from localspec.models.plan.machine import CPU


@dataclass(frozen=True, slots=True)
class Layout:
    """A model's last layers on devices; the first stay in main memory.

    `devices` name them in the model's order, `counts` how many layers each has. The head counts as a layer after the
    last, as in llama.cpp, and so is on the last device. Routed experts of the first `cpu_experts` layers stay in main
    memory.
    """

    devices: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    cpu_experts: int = 0

    @property
    def n_offloaded(self) -> int:
        """Return how many layers are on devices, the head counted."""
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

    def tell(self, parts: Anatomy) -> str:
        """Return the layout for people: 42 of 81 layers on CUDA0."""
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
    """Return the layout of a model that is on one device altogether."""
    return ON_CPU if device == CPU else Layout((device,), (len(parts.layers) + 1,))
