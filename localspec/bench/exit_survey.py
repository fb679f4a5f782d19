"""Early exits measured: how fast a model drafts with some of its layers, one choice of layers after another.

Every choice is measured against plain decoding of the same prompts, in turns, so that a machine that is busy for a
while slows both; the median decides.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median

from localspec.errors import IncompatibleError
from localspec.models.exit_files import Exits, Layers
from localspec.settings.request import Request, Speculation
from localspec.ui.stats import Stats

MAX_EXITS = 12  # layers: beyond, a few exits stand for all
SIXTEENTHS = (1, 2, 3, 4, 6, 8, 10, 12)
PAIRS = 5  # measurements of a choice, at least: fewer prompts are asked again, with another seed


@dataclass(frozen=True, slots=True)
class MeasuredExit:
    """The figures of drafting with `layers`; `ratio` is its speed over that of plain decoding."""

    layers: Layers
    acceptance: float
    tokens_per_pass: float
    ratio: float
    bytes: int


@dataclass(slots=True)
class ExitSurvey:
    """Measures choices of layers: `answer` gives the figures of a request, `on_choice` hears what is measured next.

    Of the files made on the way, which `made` names, only the best one's stays.
    """

    answer: Callable[[Request], Stats]
    exits: Exits
    made: set[Layers]
    asked: tuple[Request, ...]  # a prompt each
    on_choice: Callable[[str], None]
    results: dict[Layers, MeasuredExit] = field(default_factory=dict)

    def measure_all(self, skips: int) -> list[MeasuredExit]:
        """Measure the first E layers for several E, then sets with up to `skips` layers left out."""
        for end in exits_to_try(self.exits.n_layers):
            self._measure(tuple(range(end)))
        self._leave_out(skips)
        return list(self.results.values())

    def _leave_out(self, skips: int) -> None:
        """Drop layers greedily from the whole model, as long as the draft gets faster."""
        layers, before = tuple(range(self.exits.n_layers)), 0.0
        for _ in range(min(skips, len(layers) - 1)):
            tried = [self._measure(tuple(layer for layer in layers if layer != out)) for out in layers]
            best = max(tried, key=lambda measured: measured.ratio)
            if best.ratio <= before:
                return
            layers, before = best.layers, best.ratio

    def _measure(self, layers: Layers) -> MeasuredExit:
        if layers not in self.results:
            self.on_choice(spelt_layers(layers, self.exits.n_layers))
            if not os.path.exists(self.exits.path(layers)):  # else it is not ours to remove
                self.made.add(layers)
            self.results[layers] = self._against_plain(layers)
            self._tidy()
        return self.results[layers]

    def _against_plain(self, layers: Layers) -> MeasuredExit:
        drafting = Speculation("early-exit", verify="block", options=layer_options(layers, self.exits.n_layers))
        ratios, acceptances, per_pass, n_bytes = [], [], [], 0
        for seed in range(max(PAIRS, len(self.asked))):
            request = self.asked[seed % len(self.asked)]
            request = replace(request, sampling=replace(request.sampling, seed=seed))
            plain = self.answer(replace(request, speculation=Speculation("plain")))
            ours = self.answer(replace(request, speculation=drafting))
            assert ours.started is not None
            assert ours.started.derived is not None
            n_bytes = ours.started.derived.bytes
            if plain.ms_per_token and ours.ms_per_token:  # an answer may end with its first token
                ratios.append(plain.ms_per_token / ours.ms_per_token)
                acceptances.append(ours.acceptance or 0.0)
                per_pass.append(ours.tokens_per_pass or 1.0)
        if not ratios:
            raise IncompatibleError(
                "the model ends every answer at once, so nothing can be measured", hint="--prompts FILE"
            )
        return MeasuredExit(layers, median(acceptances), median(per_pass), median(ratios), n_bytes)

    def _tidy(self) -> None:
        best = max(self.results.values(), key=lambda measured: measured.ratio)
        for layers in self.made - {best.layers}:
            self.exits.discard(layers)
            self.made.discard(layers)


def exits_to_try(n_layers: int) -> list[int]:
    """Return the numbers of first layers worth measuring: all of a small model's, a few of a large one's."""
    if n_layers <= MAX_EXITS:
        return list(range(1, n_layers))
    return sorted({max(1, round(n_layers * part / 16)) for part in SIXTEENTHS})


def layer_options(layers: Layers, n_layers: int) -> tuple[tuple[str, str], ...]:
    """Return the -o of `localspec run` that chooses these layers."""
    if layers == tuple(range(len(layers))):
        return (("exit", str(len(layers))),)
    return (("skip", ",".join(str(layer) for layer in range(n_layers) if layer not in layers)),)


def spelt_layers(layers: Layers, n_layers: int) -> str:
    """Return these layers as people type them: exit=2, skip=3,5."""
    ((name, value),) = layer_options(layers, n_layers)
    return f"{name}={value}"
