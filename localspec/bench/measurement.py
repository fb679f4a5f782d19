"""One measured answer: what the events of it add up to, as it is kept in results and compared."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.ui.stats import Stats


@dataclass(frozen=True, slots=True)
class Cell:
    """One answer to be measured: to prompt number `prompt`, for the `repeat`-th time."""

    prompt: int
    temperature: float
    contender: str
    repeat: int


def schedule(
    n_prompts: int, temperatures: Sequence[float], contenders: Sequence[str], repeats: int
) -> tuple[Cell, ...]:
    """Return every cell once: all contenders answer a prompt before the next is asked; each round turns the order."""
    cells = []
    for temperature in temperatures:
        for prompt in range(n_prompts):
            for repeat in range(repeats):
                is_forth = (prompt * repeats + repeat) % 2 == 0
                order = contenders if is_forth else tuple(reversed(contenders))
                cells += [Cell(prompt, temperature, name, repeat) for name in order]
    return tuple(cells)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The counts and milliseconds of one answer (definitions: `localspec.ui.stats`).

    `decoded` tokens took `decode_ms`: neither the prompt nor the token it yields, but the draft model's own reading of
    the prompt. `total_ms` is the wall clock from request to end.
    `peak_memory` is the largest resident size of the process that runs llama.cpp, models included, in bytes: while it
    gave this answer, where the system can tell. `text_hash` tells whether two answers are one text: another text takes
    another number of passes.
    """

    cell: Cell
    seed: int
    method: str
    tree: str
    length: str
    k: int
    verify: str
    reason: str
    prompt_n: int
    prefill_ms: float
    ttft_ms: float
    total_ms: float
    tokens: int
    decoded: int
    decode_ms: float
    passes: int
    drafted: int
    accepted: int
    tested_per_pos: tuple[int, ...]
    accepted_per_pos: tuple[int, ...]
    reached_per_pos: tuple[int, ...]
    draft_ms: float
    verify_ms: float
    host_ms: float
    peak_memory: int
    overdrawn_ms: float | None = None  # see `events.Finished`
    text_hash: str = ""  # "" in files from before it was kept

    @property
    def tok_per_s(self) -> float | None:
        """Tokens a second of decoding, None for an answer that ended with its first token."""
        return 1e3 * self.decoded / self.decode_ms if self.decoded and self.decode_ms else None


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def measured(cell: Cell, stats: Stats) -> Measurement:
    assert stats.started is not None
    assert stats.prefilled is not None
    assert stats.finished is not None
    started = stats.started
    rate = stats.tok_per_s
    return Measurement(
        cell=cell,
        seed=started.seed,
        method=started.method,
        tree=started.tree,
        length=started.length,
        k=started.k,
        verify=started.verify,
        reason=stats.finished.reason,
        prompt_n=stats.prefilled.prompt_n,
        prefill_ms=stats.prefilled.ms,
        ttft_ms=stats.finished.ttft_ms,
        total_ms=stats.finished.wall_ms,
        tokens=stats.emitted,
        decoded=0 if rate is None else round(rate * stats.decode_ms / 1e3),
        decode_ms=stats.decode_ms,
        passes=stats.passes,
        drafted=stats.drafted,
        accepted=stats.accepted,
        tested_per_pos=tuple(stats.tested),
        accepted_per_pos=tuple(stats.accepted_per_pos),
        reached_per_pos=tuple(stats.reached),
        draft_ms=stats.draft_ms,
        verify_ms=stats.verify_ms,
        host_ms=stats.sample_ms + stats.other_ms,
        peak_memory=stats.finished.peak_memory,
        overdrawn_ms=stats.finished.overdrawn_ms,
        text_hash=hashed(stats.text),
    )
