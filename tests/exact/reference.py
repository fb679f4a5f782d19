"""The target's distribution, written as slowly and plainly as possible: what every fast path is compared with.

Nothing of localspec is used but the settings' names. The order is llama.cpp's default chain; logits are float32 as
the model gives them and stay so through bias and penalties, probabilities are Python floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from localspec.settings.request import Sampling


def reference_dist(
    row: np.ndarray, history: Sequence[int], s: Sampling, temperature: float | None = None
) -> dict[int, float]:
    """Return {token: probability} of the next token for the logits `row` after `history`."""
    logits = adjusted(row, history, s)
    kept = sorted(logits, key=lambda token: (-logits[token], token))
    if s.top_k > 0:
        kept = kept[: s.top_k]
    if s.typical_p < 1.0:
        kept = _typical(kept, logits, s.typical_p)
    if s.top_p < 1.0:
        probs = softmax(kept, logits)
        mass, n = 0.0, 0
        while n < len(kept) and mass < s.top_p:
            mass += probs[kept[n]]
            n += 1
        kept = kept[:n]
    if s.min_p > 0.0:
        edge = logits[kept[0]] + math.log(s.min_p)
        kept = [token for token in kept if logits[token] >= edge]
    heat = s.temperature if temperature is None else temperature
    if heat == 0.0:
        return {kept[0]: 1.0}
    return {token: p for token, p in softmax(kept, logits, heat).items() if p > 0.0}


def adjusted(row: np.ndarray, history: Sequence[int], s: Sampling) -> dict[int, float]:
    """Return the logits after bias and penalties, each rounded to float32 as the model's own are."""
    logits = {token: float(value) for token, value in enumerate(row)}
    for token, bias in s.logit_bias:
        logits[token] = float(np.float32(logits[token]) + np.float32(bias))
    if s.penalty_last_n == 0:
        return logits
    window = list(history) if s.penalty_last_n < 0 else list(history)[-s.penalty_last_n :]
    for token in set(window):
        value, repeat = np.float32(logits[token]), np.float32(s.repeat_penalty)
        value = value * repeat if value <= 0 else value / repeat
        charge = window.count(token) * float(np.float32(s.frequency_penalty)) + float(np.float32(s.presence_penalty))
        logits[token] = float(np.float32(float(value) - charge))
    return logits


def softmax(kept: Sequence[int], logits: dict[int, float], temperature: float = 1.0) -> dict[int, float]:
    """Return the probabilities of the tokens `kept`."""
    peak = max(logits[token] for token in kept)
    weights = {token: math.exp((logits[token] - peak) / temperature) for token in kept}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def _typical(kept: list[int], logits: dict[int, float], typical_p: float) -> list[int]:
    """Keep what surprises most nearly as much as expected, until the mass exceeds `typical_p`."""
    probs = softmax(kept, logits)
    surprise = {token: -math.log(p) if p > 0.0 else math.inf for token, p in probs.items()}
    entropy = math.fsum(p * surprise[token] for token, p in probs.items() if p > 0.0)
    nearest = sorted(kept, key=lambda token: abs(surprise[token] - entropy))
    mass, n = 0.0, 0
    while n < len(nearest) and mass <= typical_p:
        mass += probs[nearest[n]]
        n += 1
    chosen = set(nearest[:n])
    return [token for token in kept if token in chosen]
