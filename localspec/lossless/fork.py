"""Why two texts fork: whether plain decoding itself was undecided there, within what rounding does.

A target computes slightly different logits for a row in a batch than for the row alone, and what it keeps in its cache
differs as slightly. The drift is measured on the text at hand, decoded token by token and in passes of the draft's
width: by how much the leading tokens of a row move against each other. Others lie far behind, and the greatest of
100 000 differences says nothing of two. A fork is a tie where plain decoding itself would have taken the other token
from logits moved by twice that.

Quantised kernels move a row by hundredths of a logit or not at all: a value of a row is rounded to another step, or
it is not, which depends on where the cache holds each token. Where the first passes move nothing, others follow.

Measured on the bundled pair: 10 forks in 40 texts, each within 0.3 of the drift, which was 0.02 to 0.13 logits.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.engine.protocols import Backend, Cancel, Cancelled, Logits
from localspec.engine.randomness import SeededRandom
from localspec.engine.repetition import Breakers
from localspec.engine.sampling import Sampler
from localspec.settings.request import Sampling

FACTOR = 2  # times the measured drift, since other texts drift by other amounts
LEADING = 8  # tokens of a row that are compared: a fork between others is none of rounding
SMALLEST, GREATEST = 2.0**-20, 2.0**10  # logits between which a margin is looked for
HALVINGS = 12
RIVALS = 4  # tokens that may come before one that rounding puts first
DRIFT_ROWS = 32  # rows before the fork at which the drift is measured
MOST_TRIED = 20_000  # tokens that are evaluated before further passes are given up
SHIFTS = range(3, 33, 3)  # tokens of the prompt that are read in narrow passes as well, where no drift was found


@dataclass(frozen=True, slots=True)
class Fork:
    """The texts differ from token `index` on: `plain` there against `other`, `margin` logits apart."""

    index: int
    plain: int
    other: int
    margin: float
    drift: float
    is_tie: bool


def explain(
    target: Backend,
    prompt: Sequence[int],
    texts: tuple[Sequence[int], Sequence[int]],
    sampling: Sampling,
    *,
    seed: int,
    shape: tuple[int, int],
    breakers: Breakers | None = None,
    cancel: Cancel = lambda: False,
) -> Fork | None:
    """Return where the answers `texts` (plain, other) to `prompt` fork and by what margin; None if neither differs
    before the shorter one ends. `shape` is the draft's: nodes and leaves. Raises Cancelled between passes.
    """
    plain, other = texts
    index = next((i for i, (a, b) in enumerate(zip(plain, other, strict=False)) if a != b), None)
    if index is None:
        return None
    nodes, leaves = shape
    shared = list(plain[:index])
    before = target.evaluated
    alone = replay(target, prompt, shared, 1, has_siblings=False, cancel=cancel)
    row, drift = alone[index], 0.0
    gap = margin(row, [*prompt, *shared], other[index], Sampler(sampling, breakers=breakers), seed)
    for is_needed, width, has_siblings, shift in _layouts(nodes, leaves, len(prompt)):
        if not is_needed and (drift or math.isinf(gap) or target.evaluated - before > MOST_TRIED):
            break
        head, tail = prompt[: len(prompt) - shift], prompt[len(prompt) - shift :]
        batched = replay(target, head, [*tail, *shared], width, has_siblings=has_siblings, cancel=cancel)
        for i, logits in alone.items():
            forked = (plain[index], other[index]) if i == index else ()
            drift = max(drift, _moved(logits, batched[i + shift], forked))
    target.truncate(0)
    return Fork(index, plain[index], other[index], gap, drift, is_tie=gap <= FACTOR * drift)


def _layouts(nodes: int, leaves: int, n_prompt: int) -> Iterator[tuple[bool, int, bool, int]]:
    """Yield how a text may be decoded: whether it always is, rows of a pass, siblings, tokens of the prompt beside it.

    A controller makes passes of every width up to the draft's, and kernels change with the width.
    """
    widest = max(2, min(nodes, 8) + 1)
    for width, has_siblings in sorted({(2, False), (4, False), (max(2, nodes + 1), False), (widest, leaves > 1)}):
        yield True, width, has_siblings, 0
    for shift in SHIFTS:
        for width in range(2, widest + 1):
            if shift < n_prompt:
                yield False, width, leaves > 1, shift


def _moved(alone: Logits, batched: Logits, forked: tuple[int, ...]) -> float:
    """Return by how many logits two leading tokens of a row, those of a fork among them, have moved apart."""
    leading = np.argpartition(-alone, min(LEADING, alone.size) - 1)[:LEADING]
    moved = (batched - alone)[[*leading, *forked]]
    return float(moved.max() - moved.min())


def replay(
    target: Backend,
    prompt: Sequence[int],
    answer: Sequence[int],
    width: int,
    *,
    has_siblings: bool,
    cancel: Cancel = lambda: False,
) -> dict[int, Logits]:
    """Decode `answer` again in passes of `width` rows; return the last rows, by the index of the token they predict.

    `has_siblings` gives each row one that is dropped again, as a tree's rejected branches are. Raises Cancelled
    between passes.
    """
    target.truncate(0)
    rows = {0: target.prefill(prompt, cancel).logits(0).copy()}
    left = target.capabilities.n_ctx - len(prompt) - len(answer)
    for start in range(0, len(answer), width):
        if cancel():
            raise Cancelled
        chunk = list(answer[start : start + width])
        tokens, parents, path = chunk, list(range(-1, len(chunk) - 1)), tuple(range(len(chunk)))
        if has_siblings and 2 * len(chunk) <= left:
            tokens, parents, path = _branched(chunk)
        evaluated = target.extend(tokens, parents)
        for i, node in enumerate(path):
            if start + i + 1 > len(answer) - DRIFT_ROWS:
                rows[start + i + 1] = evaluated.logits(node).copy()
        target.keep(path)
    return {index: row for index, row in rows.items() if index > len(answer) - DRIFT_ROWS}


def _branched(chunk: list[int]) -> tuple[list[int], list[int], tuple[int, ...]]:
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


def margin(row: Logits, seen: Sequence[int], other: int, sampler: Sampler, seed: int) -> float:
    """Return by how many logits plain decoding preferred its token to `other`, all filters and the noise included.

    Twice the least change of single logits that was found to make `other` its choice, since rounding may raise the one
    and lower the other; infinite for a token that is banned. A smaller one may exist where filters meet: what is called
    a tie is one, for the changed row is there.
    """
    noise = SeededRandom(seed)

    def decide(changed: Logits) -> int:
        return noise.gumbel_top_k(len(seen), sampler.dist(changed, seen))[0]

    low, high = 0.0, SMALLEST
    while not _is_reached(row, other, high / 2, decide):
        low, high = high, 2 * high
        if high > GREATEST:
            return math.inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _is_reached(row, other, middle / 2, decide) else (middle, high)
    return high if low else 0.0


def _is_reached(row: Logits, other: int, most: float, decide: Callable[[Logits], int]) -> bool:
    """Whether a row, each logit of which is at most `most` off, was found that decides for `other`.

    What comes before it in the race is lowered. The rest decides where the filters cut: a nucleus by the mass above a
    token against that below, min-p by the peak; so both sides are tried either way, seen from `other` and from the
    token that was chosen.
    """
    for pivot in (other, decide(row)):
        above = row > row[pivot]
        for up, down in itertools.product((-most, most), repeat=2):
            changed = row + np.where(above, np.float32(up), np.float32(down))
            changed[other] = row[other] + most
            for _ in range(RIVALS):
                chosen = decide(changed)
                if chosen == other:
                    return True
                changed[chosen] = row[chosen] - most
    return False
