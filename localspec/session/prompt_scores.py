"""The log-probability of each token of a prompt, as evaluation tools ask for it."""

from collections.abc import Callable, Sequence

from localspec.backends.llama_cpp import LlamaBackend
from localspec.engine import events
from localspec.engine.event_stream import logprob_of
from localspec.engine.judge import Judging
from localspec.engine.protocols import Cancel, Cancelled

CHUNK = 64  # rows of a pass


def scored(
    prompt: Sequence[int], backend: LlamaBackend, piece: Callable[[int], bytes], n_top: int, cancel: Cancel
) -> events.Scored:
    """Evaluate each token of `prompt`, none from the cache; return its log-probability and its `n_top` likeliest.

    The first token has none. Afterwards the cache holds the prompt. Raises Cancelled.
    """
    judging = Judging(n_top)
    backend.truncate(0)
    before = backend.prefill(prompt[:1], cancel).logits(0).copy()
    logprobs = [events.Logprob(prompt[0], tuple(piece(prompt[0])), None)]
    rows = min(CHUNK, backend.capabilities.max_rows) if backend.capabilities.can_rollback else 1
    for first in range(1, len(prompt), rows):
        if cancel():
            raise Cancelled
        chunk = prompt[first : first + rows]
        evaluated = backend.extend(chunk, range(-1, len(chunk) - 1))
        logits = [before, *(evaluated.logits(i) for i in range(len(chunk)))]
        for token, row in zip(chunk, logits, strict=False):
            logprobs.append(logprob_of(judging.judged(row, token), piece))
        before = logits[-1].copy()
        backend.keep(tuple(range(len(chunk))))
    return events.Scored(tuple(logprobs))
