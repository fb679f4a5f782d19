"""The widths of passes that give every row the bits that it has alone. They are measured, since kernels differ.

A width is exact if, at every depth that was tried, its rows equal those of passes of one row, bit for bit; and the rows
that follow do so too, also after a part of the pass was rolled back: then it left the same entries in the cache.
"""

from collections.abc import Generator, Sequence

import numpy as np

from localspec.backends.llama_cpp import LlamaBackend
from localspec.control.profile import Profile
from localspec.engine import events
from localspec.engine.distribution import Ids
from localspec.engine.protocols import Backend, Cancel, Cancelled, Clock, Logits
from localspec.session.survey import reported

WIDEST = 16  # rows: the longest chain that is drafted by default fits
DEPTHS = (8, 250, 600)  # tokens before the first row: llama.cpp attends in another way from 257 tokens on
ENOUGH = DEPTHS[-1] + 64  # positions of a context in which all depths are tried
STEPS = (4, WIDEST)  # widths are tried up to the first, and only if all of these are exact up to the next


def exact_widths(backend: Backend, cancel: Cancel) -> Generator[float, None, tuple[int, ...]]:
    """Return the widths 1 to m that are exact, and yield how far the measurement is.

    The cache is empty before and after. Raises Cancelled.
    """
    capabilities = backend.capabilities
    is_kept = capabilities.can_rollback and not capabilities.replays  # or a rejection makes the next pass wider
    widest = min(WIDEST, capabilities.max_rows) if is_kept else 1
    text = np.random.default_rng(0).integers(capabilities.n_vocab, size=ENOUGH, dtype=np.int32)
    depths = [depth for depth in DEPTHS if depth + _rows_for(widest) <= capabilities.n_ctx]
    widest = widest if depths else 1
    try:
        for done, depth in enumerate(depths):
            yield done / len(depths)
            if widest > 1:
                widest = _exact_at(backend, text, depth, widest, cancel)
    finally:
        backend.truncate(0)
    return tuple(range(1, widest + 1))


def _exact_at(backend: Backend, text: Ids, depth: int, widest: int, cancel: Cancel) -> int:
    """Return the widest of the passes 1 to `widest` that are exact after the first `depth` tokens of `text`."""
    backend.truncate(0)  # an inexact pass may have left entries
    backend.prefill(text[:depth], cancel)
    exact = 1
    for step in STEPS:
        alone: list[Logits] = []
        for at in range(depth, depth + _rows_for(min(step, widest))):
            alone += _rows(backend, text[at : at + 1], 1, cancel)
        while exact < min(step, widest):
            backend.truncate(depth)
            if not _is_exact(backend, text[depth:], exact + 1, alone, cancel):
                return exact
            exact += 1
        backend.truncate(depth)
        if exact == widest:
            break
    return exact


def _is_exact(backend: Backend, text: Ids, width: int, alone: Sequence[Logits], cancel: Cancel) -> bool:
    """Whether passes of `width`, each followed by one of one row, give the rows of `alone`.

    Of each pass another share of the rows is kept. The others hold other tokens than `text` has there.
    """
    at = 0
    for n in _shares(width):
        tokens = np.concatenate((text[at : at + n], text[len(text) - width + n :]))
        rows = _rows(backend, tokens, n, cancel) + _rows(backend, text[at + n : at + n + 1], 1, cancel)
        for row in rows:
            if not np.array_equal(row.view(np.uint32), alone[at].view(np.uint32)):
                return False
            at += 1
    return True


def _rows(backend: Backend, tokens: Ids, n: int, cancel: Cancel) -> list[Logits]:
    if cancel():
        raise Cancelled
    rows = backend.extend(tokens, range(-1, len(tokens) - 1))
    logits = [rows.logits(node).copy() for node in range(n)]
    backend.keep(tuple(range(n)))
    return logits


def _shares(width: int) -> tuple[int, int, int]:
    return width, 1, (width + 1) // 2


def _rows_for(width: int) -> int:
    """Return how many rows alone a width is compared with."""
    return sum(_shares(width)) + len(_shares(width))


def known_widths(
    profile: Profile, target: LlamaBackend, clock: Clock, cancel: Cancel
) -> events.EventsThen[tuple[int, ...]]:
    """Return the widths of passes that are exact, measured now if no earlier load did. Raises Cancelled."""
    if profile.exact_widths is None:
        profile.learn_widths((yield from reported("exact widths", exact_widths(target, cancel), clock)))
        profile.save()
    return profile.exact_widths or ()
