"""The target's distribution, written as slowly and plainly as possible: what every fast path is compared with.

Nothing of localspec is used but the settings' names. The order is llama.cpp's default chain; logits are float32 as
the model gives them and stay so through bias and penalties, probabilities are Python floats.
"""

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
    dist = _heated(kept, logits, heat)
    likely = [token for token, p in softmax(kept, logits).items() if p >= s.xtc_threshold]
    if s.xtc_probability > 0.0 and s.xtc_threshold <= 0.5 and len(likely) > 1:
        rest = _heated([token for token in kept if token not in likely[:-1]], logits, heat)
        x = s.xtc_probability
        dist = {token: (1 - x) * dist.get(token, 0.0) + x * rest.get(token, 0.0) for token in kept}
    return {token: p for token, p in dist.items() if p > 0.0}


def _heated(kept: list[int], logits: dict[int, float], heat: float) -> dict[int, float]:
    """Return the distribution of the tokens `kept`, likeliest first, at a temperature."""
    return {kept[0]: 1.0} if heat == 0.0 else softmax(kept, logits, heat)


def adjusted(row: np.ndarray, history: Sequence[int], s: Sampling) -> dict[int, float]:
    """Return the logits after bias, penalties and DRY, each rounded to float32 as the model's own are."""
    logits = {token: float(value) for token, value in enumerate(row)}
    for token, bias in s.logit_bias:
        logits[token] = float(np.float32(logits[token]) + np.float32(bias))
    for token in set(_window(history, s.penalty_last_n)):
        window = _window(history, s.penalty_last_n)
        value, repeat = np.float32(logits[token]), np.float32(s.repeat_penalty)
        value = value * repeat if value <= 0 else value / repeat
        charge = window.count(token) * float(np.float32(s.frequency_penalty)) + float(np.float32(s.presence_penalty))
        logits[token] = float(np.float32(float(value) - charge))
    for token, length in _repetitions(_window(history, s.dry_penalty_last_n), s.dry_allowed_length).items():
        charge = s.dry_multiplier * float(np.float32(s.dry_base)) ** (length - s.dry_allowed_length)
        logits[token] = float(np.float32(logits[token]) - np.float32(charge))
    return logits


def _window(history: Sequence[int], last_n: int) -> list[int]:
    """Return the last tokens, all of them for -1."""
    return list(history) if last_n < 0 else list(history)[max(0, len(history) - last_n) :]


def _repetitions(text: Sequence[int], allowed: int) -> dict[int, int]:
    """Return the tokens that followed an earlier copy of the text's end, with the longest such copy of each."""
    found: dict[int, int] = {}
    for end in range(len(text) - 1):
        n = 0
        while n <= end and text[end - n] == text[len(text) - 1 - n]:
            n += 1
        if n >= allowed and len(text) > allowed:
            found[text[end + 1]] = max(n, found.get(text[end + 1], 0))
    return found


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
