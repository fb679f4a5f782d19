"""Memory and descriptors of long-lived processes over time, and whether they grow."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field

from soaking.machine import Machine

WATCHED = ("server", "keeper", "engine")
SETTLING = 0.3  # of a life: caches fill
LEAST = 12  # samples of a life that is judged
GROWTH = 0.1  # of the median: what memory may grow in a life, and
SPARE = 48 << 20  # bytes on top: the states of prompts have 32 MB
FEW = 4  # descriptors that a life may end with more than it began


@dataclass
class Life:
    """One process: when it was looked at (seconds), its memory (bytes), its descriptors."""

    kind: str
    times: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def settled(self, values: list[int]) -> tuple[list[float], list[int]]:
        """Return the times and values after the beginning of the life."""
        first = int(SETTLING * len(self.times))
        return self.times[first:], values[first:]

    def slope(self, values: list[int]) -> float:
        """Return the median slope between early and late samples (Theil-Sen over halves), a second."""
        times, found = self.settled(values)
        half = len(times) // 2
        pairs = zip(zip(times[:half], found[:half], strict=True), zip(times[-half:], found[-half:], strict=True),
                    strict=True)  # fmt: skip
        slopes = [(after - before) / (end - begin) for (begin, before), (end, after) in pairs if end > begin]
        return statistics.median(slopes) if slopes else 0.0

    def grows(self) -> str:
        """Return what grows, "" for nothing."""
        if len(self.times) < LEAST:
            return ""
        times, memory = self.settled(self.memory)
        lasts = times[-1] - times[0]
        if self.slope(self.memory) * lasts > GROWTH * statistics.median(memory) + SPARE:
            return "memory"
        return "descriptors" if self.slope(self.descriptors) * lasts > FEW else ""


class Samples:
    """The lives of all processes that are watched, by their number and beginning."""

    def __init__(self) -> None:
        self.lives: dict[tuple[int, int], Life] = {}

    def take(self, machine: Machine) -> None:
        """Look at every process once."""
        now = time.monotonic()
        for each in machine.processes():
            if each.kind in WATCHED:
                life = self.lives.setdefault((each.pid, each.began), Life(each.kind))
                life.times.append(now)
                life.memory.append(each.memory)
                life.descriptors.append(each.descriptors)

    def table(self) -> list[str]:
        """Return a line for each kind: its lives, and the longest one's memory and slopes."""
        kinds = defaultdict(list)
        for life in self.lives.values():
            kinds[life.kind].append(life)
        lines = ["| process | lives | longest (s) | memory, median (MB) | slope (MB/h) | descriptors | slope (1/h) |",
                 "|---|---|---|---|---|---|---|"]  # fmt: skip
        for kind, lives in sorted(kinds.items()):
            longest = max(lives, key=lambda one: len(one.times))
            memory = statistics.median(longest.memory) / 1e6
            cells = (len(lives), round(longest.times[-1] - longest.times[0]), f"{memory:.1f}",
                     f"{3600 * longest.slope(longest.memory) / 1e6:+.2f}", max(longest.descriptors),
                     f"{3600 * longest.slope(longest.descriptors):+.1f}")  # fmt: skip
            lines.append(f"| {kind} | " + " | ".join(map(str, cells)) + " |")
        return lines

    def growing(self) -> list[str]:
        """Return each life that grows."""
        found = [(life.kind, pid, life.grows()) for (pid, _), life in self.lives.items()]
        return [f"{what} of the {kind} {pid} grows" for kind, pid, what in found if what]
