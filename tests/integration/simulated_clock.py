"""The real engine on a simulated clock: the bundled pair drafts and verifies, and only its passes take time.

A pass of the target takes a given time by its rows, one of the draft model another, each off by a little noise. So a
rule is tried in seconds for machines that are not at hand, and two rules are compared without the noise of a machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from localspec.control.profile import Profile
from localspec.engine import events
from localspec.session.controllers import PairController
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Request, Speculation

UNIT = 0.03  # seconds of a plain pass: long enough for everything that short ones go without
BATCH = 8  # rows that the draft model reads as long as one


class Clock:
    """Time that passes only where it is told to, by a little more or less."""

    def __init__(self, noise: float) -> None:
        self._rng = np.random.default_rng(0)
        self._noise = noise
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def priced(self, passes: float) -> float:
        """Return the seconds that so many plain passes take this time."""
        return UNIT * passes * float(np.exp(self._noise * self._rng.normal()))


class Priced:
    """A backend whose passes take the time that `cost` says of their rows, in plain passes."""

    def __init__(self, inner: Any, clock: Clock, cost: Callable[[int], float], widest: int) -> None:
        self._inner, self._clock, self._cost, self._widest = inner, clock, cost, widest
        self.decode_rows = 1  # the clock's: the pass itself need not be wider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def prefill(self, *given: Any) -> Any:
        """Evaluate what the cache lacks, a long text in passes of the widest that is known: reading is computing."""
        before = self._inner.evaluated
        rows = self._inner.prefill(*given)
        whole, left = divmod(self._inner.evaluated - before, self._widest)
        self._pass(left)
        self._clock.now += self._clock.priced(whole * self._cost(self._widest)) if whole else 0.0
        return rows

    def extend(self, tokens: Sequence[int], *given: Any) -> Any:
        rows = self._inner.extend(tokens, *given)
        self._pass(self.decode_rows if len(tokens) == 1 else len(tokens))
        return rows

    def time_rows(self, rows: int) -> float:
        """Return what a pass takes, and let that pass; none is made."""
        seconds = self._clock.priced(self._cost(rows))
        self._clock.now += seconds
        return seconds

    def _pass(self, rows: int) -> None:
        self._clock.now += self._clock.priced(self._cost(rows)) if rows else 0.0


class SimulatedPair:
    """The bundled pair on a machine of which nothing is known.

    `rows` are plain passes by rows, from one row on; `draft` is a pass of the draft model. Both are in plain passes.
    """

    def __init__(self, rows: Sequence[float], draft: float, folder: Path, *, noise: float = 0.04) -> None:
        self._clock = Clock(noise)
        self._file = folder / "profile.json"
        models = files("localspec.models.storyteller")
        settings = LoadSettings(*(str(models / f"{role}-q8_0.gguf") for role in ("target", "draft")), ctx=1024)
        loading = events.Returning(load(settings, lambda: False, self._clock))
        for _ in loading:
            pass
        self._loaded = real = loading.result
        assert real.draft is not None
        target = Priced(real.target.backend, self._clock, lambda n: of_rows(rows, n), len(rows))
        small = Priced(real.draft.backend, self._clock, lambda n: draft * max(1.0, n / BATCH), BATCH)
        self._pair = replace(
            real, target=replace(real.target, backend=target), draft=replace(real.draft, backend=small)
        )
        self.unlearn()

    def unlearn(self) -> None:
        self._file.unlink(missing_ok=True)
        self._pair = replace(self._pair, controllers=PairController(Profile(self._file), self._clock))

    def speed(self, request: Request, k: int | None = None) -> float:
        """Answer by `auto`, or by chains of `k` tokens; return the speed over plain decoding at the same costs.

        The prompt is left out of it. It is 1 for an answer that ends with its first token.
        """
        asked = Speculation() if k is None else Speculation(method="draft-model", k=k)
        began, tokens = 0.0, 0
        for event in self._pair.answer(replace(request, speculation=asked)):
            if isinstance(event, events.Committed):
                tokens += len(event.out) if began else 0
                began = began or self._clock.now
        return UNIT * tokens / (self._clock.now - began) if tokens else 1.0

    def close(self) -> None:
        self._loaded.close()


def of_rows(known: Sequence[float], rows: int) -> float:
    """Return plain passes that a pass of `rows` takes; beyond what is known it goes on with its mean slope."""
    slope = (known[-1] - known[0]) / max(len(known) - 1, 1)
    return known[rows - 1] if rows <= len(known) else known[-1] + slope * (rows - len(known))
