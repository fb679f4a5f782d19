"""Measuring what the kinds of attention cost: it depends on model, processor, rows and depth.

The kinds take turns, so what disturbs a machine disturbs all of them. All is done again in new contexts. Each take is
compared with its neighbour in time. The middle of these ratios is the price; the spread of the others says how far it
can be trusted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from localspec.backends.cgroup import available_memory
from localspec.backends.deep_text import DeepText
from localspec.backends.memory import context_bytes
from localspec.backends.model import Model
from localspec.backends.options import UNQUANTISED, LoadOptions
from localspec.control.attention import KINDS, READING, AttentionTimes, Takes
from localspec.engine.protocols import Cancel, Cancelled
from localspec.tuning import TINY_WEIGHTS

EARLY, MIDDLE = 256, 1000  # tokens: where prices are taken beside those at the end of the context
LATEST = 16384  # tokens: deeper, reading takes minutes a pass
SETS = 2  # of contexts: two that are alike can differ by 16 %, by where their memory lies
TAKES, FEW = 4, 1  # of each kind in a set, the second for reading, which takes seconds


def differs(model: Model, options: LoadOptions) -> bool:
    """Whether the kinds of attention differ: on a processor, with keys and values as floating point.

    A tiny model's passes are too short to tell.
    """
    is_large = not model.is_stateful and model.n_bytes > TINY_WEIGHTS
    return is_large and not model.n_gpu_layers and options.kv_type in UNQUANTISED


def depths_of(n_ctx: int) -> tuple[int, ...]:
    """Return the depths that say what passes cost in a context of `n_ctx` positions: to its end, if that is not far."""
    late = min(n_ctx, LATEST)
    return (*(depth for depth in (EARLY, MIDDLE) if 2 * depth <= late), late)


def time_attention(
    model: Model,
    options: LoadOptions,
    depths: Sequence[int],
    rows: Sequence[int],
    cancel: Cancel,
    takes: tuple[int, int] = (TAKES, FEW),
) -> Generator[float, None, AttentionTimes]:
    """Return seconds of each kind, yielding the share that is done; nothing where memory or llama.cpp cannot.

    `takes` are those of a set of contexts, of drafts' widths and of reading. Raises Cancelled between passes.
    """
    room = replace(options, n_ctx=max(depths, default=0) + max(rows), rollback=0, flash_attn="off")
    available = available_memory()
    needed = len(KINDS) * context_bytes(model.context_shape, room.n_ctx or 0, room)
    if not depths or available is None or needed > available:
        return AttentionTimes({})
    found: dict[str, Takes] = {kind: {depth: {} for depth in depths} for kind in KINDS}
    for number in range(SETS):
        texts: dict[str, DeepText] = {}
        try:
            for kind in KINDS:
                texts[kind] = DeepText(model, replace(room, flash_attn=kind))
                if not texts[kind].can_deepen:  # llama.cpp ends the process
                    return AttentionTimes({})
            for share in _timed(texts, found, rows, cancel, takes):
                yield (number + share) / SETS
        finally:
            for text in texts.values():
                text.close()
    return AttentionTimes(found)


def _timed(
    texts: Mapping[str, DeepText],
    found: Mapping[str, Takes],
    rows: Sequence[int],
    cancel: Cancel,
    takes: tuple[int, int],
) -> Iterator[float]:
    """Add takes of each kind in turns to what was found."""
    depths, n_done = list(found[KINDS[0]]), 0
    for depth in depths:
        for text in texts.values():
            text.deepen(depth)
        for n in rows:
            for text in texts.values() if n < READING else ():
                text.time(n)  # the first pass of a width lays the graph out anew
            for number in range(takes[n >= READING]):
                for kind in list(texts)[:: -1 if number % 2 else 1]:
                    if cancel():
                        raise Cancelled
                    found[kind][depth].setdefault(n, []).append(texts[kind].time(n))
            n_done += 1
            yield n_done / (len(depths) * len(rows))
