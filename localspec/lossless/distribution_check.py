"""Does a rule keep the target's distribution? Many draws on recorded rows against what the rows say, by Pearson's
chi-square.

A draw is a pass as the engine runs it (grow a draft, verify it) and, where the pass committed less than the recorded
depth, plain passes after it. The first tokens of the text then have the target's own joint distribution, whatever was
drafted. A token that the recording does not follow ends a text: a cell of its own if it is likely enough, else one with
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from localspec.engine.draft import Draft
from localspec.engine.protocols import Path, Plan, RandomSource, TreePolicy, Verifier
from localspec.engine.randomness import SeededRandom
from localspec.lossless.chi_square import EXPECTED, Cell, Outcome, compare, detectable
from localspec.lossless.recorded import RecordedDistributions, RecordedSource, Recording

OTHER = -1  # any token that is neither followed nor likely


@dataclass(frozen=True, slots=True)
class TriedRule:
    """The drafting and the rule under test."""

    policy: TreePolicy
    plan: Plan
    verifier: Verifier


@dataclass(frozen=True, slots=True)
class TextTrial:
    """One recorded text: the outcome, what total variation could not have escaped, and draft tokens accepted a draw."""

    outcome: Outcome
    detectable: float
    accepted: float

    def to_wire(self) -> dict[str, Any]:
        return {**asdict(self.outcome), "detectable": self.detectable, "accepted_per_pass": self.accepted}


def try_rule(
    recording: Recording, rule: TriedRule, *, draws: int, alpha: float, seed: int, cancel: Callable[[], bool]
) -> TextTrial:
    """Draw and compare; fewer draws after a cancel."""
    dist = dict(cells(recording, EXPECTED / draws))
    counts: Counter[Cell] = Counter()
    accepted = 0
    for i in range(draws):
        if cancel():
            break
        text, kept = draw(recording, rule, SeededRandom(seed + i))
        is_rare = text not in dist and recording.target[text[:-1]].prob(text[-1]) > 0.0
        counts[(*text[:-1], OTHER) if is_rare else text] += 1
        accepted += kept
    outcome = compare(counts, dist, alpha)
    n = max(1, outcome.n)
    return TextTrial(outcome, detectable(outcome.df, outcome.n, alpha), accepted / n)


def draw(recording: Recording, rule: TriedRule, rng: RandomSource) -> tuple[Cell, int]:
    """Return a text, up to the first token that is not followed, and how many draft tokens its first pass accepted."""
    draft = rule.policy.grow(recording.tokens[-1], recording.position, RecordedSource(recording), rule.plan, rng)
    verdict = rule.verifier.verify(draft, RecordedDistributions(recording, draft), rng, recording.position)
    run = [int(draft.tokens[node]) for node in verdict.path] + [verdict.token]
    path: Path = ()
    while True:
        for token in run:
            if token not in recording.follows[path]:
                return (*path, token), len(verdict.path)
            path = (*path, token)
            if len(path) > recording.depth:
                return path, len(verdict.path)
        plain = Draft.root(path[-1])
        dists = RecordedDistributions(recording, plain, path)
        run = [rule.verifier.verify(plain, dists, rng, recording.position + len(path)).token]


def cells(recording: Recording, least: float) -> Iterator[tuple[Cell, float]]:
    """Yield every cell with the target's own probability of it; from `least` on any token has one of its own."""
    yield from _below(recording, (), 1.0, least)


def _below(recording: Recording, path: Path, mass: float, least: float) -> Iterator[tuple[Cell, float]]:
    dist, follows = recording.target[path], recording.follows[path]
    is_told = np.isin(dist.ids, follows) | (mass * dist.probs >= least)
    for token, p in zip(dist.ids[is_told].tolist(), dist.probs[is_told].tolist(), strict=True):
        deeper = (*path, token)
        if token in follows and len(deeper) <= recording.depth:
            yield from _below(recording, deeper, mass * p, least)
        else:
            yield deeper, mass * p
    if not is_told.all():
        yield (*path, OTHER), mass * float(dist.probs[~is_told].sum())
