"""The saved state of a sequence: between which contexts llama.cpp moves it, refuses it, or takes it and is wrong."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from localspec.backends.lib import BF16, LOG
from localspec.backends.llama_cpp import Model
from localspec.backends.options import LoadOptions
from tests.integration import pair
from tests.integration.gguf_models import TINY, random_gguf
from tests.integration.raw_context import RawContext

OFF = LoadOptions(n_ctx=512, threads=1, flash_attn="off")
ON = replace(OFF, flash_attn="on")
QUANTISED = replace(ON, kv_type="q8_0")
TEXT = np.random.default_rng(0).integers(4096, size=300).tolist()
NEXT = 5


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(pair.TARGET, OFF) as opened:
        yield opened


@pytest.mark.parametrize(
    ("options", "n_sequences", "changes"),
    [
        pytest.param(OFF, 1, {}, id="as it was"),
        pytest.param(replace(OFF, n_ctx=1024), 1, {}, id="longer"),
        pytest.param(OFF, 16, {}, id="more sequences"),
        pytest.param(OFF, 1, {"n_ubatch": 64}, id="smaller batch"),
        pytest.param(replace(OFF, threads=2), 1, {}, id="more threads"),
        pytest.param(OFF, 1, {"kv_unified": False}, id="own cells, one sequence"),
    ],
)
def test_it_gives_the_same_bits(model: Model, options: LoadOptions, n_sequences: int, changes: dict[str, Any]) -> None:
    with RawContext(model, OFF) as source, RawContext(model, options, n_sequences, **changes) as target:
        source.decode(TEXT, 0)
        assert target.load(source.save())
        assert np.array_equal(source.decode([NEXT], len(TEXT)), target.decode([NEXT], len(TEXT)))


@pytest.mark.parametrize(
    ("source", "target", "n_sequences", "changes"),
    [
        pytest.param(OFF, ON, 1, {}, id="flash attention on"),
        pytest.param(ON, OFF, 1, {}, id="flash attention off"),
        pytest.param(ON, ON, 1, {"type_v": BF16}, id="another type of values"),
        pytest.param(ON, QUANTISED, 1, {}, id="quantised"),
        pytest.param(OFF, replace(OFF, kv_type="f32"), 1, {}, id="F32"),
        pytest.param(OFF, OFF, 4, {"kv_unified": False}, id="own cells, several sequences"),
    ],
)
def test_it_is_refused(
    model: Model, source: LoadOptions, target: LoadOptions, n_sequences: int, changes: dict[str, Any]
) -> None:
    with RawContext(model, source) as one, RawContext(model, target, n_sequences, **changes) as other:
        one.decode(TEXT, 0)
        LOG.clear()
        assert not other.load(one.save())
        assert "error loading state" in LOG.tail()


def test_it_is_taken_and_wrong_where_the_cache_was_rotated(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quantised cache is rotated unless LLAMA_ATTN_ROT_DISABLE says otherwise; the state does not tell."""
    with RawContext(model, QUANTISED) as source:
        source.decode(TEXT, 0)
        saved, expected = source.save(), source.decode([NEXT], len(TEXT))
        with RawContext(model, QUANTISED) as same:
            assert same.load(saved)
            assert np.array_equal(same.decode([NEXT], len(TEXT)), expected)
    monkeypatch.setenv("LLAMA_ATTN_ROT_DISABLE", "1")
    with RawContext(model, QUANTISED) as target:
        target.decode(TEXT, 0)
        own = target.decode([NEXT], len(TEXT))
        target.remove(0)
        assert target.load(saved)
        wrong = np.abs(target.decode([NEXT], len(TEXT)) - own).max()
    assert np.abs(own - expected).max() < 1.0 < wrong


def test_it_is_taken_between_weights_that_are_repacked_and_not() -> None:
    """The rows that follow are those of the other kernel's entries."""
    path = random_gguf(replace(TINY, width=256, quant="Q4_0"))
    tokens = [token % TINY.vocab for token in TEXT]
    LOG.clear()
    with Model(path, OFF) as packed, RawContext(packed, OFF) as source:
        if not any("REPACK" in line for line in LOG.lines):
            pytest.skip("llama.cpp has no other layout for this processor")
        source.decode(tokens, 0)
        saved = source.save()
    with Model(path, replace(OFF, repack=False)) as plain, RawContext(plain, OFF) as target:
        target.decode(tokens, 0)
        own = target.decode([NEXT], len(tokens))
        target.remove(0)
        assert target.load(saved)
        assert not np.array_equal(target.decode([NEXT], len(tokens)), own)
