"""Which kind of attention a target on a processor has, and its price, as `localspec calibrate --attention` found.

Also here: measuring what the kinds of attention cost: it depends on model, processor, rows and depth.

The kinds take turns, so what disturbs a machine disturbs all of them. All is done again in new contexts. Each take is
compared with its neighbour in time. The middle of these ratios is the price; the spread of the others says how far it
can be trusted.

And a text of any length without reading it: for timing passes deep in a context.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from localspec.backends.batch import Batch
from localspec.backends.build import build_info
from localspec.backends.context import MAX_OUTPUTS, context_size, open_context
from localspec.backends.kv_cache import pointer
from localspec.backends.lib import api, decode_error
from localspec.backends.limits import available_memory
from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.memory import context_bytes
from localspec.backends.model import Model
from localspec.backends.options import UNQUANTISED, LoadOptions
from localspec.control.attention import KINDS, READING, ROWS, AttentionTimes, Takes
from localspec.engine import events
from localspec.engine.protocols import Cancel, Cancelled
from localspec.models.gguf.header import file_fingerprint
from localspec.settings.folders import cache_folder, replacing
from localspec.settings.sizes import counted
from localspec.tuning import TINY_WEIGHTS

SEED_TOKENS = 4  # tokens that are evaluated; deeper texts are made of copies of their entries
STRIDE = 7919  # a prime: tokens differ
EARLY, MIDDLE = 256, 1000  # tokens: where prices are taken beside those at the end of the context
LATEST = 16384  # tokens: deeper, reading takes minutes a pass
SETS = 2  # of contexts: two that are alike can differ by 16 %, by where their memory lies
TAKES, FEW = 4, 1  # of each kind in a set, the second for reading, which takes seconds
NOTHING = AttentionTimes({})
FREE = "exact rows cost under 3 % here, so each row is computed as if it were alone (--flash-attn off: together)"
NEAR = 0.1  # of the time without: a price that moved by less is not told again


@dataclass(slots=True)
class AttentionPrice:
    """What an answer is told of its kind of attention. `is_reproducible`: --reproducible asked for it."""

    times: AttentionTimes
    kind: str
    is_reproducible: bool = False
    is_default: bool = False  # it was not asked for
    _told: tuple[float, ...] | None = None

    def line(self, depth: int) -> str:
        """Return the price at `depth` tokens; "" where nobody asked for a kind, or it was told and has not moved."""
        if self.kind not in ("on", "mixed"):
            return ""
        ratios = [self.times.ratio(self.kind, rows, depth) for rows in ROWS]
        now = tuple(one.middle for one in ratios if one is not None)
        if self._told is not None and _are_near(now, self._told):
            return ""
        self._told = now
        if self.is_default:
            return FREE
        what = "--reproducible" if self.is_reproducible else "--flash-attn on"
        if not now:
            doubt = "" if self.is_reproducible else ", and several rows may take far longer deep in a text"
            return f"{what}: its price is not measured{doubt}: localspec calibrate PAIR --attention"
        names = ["reading" if rows == READING else counted(rows, "row") for rows in ROWS]
        told = ", ".join(f"{name} {one:.2f}" for name, one in zip(names, now, strict=True))
        return f"{what}: at {depth} tokens passes take, of the time with --flash-attn off: {told}"


def _are_near(some: Sequence[float], others: Sequence[float]) -> bool:
    return len(some) == len(others) and all(abs(a - b) <= NEAR for a, b in zip(some, others, strict=True))


def settled(model: Model, options: LoadOptions) -> LoadOptions:
    """Return the options with exact rows where nobody asked for a kind and they were measured to cost nothing."""
    if options.flash_attn != "auto" or options.reproducible or not differs(model, options):
        return options
    best = _read(_file(model, options)).best(context_size(model, options))
    return replace(options, flash_attn="mixed") if best == "mixed" else options


def price_of(backend: LlamaBackend, asked: LoadOptions) -> AttentionPrice | None:
    """Return the price of a loaded model's attention, None where there is no choice.

    `asked` are the options before anything was settled.
    """
    kind = backend.options.flash_attn
    if not differs(backend.model, asked):
        return None
    times = _read(_file(backend.model, asked))
    return AttentionPrice(times, kind, asked.reproducible, kind == "mixed" and not asked.reproducible)


def survey_attention(backend: LlamaBackend, cancel: Cancel) -> events.EventsThen[AttentionTimes]:
    """Measure what the kinds cost up to the end of the context, with reading a prompt, and keep it."""
    model, options = backend.model, backend.model.options
    if not differs(model, options):
        return NOTHING
    depths, timed = depths_of(context_size(model, options)), replace(options, threads=backend.threads)
    run = events.Returning(time_attention(model, timed, depths, ROWS, cancel))
    for share in run:
        yield events.Loading("kinds of attention", share)
    if run.result.seconds:
        _write(_file(model, options), run.result)
    return run.result


def _file(model: Model, options: LoadOptions) -> Path:
    """Return where the times are kept: by files, placement, threads, the cache's type and the build of llama.cpp."""
    build = build_info()
    adapters = [(file_fingerprint(Path(path)), scale) for path, scale in options.adapters]
    facts = (file_fingerprint(model.path), adapters, options.threads, options.kv_type, options.placement)
    named = repr((1, *facts, model.is_repacked, build.llama_cpp, build.system_info))
    return cache_folder("attention") / f"{hashlib.sha256(named.encode()).hexdigest()[:24]}.json"


