"""A machine as planning sees it: memory that is free, and how fast each part reads weights, where that is known."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from localspec.models.gguf.types import TENSOR_TYPES

CPU = "CPU"
DISK = "disk"
GB = 1e9

# Bytes a second. They decide which of two plans comes first where nothing was measured, and are never shown.
TYPICAL = {"gpu": 400 * GB, "unified": 120 * GB, "remote": 10 * GB, "cpu": 40 * GB, "disk": 2 * GB}
# A GPU within an x86 processor reads the same memory modules over the same controller, and is often the slower reader.
# A little below the CPU's figure, so that until both are measured everything stays on the CPU.
TYPICAL["integrated"] = TYPICAL["cpu"] - GB

Points = tuple[tuple[int, float], ...]  # rows of a pass, and bytes of weights read a second at that many; ascending
BITS_OF = {kind.name: kind.bits for kind in TENSOR_TYPES.values()}  # of a weight


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast something reads weights. `points` by tensor type; `source` says where the figures are from. A pass of n
    rows reads the weights once and multiplies n times, so from some n on it is slower than reading."""

    points: Mapping[str, Points]
    source: str

    def seconds_per_byte(self, kind: str, rows: int) -> float:
        """Return the time for a byte of weights of tensor type `kind`, or of the measured type nearest in bits. Between
        two measured numbers of rows the time is interpolated; beyond the last it grows with the rows."""
        wanted = BITS_OF.get(kind, 8)
        nearest = min(self.points, key=lambda name: (name != kind, abs(BITS_OF.get(name, 8) - wanted), name))
        points = self.points[nearest]
        below = [point for point in points if point[0] <= rows]
        above = [point for point in points if point[0] >= rows]
        if not above:
            return rows / points[-1][0] / points[-1][1] if len(points) > 1 else 1 / points[-1][1]
        if not below:
            return 1 / above[0][1]
        (n, slow), (m, fast) = below[-1], above[0]
        share = 0.0 if m == n else (rows - n) / (m - n)
        return (1 - share) / slow + share / fast


def flat(bytes_per_s: float, source: str) -> Rates:
    """Return rates of one figure: rows are taken to cost nothing."""
    return Rates({"Q8_0": ((1, bytes_per_s),)}, source)


@dataclass(frozen=True, slots=True)
class MachineDevice:
    """A device other than the CPU. `memory` bytes of it are free. `is_unified`: its memory is the main memory.
    `is_remote`: it is behind a network. `is_integrated`: it reads main memory no faster than the CPU does."""

    name: str
    memory: int
    rates: Rates | None = None
    is_unified: bool = False
    is_remote: bool = False
    is_integrated: bool = False

    @property
    def order(self) -> Rates:
        shared = "integrated" if self.is_integrated else "unified" if self.is_unified else "gpu"
        return self.rates or flat(TYPICAL["remote" if self.is_remote else shared], "")


@dataclass(frozen=True, slots=True)
class Machine:
    """Main memory that is free in bytes, physical cores, devices, and the rates of the CPU and of the disk. `cores` is
    0 where nobody knows."""

    ram: int
    cores: int = 0
    devices: tuple[MachineDevice, ...] = ()
    cpu: Rates | None = None
    disk: Rates | None = None
    by_name: Mapping[str, MachineDevice] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {device.name: device for device in self.devices})

    @property
    def fastest_first(self) -> tuple[MachineDevice, ...]:
        return tuple(sorted(self.devices, key=lambda device: device.order.seconds_per_byte("Q8_0", 1)))

    def rates(self, place: str) -> Rates:
        if place == CPU:
            return self.cpu or flat(TYPICAL["cpu"], "")
        if place == DISK:
            return self.disk or flat(TYPICAL["disk"], "")
        return self.by_name[place].order

    def knows(self, place: str) -> bool:
        return bool(self.rates(place).source)
