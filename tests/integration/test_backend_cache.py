"""What is committed stays, what is not goes, whatever was drafted: the cache after keep, truncate and prefill."""

from collections.abc import Iterator

import numpy as np
import pytest

from localspec.backends import llama_cpp
from localspec.backends.batch import Batch
from localspec.backends.lib import LOG
from localspec.backends.llama_cpp import EARLY, LlamaBackend, LoadOptions, Model
from localspec.engine.protocols import Cancelled
from localspec.errors import PromptTooLongError, ResourceError
from tests.integration.gguf_models import TREES, never, path_to

NOISE = 1e-3
PREFIX = [7, 300, 12, 99, 4, 256, 31, 8, 77]


@pytest.fixture(scope="module")
def fresh(model: Model) -> Iterator[LlamaBackend]:
    with LlamaBackend(model) as backend:
        yield backend


def assert_same_future(backend: LlamaBackend, fresh: LlamaBackend, steps: int = 32) -> None:
    """Assert that plain greedy decoding goes on as in a context that has only seen the committed text."""
    fresh.truncate(0)
    if backend.length:
        fresh.prefill(backend.tokens, never)
    token = 11
    for _ in range(steps):
        row, expected = backend.extend([token], [-1]).logits(0), fresh.extend([token], [-1]).logits(0)
        assert np.abs(row - expected).max() <= NOISE
        token = int(row.argmax())
        assert token == int(expected.argmax())
        backend.keep((0,))
        fresh.keep((0,))
        backend.check()


@pytest.mark.parametrize("name", ["chain", "siblings", "binary", "ternary", "depth first", "sixteen", "forest"])
def test_every_path_can_be_kept(backend: LlamaBackend, fresh: LlamaBackend, name: str) -> None:
    parents = TREES[name]
    tokens = list(range(20, 20 + len(parents)))
    for node in range(-1, len(parents)):
        backend.prefill(PREFIX, never)
        backend.extend(tokens, parents)
        path = path_to(parents, node)
        backend.keep(path)
        backend.check()
        assert list(backend.tokens) == PREFIX + [tokens[at] for at in path]
        assert backend.length == len(PREFIX) + len(path)
        assert_same_future(backend, fresh)


def test_a_long_run_of_trees_agrees_with_a_fresh_context(backend: LlamaBackend, fresh: LlamaBackend) -> None:
    rng = np.random.default_rng(5)
    for round_ in range(150):
        parents: list[int] = []
        for _ in range(int(rng.integers(1, 4))):  # levels of decodes
            first, n = len(parents), int(rng.integers(1, 6))
            new = [int(rng.integers(-1, first + at)) for at in range(n)]
            if len(set(range(first + n)) - set(parents + new)) > backend.capabilities.max_leaves:
                break
            backend.extend(rng.integers(1, 512, n).astype(np.int32), new)
            parents += new
            backend.check()
        path = path_to(parents, int(rng.integers(-1, len(parents))))
        length = backend.length
        backend.keep(path)
        backend.check()
        assert backend.length == length + len(path)
        if backend.length > 100:
            backend.truncate(int(rng.integers(0, backend.length)))
            backend.check()
        if round_ % 30 == 29:
            assert_same_future(backend, fresh)


def test_a_kept_path_is_a_path(backend: LlamaBackend) -> None:
    backend.extend([1, 2, 3], [-1, 0, 0])
    with pytest.raises(AssertionError, match="path"):
        backend.keep((1,))
    with pytest.raises(AssertionError, match="path"):
        backend.keep((0, 1, 2))


def test_truncate_is_absolute_and_idempotent(backend: LlamaBackend, fresh: LlamaBackend) -> None:
    backend.prefill(PREFIX, never)
    backend.extend([1, 2, 3], [-1, 0, 0])
    for _ in range(2):
        backend.truncate(5)
        backend.check()
        assert list(backend.tokens) == PREFIX[:5]
    assert_same_future(backend, fresh)
    with pytest.raises(AssertionError, match="truncation"):
        backend.truncate(1000)


