"""Whether a pair would fit on this machine, from the sizes of its files alone.

A sketch for choosing: what a load really takes, `localspec plan` and the load itself say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.errors import LocalspecError
from localspec.settings.lone_jobs import MachineFacts
from localspec.worker.ask import ask

BESIDE = 1.15  # of the weights: caches and buffers


MIN_DOWNLOAD = 200_000_000  # bytes of them


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Free bytes: main memory (None: not known) and those of the devices that take layers."""

    ram: int | None = None
    devices: tuple[int, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> FreeMemory:
        """Return what a machine_facts of this machine says."""
        return cls(facts["ram"], tuple(device["free"] for device in facts["all"] if device["takes_layers"]))


def this_machine() -> FreeMemory:
    """Ask llama.cpp, in a process of its own, what there is; nothing is known where it does not answer."""
    try:
        return FreeMemory.of(ask(MachineFacts()))
    except LocalspecError:
        return FreeMemory()


@dataclass(frozen=True, slots=True)
class Fit:
    """A mark and the words for it."""

    mark: str
    words: str


def fit(n_bytes: int, memory: FreeMemory) -> Fit:
    """Return whether models of so many bytes fit."""
    if not n_bytes or memory.ram is None:
        return Fit("", "")
    needed = n_bytes * BESIDE + MIN_DOWNLOAD
    if any(needed <= free for free in memory.devices):
        return Fit("✓", "fits on a GPU")
    if needed <= memory.ram:
        return Fit("✓", "fits in main memory")
    if needed <= memory.ram + sum(memory.devices):
        return Fit("!", "fits on GPU and main memory together")
    return Fit("✗", "does not fit in the memory that is free")
