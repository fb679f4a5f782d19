"""Same text, up to floating-point ties: measured, printed, never a blanket tolerance (`localspec.lossless.fork`)."""

import pytest

from localspec.backends.llama_cpp import LlamaBackend
from localspec.lossless.fork import explain
from localspec.settings.request import Sampling


def assert_same_text(
    target: LlamaBackend, prompt: list[int], expected: list[int], got: list[int], sampling: Sampling, n_rows: int
) -> None:
    """Assert that two runs agree, or that they fork at a tie. Passes had `n_rows` rows at most."""
    shape = (n_rows - 1, min(2, target.capabilities.max_leaves))
    fork = explain(target, prompt, (expected, got), sampling, seed=sampling.seed or 0, shape=shape)
    if fork is None:
        assert len(expected) == len(got)
        return
    print(f"fork at token {fork.index}: margin {fork.margin:.2e}, drift {fork.drift:.2e}")
    if not fork.is_tie:
        pytest.fail(f"the texts differ at token {fork.index} by {fork.margin:.3g}, no tie (drift {fork.drift:.3g})")
