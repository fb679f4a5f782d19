"""Every way that chance can go, one after the other: what the proofs of exactness stand on.

Public like `contract.py`, so that a verifier in another package can prove itself with the same tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeVar

from localspec.engine.distribution import Distribution

T = TypeVar("T")


class EnumeratingRandom:
    """A random source that follows a script of choices and notes the alternatives it passed."""

    def __init__(self, script: Sequence[int]) -> None:
        self._script = script
        self.taken: list[int] = []
        self.options: list[int] = []
        self.weight = 1.0

    def copy(self) -> EnumeratingRandom:
        """Return a source that takes the choices that are scripted from here on, then the first ones."""
        return EnumeratingRandom(self._script[len(self.taken) :])

    def bernoulli(self, a: float) -> bool:
        """Branch on a coin, unless it is certain."""
        if a >= 1.0 or a <= 0.0:
            return a >= 1.0
        return self._choose([1.0 - a, a]) == 1

    def categorical(self, dist: Distribution) -> int:
        """Branch on every token of the support."""
        return int(dist.ids[self._choose(dist.probs.tolist())])

    def gumbel_top_k(self, *_: object, **__: object) -> NoReturn:
        """Refuse: coupled noise has too many orderings; it is tested over noise tables."""
        raise AssertionError("coupled noise cannot be enumerated")

    gumbel_top_k_margins = gumbel_top_k

    def _choose(self, probs: Sequence[float]) -> int:
        at = len(self.taken)
        choice = self._script[at] if at < len(self._script) else 0
        self.taken.append(choice)
        self.options.append(len(probs))
        self.weight *= probs[choice]
        return choice


def enumerate_branches(run: Callable[[EnumeratingRandom], T]) -> Iterator[tuple[float, T]]:
    """Run `run` once for every sequence of choices; yield each branch's probability and result.

    Depth-first with replay: the script of a finished run is advanced at its last choice that has alternatives left.
    """
    script: list[int] = []
    while True:
        rng = EnumeratingRandom(script)
        result = run(rng)
        yield rng.weight, result
        script = rng.taken
        while script and script[-1] + 1 == rng.options[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1
