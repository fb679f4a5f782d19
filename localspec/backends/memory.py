"""How much memory a context takes. Asked before llama.cpp is: its answer to too much is a crash or the OOM killer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.backends.options import LoadOptions, wants_flash
from localspec.errors import ResourceError
from localspec.settings.sizes import size

BITS = {"f32": 32, "f16": 16, "q8_0": 8.5, "q4_0": 4.5}  # of a cache entry, by the types of --kv
CELL_BYTES = 96  # llama.cpp's own record of a cell: position, sequence set, index entries
PAD = 256  # llama.cpp rounds contexts up to this
SCORES = 2**29  # bytes of attention scores that are worth the speed
SAFE = 0.8  # of the available memory, for a suggestion that will really work


@dataclass(frozen=True, slots=True)
class ContextShape:
    """What decides the size of a context: KV entries a position takes in all layers together, attention heads.

    `padded` are the values' entries without flash attention: llama.cpp then gives every layer as many as the widest
    has; 0 where all have the same. `state` bytes are one state of all recurrent layers, which does not grow.
    """

    k_entries: int
    v_entries: int
    n_heads: int
    padded: int = 0
    state: int = 0

    def kv_bytes(self, n_ctx: int, options: LoadOptions) -> int:
        values = self.v_entries if options.flash_attn != "off" else max(self.v_entries, self.padded)
        row = (self.k_entries + values) * BITS[options.kv_type] / 8
        return int(-(-n_ctx // PAD) * PAD * row) * options.lanes + self.state * options.n_states

    def compute_bytes(self, n_ctx: int, n_batch: int, has_flash: bool) -> int:
        """Return the bytes of the buffers that grow with the context: the mask and, without flash attention, scores."""
        per_row = 2 if has_flash else 4 * (self.n_heads + 1)
        return n_ctx * min(n_batch, n_ctx) * per_row


def attention_for(shape: ContextShape, n_ctx: int, options: LoadOptions, has_gpu: bool) -> LoadOptions:
    """Return the options with flash attention switched off where that is quicker and its scores fit in memory."""
    if wants_flash(options.flash_attn, options.kv_type, has_gpu=has_gpu):
        return options
    scores = shape.compute_bytes(n_ctx, options.n_batch, has_flash=False)
    return replace(options, flash_attn="off") if scores <= SCORES else options


def rollback_for(shape: ContextShape, n_ctx: int, options: LoadOptions, available: int | None) -> LoadOptions:
    """Return the options with as much rollback in place as `available` bytes hold the states for, half each time."""
    while options.rollback > 1 and available is not None and context_bytes(shape, n_ctx, options) > available:
        options = replace(options, rollback=options.rollback // 2)
    return options


def context_bytes(shape: ContextShape, n_ctx: int, options: LoadOptions) -> int:
    """Return the bytes of the cache, of llama.cpp's record of it and of the buffers that grow with it."""
    has_flash = options.flash_attn != "off"
    buffers = shape.compute_bytes(n_ctx, options.n_batch, has_flash)
    return shape.kv_bytes(n_ctx, options) + buffers + n_ctx * options.lanes * CELL_BYTES


def check_context(
    shape: ContextShape, n_ctx: int, options: LoadOptions, available: int | None, longest: int | None = None
) -> int:
    """Return the KV bytes of a context, or refuse one that does not fit into `available` bytes.

    The model was trained for `longest` tokens, so the hint names no more.
    """
    needed = context_bytes(shape, n_ctx, options)
    if available is None or needed <= available:
        return shape.kv_bytes(n_ctx, options)
    fits = int(SAFE * available * n_ctx / needed) // PAD * PAD  # the total is as good as linear in n_ctx
    fits = min(fits, longest or fits)
    raise ResourceError(
        f"a context of {n_ctx} tokens needs {size(needed)} of memory and {size(available)} is available",
        hint=f"--ctx {fits}" if fits else "close other programs or take a smaller model",
        detail={"n_ctx": n_ctx, "needed_bytes": needed, "available_bytes": available, "fitting_n_ctx": fits},
    )


def check_weights(n_bytes: int, available: int | None) -> None:
    """Refuse weights that must be read into memory (not mapped) and do not fit."""
    if available is not None and n_bytes > available:
        raise ResourceError(
            f"the model's {size(n_bytes)} do not fit into the {size(available)} of memory that is available",
            hint="leave out --no-mmap, or take a smaller quantisation",
            detail={"needed_bytes": n_bytes, "available_bytes": available},
        )