def test_prefill_evaluates_what_follows_the_common_prefix(backend: LlamaBackend, fresh: LlamaBackend) -> None:
    def evaluated_by(tokens: list[int]) -> int:
        before = backend.evaluated
        row = backend.prefill(tokens, never).logits(0)
        backend.check()
        fresh.truncate(0)
        assert np.abs(row - fresh.prefill(tokens, never).logits(0)).max() <= NOISE
        return backend.evaluated - before

    assert evaluated_by(PREFIX) == 9
    assert evaluated_by(PREFIX) == 1  # the last one always: its row is the answer
    assert evaluated_by([*PREFIX, 1, 2]) == 2
    backend.extend([1, 2], [-1, -1])
    assert evaluated_by([*PREFIX, 1, 3]) == 1
    assert evaluated_by(PREFIX[:4]) == 1
    assert evaluated_by([*PREFIX[:3], 5, 5]) == 2
    assert evaluated_by([1] + PREFIX * 20) == 181  # several chunks
    assert evaluated_by([1] + PREFIX * 20) == 1


def test_prefill_of_an_array(backend: LlamaBackend) -> None:
    backend.prefill(np.array(PREFIX, np.int32), never)
    assert list(backend.tokens) == PREFIX


@pytest.mark.parametrize("patience", [0, 1, 2, 3, 30, 100])
def test_a_cancelled_prefill_leaves_a_prefix(backend: LlamaBackend, fresh: LlamaBackend, patience: int) -> None:
    text = PREFIX * 40
    calls = 0

    def cancel() -> bool:
        nonlocal calls
        calls += 1
        return calls > patience

    with pytest.raises(Cancelled):
        backend.prefill(text, cancel)
    backend.check()
    assert list(backend.tokens) == text[: backend.length]
    assert backend.length < len(text)
    calls_then = calls
    assert_same_future(backend, fresh, steps=3)
    assert calls == calls_then, "the flag is asked in prefills only"
    row = backend.prefill(text, never).logits(0)
    fresh.truncate(0)
    assert np.abs(row - fresh.prefill(text, never).logits(0)).max() <= NOISE


def test_a_cancel_in_the_middle_of_a_chunk_aborts_it(model: Model) -> None:
    with LlamaBackend(model, LoadOptions(threads=1, n_ctx=512, n_batch=512)) as backend:
        answers = iter([False] * 10)
        with pytest.raises(Cancelled):
            backend.prefill(PREFIX * 50, lambda: next(answers, True))
        backend.check()
        assert backend.length == 0


def test_what_a_person_stops_is_no_failure_in_the_log(model: Model) -> None:
    """The screen of the engine's log ended with "failed to decode" after every Esc."""
    with LlamaBackend(model, LoadOptions(threads=1, n_ctx=512, n_batch=512)) as backend:
        LOG.clear()
        answers = iter([False] * 10)
        with pytest.raises(Cancelled):
            backend.prefill(PREFIX * 50, lambda: next(answers, True))
        assert LOG.tail() == ""
        backend.prefill(PREFIX, never)
    LOG._receive(2, b"heard again\n", None)
    assert LOG.tail() == "heard again"


