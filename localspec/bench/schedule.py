"""The order of measurements: there and back (A B B A), so that a machine that slows down slows all alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """One answer to be measured: to prompt number `prompt`, for the `repeat`-th time."""

    prompt: int
    temperature: float
    contender: str
    repeat: int


def schedule(
    n_prompts: int, temperatures: Sequence[float], contenders: Sequence[str], repeats: int
) -> tuple[Cell, ...]:
    """Return every cell once: all contenders answer a prompt before the next is asked; each round turns the order."""
    cells = []
    for temperature in temperatures:
        for prompt in range(n_prompts):
            for repeat in range(repeats):
                is_forth = (prompt * repeats + repeat) % 2 == 0
                order = contenders if is_forth else tuple(reversed(contenders))
                cells += [Cell(prompt, temperature, name, repeat) for name in order]
    return tuple(cells)
