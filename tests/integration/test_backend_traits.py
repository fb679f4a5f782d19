"""Models whose memory is not a plain KV cache: recurrent, and sliding-window attention."""

from collections.abc import Iterator

import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.engine.protocols import Cancelled
from tests.integration.gguf_models import EXACT, MAMBA, SLIDING, TREES, never, path_to, random_gguf

NOISE = 1e-3
GELU_NOISE = 2e-2  # ggml looks GELU up in a table of F16 values, so a last bit can grow to this; a wrong cell gives 1
TEXT = [7, 300, 12, 99, 4, 256, 31, 8, 77] * 8


@pytest.fixture
def recurrent() -> Iterator[LlamaBackend]:
    with Model(random_gguf(MAMBA), EXACT) as model, LlamaBackend(model) as backend:
        yield backend


@pytest.fixture
def sliding() -> Iterator[LlamaBackend]:
    with Model(random_gguf(SLIDING), EXACT) as model, LlamaBackend(model) as backend:
        yield backend


def test_a_recurrent_model_drafts_chains_only(recurrent: LlamaBackend) -> None:
    assert recurrent.model.is_stateful
    assert recurrent.capabilities.can_rollback
    assert recurrent.capabilities.max_leaves == 1
    assert recurrent.length == 0
    assert recurrent.kv_bytes == 0
    with pytest.raises(AssertionError, match="more leaves"):
        recurrent.extend([1, 2], [-1, -1])


def test_a_recurrent_model_decodes_plainly(recurrent: LlamaBackend) -> None:
    expected = recurrent.prefill(TEXT, never).logits(0).copy()
    assert recurrent.prefill(TEXT[:5], never)
    for token in TEXT[5:]:
        row = recurrent.extend([token], [-1]).logits(0)
        recurrent.keep((0,))
    assert np.abs(row - expected).max() <= NOISE
    recurrent.check()


def test_a_recurrent_model_evaluates_again_what_it_has_no_state_of(recurrent: LlamaBackend) -> None:
    recurrent.prefill(TEXT, never)
    before = recurrent.evaluated
    recurrent.prefill([*TEXT, 5], never)
    assert recurrent.evaluated - before == 1
    expected = recurrent.extend([6], [-1]).logits(0).copy()
    recurrent.truncate(len(TEXT) + 1)  # drops the open node: there is a snapshot from before it
    assert recurrent.evaluated - before == 2
    assert list(recurrent.tokens) == [*TEXT, 5]
    assert np.abs(recurrent.extend([6], [-1]).logits(0) - expected).max() <= NOISE
    recurrent.prefill([*TEXT, 5], never)  # the last token is evaluated, and no state is kept from before it
    assert recurrent.evaluated - before == 3 + len(TEXT) + 1
    assert np.abs(recurrent.extend([6], [-1]).logits(0) - expected).max() <= NOISE
    recurrent.truncate(0)
    assert recurrent.length == 0
    recurrent.check()


def test_a_cancelled_prefill_clears_a_recurrent_state(recurrent: LlamaBackend) -> None:
    expected = recurrent.prefill(TEXT * 2, never).logits(0).copy()
    recurrent.truncate(0)
    answers = iter([False] * 20)
    with pytest.raises(Cancelled):
        recurrent.prefill(TEXT * 2, lambda: next(answers, True))
    recurrent.check()
    assert np.abs(recurrent.prefill(TEXT * 2, never).logits(0) - expected).max() <= NOISE


@pytest.mark.parametrize("name", ["chain", "binary", "sixteen"])
def test_trees_beyond_the_window_of_a_sliding_window_model(sliding: LlamaBackend, name: str) -> None:
    assert sliding.capabilities.can_rollback
    assert sliding.capabilities.max_leaves == 16
    parents = TREES[name]
    tokens = list(range(20, 20 + len(parents)))
    sliding.prefill(TEXT, never)
    rows = sliding.extend(tokens, parents)
    got = [rows.logits(node).copy() for node in range(len(parents))]
    for node in range(len(parents)):
        path = [tokens[at] for at in path_to(parents, node)]
        sliding.truncate(0)
        assert np.abs(sliding.prefill(TEXT + path, never).logits(0) - got[node]).max() <= GELU_NOISE


def test_a_sliding_window_model_reuses_a_prefix_and_rolls_back(sliding: LlamaBackend) -> None:
    expected = sliding.prefill([*TEXT[:40], 9], never).logits(0).copy()
    sliding.prefill(TEXT, never)
    before = sliding.evaluated
    row = sliding.prefill([*TEXT[:40], 9], never).logits(0)
    assert sliding.evaluated - before == 1
    assert np.abs(row - expected).max() <= GELU_NOISE
    sliding.check()
