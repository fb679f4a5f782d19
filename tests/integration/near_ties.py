"""Same text, up to floating-point ties: measured, printed, never a blanket tolerance.

A target computes slightly different logits for a row in a batch than for the row alone. A fork between two texts is
accepted only where plain decoding would have taken the other token from logits that lie within four times that drift;
the drift is measured in the same configuration.
"""

from __future__ import annotations

import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend
from localspec.engine.sampling import Sampler
from localspec.lossless.fork import margin
from localspec.settings.request import Sampling


def drift(target: LlamaBackend, tokens: list[int], n_rows: int) -> float:
    """Return the largest difference of a logit between rows of one batch and the same rows one by one."""
    split = len(tokens) - n_rows
    rows_alone = []
    for n in range(split, len(tokens)):
        rows_alone.append(target.prefill(tokens[: n + 1], lambda: False).logits(0).copy())
    target.truncate(0)
    target.prefill(tokens[:split], lambda: False)
    rows = target.extend(tokens[split:], list(range(-1, n_rows - 1)))
    together = [rows.logits(i).copy() for i in range(n_rows)]
    target.truncate(0)
    return max(float(np.abs(a - b).max()) for a, b in zip(rows_alone, together, strict=True))


def assert_same_text(
    target: LlamaBackend, prompt: list[int], expected: list[int], got: list[int], sampling: Sampling, n_rows: int
) -> None:
    """Assert that two runs agree, or that they fork at a tie."""
    fork = next((i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), None)
    if fork is None:
        assert len(expected) == len(got)
        return
    seen = prompt + expected[:fork]
    bound = 4 * drift(target, seen[-256:], min(n_rows, len(seen) - 1))
    row = target.prefill(seen, lambda: False).logits(0).copy()
    apart = margin(row, seen, got[fork], Sampler(sampling), sampling.seed or 0)
    print(f"fork at token {fork}: margin {apart:.2e}, four times the drift {bound:.2e}")
    if not apart < bound:
        pytest.fail(f"the texts differ at token {fork} by {apart:.3g}, which is no tie (bound {bound:.3g})")