def test_a_cancel_within_a_slow_pass_leaves_what_was_committed(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that takes ten seconds a pass must not keep a person waiting for them, nor lose its cache."""
    monkeypatch.setattr(llama_cpp, "SLOW", 0.0)
    with LlamaBackend(model, LoadOptions(threads=1, n_ctx=512)) as backend:
        backend.prefill(PREFIX, never)
        asked = []
        backend.cancel = lambda: bool(asked.append(1) or len(asked) > 5)
        with pytest.raises(Cancelled):
            backend.extend([5, 6], [-1, 0])
        backend.check()
        assert backend.length == len(PREFIX)
        with pytest.raises(Cancelled):
            backend.time_rows(3)
        backend.cancel = never
        backend.extend([5], [-1])
        backend.keep([0])
        backend.check()
        assert list(backend.tokens) == [*PREFIX, 5]


def test_a_tree_that_was_stopped_in_its_second_level_leaves_nothing(
    model: Model, fresh: LlamaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first level lies on several sequences: all of them are cleared, or the next tree sees it."""
    monkeypatch.setattr(llama_cpp, "SLOW", 0.0)  # so that every pass asks whether it is to stop
    with LlamaBackend(model) as backend:
        backend.prefill(PREFIX, never)
        backend.extend([20, 21, 22, 23], [-1, -1, -1, -1])
        backend.cancel = lambda: True
        with pytest.raises(Cancelled):
            backend.extend([30, 31, 32, 33], [0, 1, 2, 3])
        backend.cancel = never
        backend.check()
        fresh.truncate(0)
        fresh.prefill(PREFIX, never)
        for one in (backend, fresh):
            one.extend([40, 41, 42, 43], [-1, -1, -1, -1])
        rows, expected = (one.extend([50, 51, 52, 53], [0, 1, 2, 3]) for one in (backend, fresh))
        for node in range(4, 8):
            assert np.abs(rows.logits(node) - expected.logits(node)).max() <= NOISE


def test_the_widest_draft_is_decoded(model: Model) -> None:
    """As many rows as the capabilities promise, every one with logits; llama.cpp ends the process where it planned
    fewer.
    """
    with LlamaBackend(model, LoadOptions(threads=1, n_ctx=600)) as backend:
        rows = backend.capabilities.max_rows
        assert 64 < rows < 512
        backend.prefill(PREFIX, never)
        last = backend.extend([1] * rows, list(range(-1, rows - 1))).logits(rows - 1)
        assert np.isfinite(last).all()
        with pytest.raises(AssertionError):
            backend.extend([1] * (rows + 1), list(range(-1, rows)))


def test_a_full_context_is_a_named_error(model: Model) -> None:
    with LlamaBackend(model, LoadOptions(threads=1, n_ctx=20)) as backend:
        assert backend.capabilities.n_ctx == 20
        assert backend.capabilities.max_rows == 20
        backend.prefill(PREFIX, never)
        backend.extend([1] * 11, list(range(-1, 10)))
        with pytest.raises(ResourceError, match="context is full") as caught:
            backend.extend([1], [10])
        assert caught.value.detail == {"length": 9, "n_ctx": 20, "needed": 1}
        backend.check()
        backend.keep((0,))  # the tree is still there
        backend.check()
        with pytest.raises(PromptTooLongError, match="27 tokens and the context holds 20"):
            backend.prefill(PREFIX * 3, never)


def test_llama_cpp_without_a_slot_is_the_same_error(model: Model) -> None:
    with LlamaBackend(model, LoadOptions(threads=1, n_ctx=256)) as backend:
        backend._n_ctx, backend._batch = 1000, Batch(256, 16)  # as if nobody had counted
        backend.prefill([3] * 256, never)
        with pytest.raises(ResourceError, match="context is full"):
            backend.extend([1], [-1])
        assert backend.length == 256
        backend.check()


@pytest.mark.parametrize("length", [0, 9, EARLY - 8])
def test_a_lone_token_in_a_wider_pass(backend: LlamaBackend, fresh: LlamaBackend, length: int) -> None:
    """The rows that nobody reads change nothing and stay nowhere, also where the context grows out of them."""
    backend.prefill([3 + i % 40 for i in range(length)] or [1], never)
    backend.truncate(length)
    backend.tune(decode_rows=4)
    backend.extend([5], [-1])
    assert backend._batch.struct.n_tokens == 4
    backend.truncate(length)
    before = backend.evaluated
    assert_same_future(backend, fresh)
    assert backend.evaluated == before + 32
    assert backend._batch.struct.n_tokens == (4 if backend.length <= EARLY - 4 else 1)
    backend.extend([20, 21], [-1, -1])
    backend.extend([22], [0])  # not alone: a tree is there
    backend.check()
    backend.keep((0, 2))
    backend.check()
    assert_same_future(backend, fresh)


def test_a_lone_token_has_no_wider_pass_than_there_is_room_for(model: Model) -> None:
    with LlamaBackend(model, LoadOptions(threads=1, n_ctx=12)) as backend:
        backend.tune(decode_rows=4)
        backend.prefill(PREFIX, never)
        for _ in range(3):
            backend.extend([5], [-1])
            backend.keep((0,))
            backend.check()
        with pytest.raises(ResourceError, match="context is full"):
            backend.extend([5], [-1])


def test_more_leaves_than_sequences_assert(model: Model) -> None:
    with LlamaBackend(model, LoadOptions(threads=1, n_ctx=256, max_leaves=2)) as backend:
        assert backend.capabilities.max_leaves == 2
        backend.extend([1, 2, 3], [-1, 0, 0])
        with pytest.raises(AssertionError, match="more leaves"):
            backend.extend([4], [0])
