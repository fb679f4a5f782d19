"""Why two texts fork: whether plain decoding itself was undecided there, within what rounding does.

A target computes slightly different logits for a row in a batch than for the row alone, and what it keeps in its cache
differs as slightly. The drift is measured on the text at hand: decoded token by token, and in passes of the draft's
width. A fork is a tie where plain decoding's own scores of the two tokens lie within four times that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from localspec.chooser import SeededChooser
from localspec.config import Sampling
from localspec.protocols import Backend, Logits
from localspec.sampling import Sampler

FACTOR = 4  # times the measured drift
LAST = 32  # rows before the fork at which the drift is measured


@dataclass(frozen=True, slots=True)
class Fork:
    """The texts differ from token `index` on: `plain` there against `other`, `margin` logits apart.

    The margin is that of the scores decoding compares: logits at temperature 0, logits with the position's noise above.
    """

    index: int
    plain: int
    other: int
    margin: float
    drift: float
    is_tie: bool

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object."""
        return asdict(self)


def explain(
    target: Backend,
    prompt: Sequence[int],
    texts: tuple[Sequence[int], Sequence[int]],
    sampling: Sampling,
    *,
    seed: int,
    shape: tuple[int, int],
) -> Fork | None:
    """Return where the answers `texts` (plain, other) to `prompt` fork and by what margin; None if neither differs
    before the shorter one ends. `shape` is the draft's: nodes and leaves.
    """
    plain, other = texts
    index = next((i for i, (a, b) in enumerate(zip(plain, other, strict=False)) if a != b), None)
    if index is None:
        return None
    nodes, leaves = shape
    shared = list(plain[:index])
    alone = replay(target, prompt, shared, 1, has_siblings=False)
    row, drift = alone[index], 0.0
    # A controller makes passes of every width up to the draft's, and kernels change with the width.
    for width, has_siblings in {(2, False), (4, False), (nodes + 1, False), (min(nodes, 8) + 1, leaves > 1)}:
        batched = replay(target, prompt, shared, max(2, width), has_siblings=has_siblings)
        drift = max([drift, *(float(np.abs(alone[i] - batched[i]).max()) for i in alone)])
    target.truncate(0)
    gap = margin(row, [*prompt, *shared], (plain[index], other[index]), sampling, seed)
    return Fork(index, plain[index], other[index], gap, drift, is_tie=gap <= FACTOR * drift)


def replay(
    target: Backend, prompt: Sequence[int], answer: Sequence[int], width: int, *, has_siblings: bool
) -> dict[int, Logits]:
    """Decode `answer` again in passes of `width` rows; return the last rows, by the index of the token they predict.

    `has_siblings` gives each row one that is dropped again, as a tree's rejected branches are.
    """
    target.truncate(0)
    rows = {0: target.prefill(prompt, lambda: False).logits(0).copy()}
    room = target.traits.n_ctx - len(prompt) - len(answer)
    for start in range(0, len(answer), width):
        chunk = list(answer[start : start + width])
        tokens, parents, path = _branched(chunk) if has_siblings and 2 * len(chunk) <= room else _chain(chunk)
        found = target.extend(tokens, parents)
        for i, node in enumerate(path):
            if start + i + 1 > len(answer) - LAST:
                rows[start + i + 1] = found.logits(node).copy()
        target.keep(path)
    return {index: row for index, row in rows.items() if index > len(answer) - LAST}


def _chain(chunk: list[int]) -> tuple[list[int], list[int], tuple[int, ...]]:
    return chunk, list(range(-1, len(chunk) - 1)), tuple(range(len(chunk)))


def _branched(chunk: list[int]) -> tuple[list[int], list[int], tuple[int, ...]]:
    """Return a chain whose nodes have a sibling each, and the nodes of the chain."""
    tokens: list[int] = []
    parents: list[int] = []
    path: list[int] = []
    above = -1
    for token in chunk:
        path.append(len(tokens))
        tokens += [token, token]
        parents += [above, above]
        above = path[-1]
    return tokens, parents, tuple(path)


def margin(row: Logits, seen: Sequence[int], tokens: tuple[int, int], sampling: Sampling, seed: int) -> float:
    """Return by how many logits plain decoding preferred one token to the other: score gap, or distance to an edge.

    A token that a filter removes is as far away as its logit lies below the least one that stays.
    """
    a, b = tokens
    sampler = Sampler(sampling)
    law = sampler.law(row, seen)
    row = sampler.adjusted(row, seen)  # what decoding compares, and filters
    if sampling.temperature == 0.0:
        return abs(float(row[a] - row[b]))
    edge = float(row[law.ids].min())
    outside = [edge - float(row[token]) for token in tokens if law.prob(token) == 0.0]
    if outside:
        return max(outside)
    noise = SeededChooser(seed)

    def score(token: int) -> float:
        arrival = float(noise.exponentials(len(seen), np.array([token], np.int32))[0])
        return float(np.log(law.prob(token)) - np.log(arrival))

    return abs(score(a) - score(b)) * sampling.temperature
