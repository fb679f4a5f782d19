"""The energy meter of the machine, where the system has one that anybody may read: Linux's powercap (Intel and AMD).

macOS tells its meter to the superuser only, so there is none. Invariant: no meter is no error.
"""

from __future__ import annotations

from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


class EnergyMeter:
    """Sums the packages' counters, which start again at zero after their range."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if _name(zone).startswith("package")]
        self._zones = [zone for zone in zones if _number(zone / "energy_uj") is not None]
        self._before: dict[Path, int] = {}

    def start(self) -> None:
        """Begin a measurement."""
        self._before = {zone: value for zone in self._zones if (value := _number(zone / "energy_uj")) is not None}

    def joules(self) -> float | None:
        """Return the energy since `start` of everything that ran, None without a meter.

        A counter that went round more than once (minutes on a large machine) cannot be told from one that did once.
        """
        total = 0
        for zone, before in self._before.items():
            now = _number(zone / "energy_uj")
            if now is None:
                return None
            if now < before:
                now += (_number(zone / "max_energy_range_uj") or 0) + 1
            total += now - before
        return 1e-6 * total if self._before else None


def _name(zone: Path) -> str:
    """Return what a zone meters: package-0, or psys, which holds the packages and would count them twice."""
    try:
        return (zone / "name").read_text()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
