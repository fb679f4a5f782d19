"""How a model is loaded and run: the settings that reach llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.errors import UsageError

UNQUANTISED = ("f32", "f16")  # the KV types that attention can do with in plain multiplications
MAX_THREADS = 512  # GGML_MAX_N_THREADS


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model's layers go: the first to the CPU, then `counts[i]` of them to `devices[i]`.

    The head counts as a layer after the last. Routed experts of the first `cpu_experts` layers stay in main memory.
    `is_repacked`: the CPU may keep its weights rearranged for its vector units, which takes memory of its own instead
    of the mapped file.
    """

    devices: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    cpu_experts: int = 0
    is_repacked: bool = True


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Settings of a model and its context; None and "auto" mean: decided from the model and the machine.

    `n_ctx` positions of the context. `gpu`: "auto", "off", "all" or the number of layers as text. `max_leaves`: leaves
    of one draft tree, each a sequence id. `n_batch`: rows of one decode. `repack`: lay weights out anew for the
    processor's matrix instructions; None: unless that crashes here (see `amx`). `placement` overrules `gpu`.
    `flash_attn` "mixed" is flash attention with values as BF16, whatever the keys have: every
    row is computed as if it were alone.
    `reproducible`: rows of several passes shall equal those of one, see `exact_widths`. `adapters`: LoRA files and
    their scales. `has_mtp`: load the blocks that predict further tokens, too. `n_masks`: how many of the file's tokens,
    the last ones, are mask tokens. Of models that keep a state: `rollback` tokens of a pass shall be taken back in
    place, where the architecture can. `keeps_prompt`: a copy of the state after a prompt is kept, for another answer.
    `lanes`: so many texts share the context, each with `n_ctx` positions of its own and no trees.
    """

    n_ctx: int | None = None
    threads: int | None = None
    threads_batch: int | None = None
    gpu: str = "auto"
    kv_type: str = "f16"
    flash_attn: str = "auto"
    mmap: bool = True
    mlock: bool = False
    max_leaves: int = 16
    n_batch: int = 512
    repack: bool | None = None
    placement: Placement | None = None
    reproducible: bool = False
    adapters: tuple[tuple[str, float], ...] = ()
    has_mtp: bool = False
    n_masks: int = 0
    rollback: int = 0
    keeps_prompt: bool = False
    lanes: int = 1

    @property
    def n_states(self) -> int:
        """Return how many states are kept of a model that keeps any: in the context, and after the prompt."""
        return (1 + self.rollback if self.rollback else 2) + self.keeps_prompt

    def __post_init__(self) -> None:
        if self.n_ctx is not None and not 2 <= self.n_ctx < 2**32:
            raise UsageError(f"the context size {self.n_ctx} is not possible", hint="--ctx 4096")


def wants_flash(flash_attn: str, kv_type: str, has_gpu: bool) -> bool:
    """Whether flash attention is worth its while: asked for, needed by the cache's type, or computed by a GPU.

    On a processor it costs by the row: 600 tokens deep in a 1B model a pass of 8 rows took 206 ms with it and 111
    without, one of a single row 72 and 65.
    """
    return flash_attn in ("on", "mixed") or (flash_attn == "auto" and (has_gpu or kv_type not in UNQUANTISED))