def _read(file: Path) -> AttentionTimes:
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
        return AttentionTimes.from_wire(json.loads(file.read_text(encoding="utf-8")))
    return NOTHING


def _write(file: Path, found: AttentionTimes) -> None:
    with contextlib.suppress(OSError):  # a read-only cache: it is not known at the next load
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as out:
            out.write(json.dumps(found.to_wire()).encode())


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


class DeepText:
    """A context with a text whose entries are copies of a few: how long attention takes depends on their number."""

    def __init__(self, model: Model, options: LoadOptions) -> None:
        self._context = open_context(model, options, 2)
        self._memory = api.llama_get_memory(self._context)
        self._batch = Batch(options.n_batch, 2)
        self._n_vocab = model.n_vocab
        self._length = 0
        self._decode(SEED_TOKENS)
        self._length = SEED_TOKENS

    @property
    def can_deepen(self) -> bool:
        """Whether entries can be moved to other positions."""
        return bool(api.llama_memory_can_shift(self._memory))

    def deepen(self, depth: int) -> None:
        """Hold `depth` tokens."""
        while self._length < depth:
            n = min(self._length, depth - self._length)
            api.llama_memory_seq_cp(self._memory, 0, 1, 0, n)
            state = np.empty(api.llama_state_seq_get_size(self._context, 1), np.uint8)
            api.llama_state_seq_get_data(self._context, pointer(state), len(state), 1)
            api.llama_memory_seq_rm(self._memory, 1, -1, -1)
            api.llama_state_seq_set_data(self._context, pointer(state), len(state), 1)  # in cells of its own
            api.llama_memory_seq_add(self._memory, 1, -1, -1, self._length)
            api.llama_memory_seq_cp(self._memory, 1, 0, -1, -1)
            api.llama_memory_seq_rm(self._memory, 1, -1, -1)
            self._length += n
        self._decode(1)  # turns the keys to their new positions
        api.llama_memory_seq_rm(self._memory, 0, self._length, -1)

    def time(self, rows: int) -> float:
        """Return the seconds of a pass of `rows`, of which nothing stays."""
        began = time.perf_counter()
        self._decode(rows)
        took = time.perf_counter() - began
        api.llama_memory_seq_rm(self._memory, 0, self._length, -1)
        return took

    def close(self) -> None:
        api.llama_free(self._context)

    def _decode(self, rows: int) -> None:
        tokens = np.arange(rows, dtype=np.int64) * STRIDE % self._n_vocab
        self._batch.fill_chain(tokens.astype(np.int32), self._length, None if rows <= MAX_OUTPUTS else 1)
        if code := api.llama_decode(self._context, self._batch.struct):
            raise decode_error(code, rows, self._length)
        api.llama_synchronize(self._context)
