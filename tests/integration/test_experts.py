"""What a pass of a mixture of experts reads: passes are timed on a text, whose rows share experts."""

from collections.abc import Iterator

import numpy as np
import pytest

from localspec.backends.importance import Importance, WatchedModel
from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.tokenizer import STRIDE, sample_tokens
from tests.integration.gguf_models import EXACT, Shape, random_gguf

MIXTURE = Shape(vocab=600, width=64, layers=4, heads=4, kv_heads=2, ff=32, quant="F32", experts=32, used=4)
ROWS = 12


@pytest.fixture(scope="module")
def importance() -> Importance:
    return Importance()


@pytest.fixture(scope="module")
def backend(importance: Importance) -> Iterator[LlamaBackend]:
    with WatchedModel(random_gguf(MIXTURE), EXACT, importance) as model, LlamaBackend(model) as opened:
        yield opened


def experts(importance: Importance) -> int:
    """Return how many experts all layers read since the last time; layers beyond the last see only rows of logits."""
    read = sum(int(np.count_nonzero(n)) for name, n in importance._counts.items() if "ffn_gate_exps" in name)
    importance._counts.clear()
    importance._sums.clear()
    return read


def test_passes_are_timed_on_a_text(backend: LlamaBackend, importance: Importance) -> None:
    with importance.counting():
        backend.time_rows(ROWS)
        timed = experts(importance)
        backend.extend(sample_tokens(backend.model, 0, ROWS).tolist(), range(-1, ROWS - 1))
        assert experts(importance) == timed
        backend.keep(())
        drawn = (np.arange(ROWS) * STRIDE % backend.model.n_vocab).tolist()
        backend.extend(drawn, range(-1, ROWS - 1))
        assert timed < 0.95 * experts(importance)
        backend.keep(())


def test_the_text_goes_on_where_the_context_ends(backend: LlamaBackend) -> None:
    whole = sample_tokens(backend.model, 0, 4000)  # longer than the text
    assert sample_tokens(backend.model, 1000, 50).tolist() == whole[1000:1050].tolist()
    assert len(set(whole[:64].tolist())) > 16
    assert whole.min() >= 0
