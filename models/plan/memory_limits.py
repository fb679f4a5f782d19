"""How much of a machine's memory a plan may fill, and by how much it would exceed it."""

from __future__ import annotations

from collections.abc import Mapping

from localspec.models.plan.machine import CPU, Device, Machine
from localspec.models.plan.memory import Use

MARGIN_DEVICE = 0.07  # of a device's free memory: libraries' work space, fragments, other programs' windows
MARGIN_RAM = 0.05


def usable(device: Device) -> int:
    """Return the bytes of a device that a plan may fill."""
    return int(device.memory * (1 - MARGIN_DEVICE))


def ram_room(machine: Machine, use: Mapping[str, Use]) -> int:
    """Return the main memory left for mapped weights; below zero where not even the rest fits."""
    unified = sum(one.total for name, one in use.items() if name != CPU and machine.by_name[name].is_unified)
    return int(machine.ram * (1 - MARGIN_RAM)) - use[CPU].allocated - unified


def missing(machine: Machine, use: Mapping[str, Use], *, is_mapped: bool) -> int:
    """Return by how many bytes a plan exceeds the memory, 0 where it fits.

    Mapped weights may exceed main memory: they are then read from the disk as they are used.
    """
    over = [one.total - usable(machine.by_name[name]) for name, one in use.items() if name != CPU]
    room = ram_room(machine, use)
    return max(0, *over, -room if is_mapped else use[CPU].weights - room)
