"""How much memory a context takes, asked before llama.cpp is: its own answer to too much is a crash or the OOM killer."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.errors import ResourceError

BITS = {"f32": 32, "f16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5, "iq4_nl": 4.5}
CELL_BYTES = 96  # llama.cpp's own record of a cell: position, sequence set, index entries
PAD = 256  # llama.cpp rounds contexts up to this


@dataclass(frozen=True, slots=True)
class KvShape:
    """Key and value entries that one position takes in all layers together; 0 for purely recurrent models."""

    k_entries: int
    v_entries: int

    def bytes_of(self, n_ctx: int, kv_type: str) -> int:
        """Return the bytes of the cache of `n_ctx` positions."""
        return int(-(-n_ctx // PAD) * PAD * (self.k_entries + self.v_entries) * BITS[kv_type] / 8)


def check_context(shape: KvShape, n_ctx: int, kv_type: str, available: int | None) -> int:
    """Return the KV bytes of a context, or refuse one that does not fit into `available` bytes."""
    wanted = shape.bytes_of(n_ctx, kv_type)
    total = wanted + n_ctx * CELL_BYTES
    if available is None or total <= available:
        return wanted
    per_token = shape.bytes_of(PAD, kv_type) / PAD + CELL_BYTES
    fits = int(0.8 * available / per_token) // PAD * PAD
    raise ResourceError(
        f"a context of {n_ctx} tokens needs {human(total)} of memory and {human(available)} is available",
        hint=f"try --ctx {fits}" if fits else "close other programs or take a smaller model",
        detail={"n_ctx": n_ctx, "needed_bytes": total, "available_bytes": available, "fitting_n_ctx": fits},
    )


def check_weights(n_bytes: int, available: int | None) -> None:
    """Refuse weights that must be read into memory (not mapped) and do not fit."""
    if available is not None and n_bytes > available:
        raise ResourceError(
            f"the model's {human(n_bytes)} do not fit into the {human(available)} of memory that is available",
            hint="leave memory mapping on, or take a smaller quantisation",
            detail={"needed_bytes": n_bytes, "available_bytes": available},
        )


def human(n_bytes: float) -> str:
    """Return a size as people write it: 1.5 GB."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit != "MB" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} GB"
