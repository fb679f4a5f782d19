"""What a backend says of a saved text: how much of it serves, what it depends on, and what is left of one refused."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from localspec.backends import saved_state
from localspec.backends.llama_cpp import Model
from localspec.backends.saved_state import SavingBackend, common_tokens
from localspec.errors import InternalError
from tests.integration.gguf_models import EXACT, SLIDING, TINY, never, random_gguf
from tests.integration.stateful_models import stateful_gguf

TOKENS = [100 + 37 * i % 300 for i in range(90)]


@pytest.mark.parametrize(
    ("is_reproducible", "is_stateful", "ends", "read", "common", "usable"),
    [
        pytest.param(False, False, (), 0, 70, 70, id="attention"),
        pytest.param(True, False, (), 128, 127, 64, id="whole chunks of what is common"),
        pytest.param(True, False, (), 64, 200, 64, id="whole chunks of what was read"),
        pytest.param(True, False, (), 63, 200, 0, id="no whole chunk"),
        pytest.param(False, True, (40, 90), 0, 39, 0, id="before the first state"),
        pytest.param(False, True, (40, 90), 0, 40, 40, id="at a state"),
        pytest.param(False, True, (40, 90), 0, 89, 40, id="between two"),
        pytest.param(False, True, (40, 90), 0, 90, 90, id="at the last"),
        pytest.param(True, True, (64, 128), 128, 200, 128, id="a state after whole chunks"),
        pytest.param(True, True, (64, 130), 130, 200, 0, id="a state within a chunk"),
    ],
)
def test_how_much_of_a_saved_text_serves(
    is_reproducible: bool, is_stateful: bool, ends: Sequence[int], read: int, common: int, usable: int
) -> None:
    backend = SimpleNamespace(
        options=SimpleNamespace(reproducible=is_reproducible),
        model=SimpleNamespace(is_stateful=is_stateful),
        _n_batch=64,
    )
    assert SavingBackend.usable(cast("SavingBackend", backend), ends, read, common) == usable


@pytest.mark.parametrize(
    ("some", "others", "n"),
    [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1], 1), ([1, 2, 3], [1, 9, 3], 1)],
)
def test_what_two_texts_have_in_common(some: list[int], others: list[int], n: int) -> None:
    assert common_tokens(np.array(some, np.int32), others) == n
    assert common_tokens(np.array(others, np.int32), np.array(some, np.int32)) == n


@pytest.mark.parametrize(("flash_attn", "is_other"), [("on", True), ("off", False)])
def test_threads_matter_to_flash_attention_alone(flash_attn: Any, is_other: bool) -> None:
    """It gives each of them a part of a text. And the files of llama.cpp are named, with their sizes."""
    options = replace(EXACT, flash_attn=flash_attn)
    with Model(random_gguf(TINY), options) as model, SavingBackend(model, options) as backend:
        facts = backend.facts
        backend.threads += 1
        assert (backend.facts != facts) == is_other
    libraries = [fact for fact in facts if isinstance(fact, tuple) and "llama" in str(fact[0])]
    assert libraries
    assert all(size > 0 for _, size, _ in libraries)


@pytest.mark.parametrize("path", [random_gguf(TINY), random_gguf(SLIDING), stateful_gguf("qwen35")], ids=["", "w", "s"])
def test_a_state_that_llama_cpp_refuses_leaves_an_empty_text(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(EXACT, keeps_prompt=True)
    with ExitStack() as stack:
        model = stack.enter_context(Model(path, options))
        source, target = (stack.enter_context(SavingBackend(model, options)) for _ in range(2))
        rows = [source.prefill(text, never).logits(0).copy() for text in (TOKENS[:20], TOKENS)]
        saved = source.save()
        target.prefill(TOKENS[40:60], never)
        spoilt = saved.data[:-1].copy()
        spoilt[len(spoilt) // 4 : len(spoilt) // 4 * 3] = 0xFF  # no numbers: they would spoil rows that ignore them
        assert not target.restore(replace(saved, data=spoilt), 90)
        target.check()
        assert (target.length, target.cached(TOKENS)) == (0, 0)
        for text, row in zip((TOKENS[:20], TOKENS), rows, strict=True):
            assert np.array_equal(target.prefill(text, never).logits(0), row)
        if not source._block:
            assert source.n_state_bytes == saved.n_bytes - saved.tokens.nbytes
            assert bool(saved.points) == model.is_stateful
        monkeypatch.setattr(saved_state.api, "llama_state_seq_get_data_ext", lambda *_: 0)
        with pytest.raises(InternalError, match="did not write"):
            source.save()


def test_numbers_of_a_state_that_was_refused_reach_no_later_row() -> None:
    """Without flash attention an entry that is masked counts zero times its value, which is not zero for a NaN.

    So the blocks that llama.cpp took before the one that it refused are overwritten, not only let go of.
    """
    options = replace(EXACT, flash_attn="off")
    with Model(random_gguf(SLIDING), options) as model, SavingBackend(model, options) as backend:
        row = backend.prefill(TOKENS[:20], never).logits(0).copy()
        backend.prefill(TOKENS, never)
        saved = backend.save()
        spoilt = saved.data[:-1].copy()  # its last block is cut, and some before it hold what is no number
        at = len(spoilt) * 95 // 100
        spoilt[at : at + 200] = 0xFF
        assert not backend.restore(replace(saved, data=spoilt), len(TOKENS))
        assert np.array_equal(backend.prefill(TOKENS[:20], never).logits(0), row)


def test_the_files_of_a_build_are_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("libb.so.1", "libc.dylib", "liba.so", "x.h", "dylib"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(saved_state.api._lib, "_name", str(tmp_path / "liba.so"))
    found = [(name, size) for name, size, _ in saved_state._libraries()]
    assert found == [("liba.so", 7), ("libb.so.1", 9), ("libc.dylib", 10)]


@pytest.mark.parametrize(("window", "block"), [(-1, 0), (0, 0), (1, 1), (3, 1), (8, 2), (20, 5)])
def test_a_window_is_saved_in_quarters(monkeypatch: pytest.MonkeyPatch, window: int, block: int) -> None:
    monkeypatch.setattr(saved_state.api, "llama_model_n_swa", lambda _model: window)
    assert saved_state.SavingBackend._block.fget(SimpleNamespace(model=SimpleNamespace(handle=None))) == block


def test_a_text_of_blocks_takes_about_what_is_told_and_a_head_forgets_the_other_text() -> None:
    heard: list[tuple[Any, ...]] = []
    with Model(random_gguf(SLIDING), EXACT) as model, SavingBackend(model, EXACT) as backend:
        for text in (TOKENS, TOKENS[:30]):
            backend.prefill(text, never)
            saved = backend.save()
            assert 0.9 < backend.n_state_bytes / saved.data.nbytes < 1.1
        assert saved.n_bytes == saved.data.nbytes + saved.tokens.nbytes
        backend._listener = cast("Any", SimpleNamespace(read=lambda _context, *told: heard.append(told)))
        assert backend.restore(saved, 30)
        assert heard == [(0, 0)]


def test_a_text_that_is_turned_by_other_factors_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a context that is longer than the first training."""
    with Model(random_gguf(TINY), EXACT) as model, SavingBackend(model, EXACT) as backend:
        monkeypatch.setattr(saved_state, "is_stretched", lambda model, n_ctx: n_ctx > 512)
        assert backend.can_save
        monkeypatch.setattr(saved_state, "is_stretched", lambda model, n_ctx: n_ctx == 512)
        assert not backend.can_save
