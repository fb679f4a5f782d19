"""Lanes on llama.cpp: what one answer sees beside others is what it sees alone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from localspec.backends.lanes import Lane, SharedContext, SharedLane
from localspec.backends.llama_cpp import Model
from localspec.backends.passes import Passes
from localspec.backends.saved_state import SavingBackend
from localspec.engine.protocols import Cancelled
from tests.integration.gguf_models import EXACT, never

OPTIONS = replace(EXACT, n_ctx=1024, n_batch=64)


def lanes(model: Model, n: int) -> tuple[Passes, list[SharedLane]]:
    passes = Passes()
    shared = SharedContext(model, OPTIONS, n)
    return passes, [SharedLane(passes, shared, model, never) for _ in range(n)]


Rows = list[np.ndarray]


def walk(backend: SavingBackend, seed: int, steps: int, rows: Rows) -> Callable[[], None]:
    """Return what reads a random text and makes random passes with drafts, of which a part is kept."""
    rng = np.random.default_rng(seed)

    def work() -> None:
        prompt = rng.integers(1, model_vocab(backend), 5 + 40 * (seed % 4)).tolist()
        rows.append(backend.prefill(prompt, never).logits(0).copy())
        for _ in range(steps):
            n = int(rng.integers(1, 6))
            tokens = rng.integers(1, model_vocab(backend), n).tolist()
            made = backend.extend(tokens, range(-1, n - 1))
            rows.extend(made.logits(node).copy() for node in range(n))
            backend.keep(tuple(range(int(rng.integers(1, n + 1)))))
            backend.check()
            if rng.random() < 0.2:
                backend.truncate(max(1, backend.length - int(rng.integers(0, 8))))

    return work


def model_vocab(backend: SavingBackend) -> int:
    return backend.capabilities.n_vocab


def alone(model: Model, seed: int, steps: int) -> Rows:
    rows: Rows = []
    with SavingBackend(model, OPTIONS) as backend:
        walk(backend, seed, steps, rows)()
    return rows


def run(passes: Passes) -> None:
    while passes.n_running:
        passes.round()


@pytest.mark.parametrize("n", [1, 2, 4])
def test_rows_beside_others_are_those_alone(model: Model, n: int) -> None:
    passes, made = lanes(model, n)
    found: list[Rows] = [[] for _ in made]
    for seed, (lane, rows) in enumerate(zip(made, found, strict=True)):
        passes.start(walk(lane, seed, 30, rows))
    run(passes)
    for seed, rows in enumerate(found):
        expected = alone(model, seed, 30)
        assert len(rows) == len(expected)
        for row, other in zip(rows, expected, strict=True):
            np.testing.assert_allclose(row, other, atol=2e-3)


def test_answers_join_and_end_at_any_pass(model: Model) -> None:
    passes, made = lanes(model, 3)
    found: list[Rows] = [[], [], [], []]
    passes.start(walk(made[0], 0, 12, found[0]))
    for _ in range(4):
        passes.round()
    passes.start(walk(made[1], 1, 4, found[1]))
    for _ in range(5):
        passes.round()
    passes.start(walk(made[2], 2, 12, found[2]))
    run(passes)
    passes.start(walk(made[1], 3, 6, found[3]))  # a lane that held another text
    run(passes)
    for seed, (rows, steps) in enumerate(zip(found, (12, 4, 12, 6), strict=True)):
        for row, other in zip(rows, alone(model, seed, steps), strict=True):
            np.testing.assert_allclose(row, other, atol=2e-3)


def test_a_context_grows_while_others_write(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.backends import growing_context

    monkeypatch.setattr(growing_context, "_may_grow", lambda *_: True)
    monkeypatch.setattr(growing_context, "FIRST_CONTEXT", 256)
    passes, made = lanes(model, 3)
    assert made[0].shared.growing.size == 256
    found: list[Rows] = [[] for _ in made]
    for seed, (lane, rows) in enumerate(zip(made, found, strict=True)):
        passes.start(walk(lane, seed, 160, rows))
    run(passes)
    assert made[0].shared.growing.size > 256
    for seed, rows in enumerate(found):
        for row, other in zip(rows, alone(model, seed, 160), strict=True):
            np.testing.assert_allclose(row, other, atol=2e-3)


def test_a_cancel_ends_one_and_leaves_the_others(model: Model) -> None:
    passes, made = lanes(model, 2)
    rows: Rows = []
    stopped: list[bool] = []

    def reading() -> None:
        with pytest.raises(Cancelled):
            made[1].prefill(list(range(1, 60)) * 10, lambda: made[1].length > 100)
        stopped.append(True)
        made[1].check()

    passes.start(walk(made[0], 0, 20, rows))
    passes.start(reading)
    run(passes)
    assert stopped == [True]
    for row, other in zip(rows, alone(model, 0, 20), strict=True):
        np.testing.assert_allclose(row, other, atol=2e-3)


def test_a_text_is_copied_from_a_lane_to_another(model: Model) -> None:
    _, (one, other) = lanes(model, 2)
    prompt = list(range(1, 60)) * 3
    expected = one.prefill(prompt, never).logits(0).copy()
    assert other.restore(one.save(), len(prompt) - 1)
    before = other.evaluated
    np.testing.assert_allclose(other.prefill(prompt, never).logits(0), expected, atol=2e-3)
    assert other.evaluated == before + 1
    other.check()
    one.check()


def test_rows_are_stale_once_another_lane_was_decoded(model: Model) -> None:
    _, (one, other) = lanes(model, 2)
    rows = one.prefill([1, 2, 3], never)
    other.prefill([4, 5, 6], never)
    with pytest.raises(AssertionError, match="stale"):
        rows.logits(0)


def test_contexts_of_their_own_take_turns(model: Model) -> None:
    passes = Passes()
    made = [Lane(passes, model, OPTIONS, never) for _ in range(2)]
    found: list[Rows] = [[], []]
    for seed, (lane, rows) in enumerate(zip(made, found, strict=True)):
        passes.start(walk(lane, seed, 10, rows))
    run(passes)
    for seed, rows in enumerate(found):
        for row, expected in zip(rows, alone(model, seed, 10), strict=True):
            np.testing.assert_array_equal(row, expected)
    for lane in made:
        lane.close()
