"""A context that grows with its text: what moved is what was there, and a text never knows of it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends import growing_context
from localspec.backends.devices import Device
from localspec.backends.lib import api
from localspec.backends.llama_cpp import AHEAD, LlamaBackend, LoadOptions, Model
from localspec.errors import InternalError, PromptTooLongError, ResourceError
from tests.integration.gguf_models import (
    EXACT,
    JAMBA,
    MAMBA,
    SLIDING,
    TINY,
    Shape,
    copied,
    never,
    path_to,
    random_gguf,
)
from tests.integration.test_backend_cache import NOISE, PREFIX, assert_same_future


@pytest.fixture(autouse=True)
def _contexts_grow_from_sixteen_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_context, "FIRST_CONTEXT", 16)
    monkeypatch.setattr(growing_context, "SMALL_MODEL", 0)


@pytest.fixture
def whole(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlamaBackend]:
    with monkeypatch.context() as patch:
        patch.setattr(growing_context, "FIRST_CONTEXT", EXACT.n_ctx)
        backend = LlamaBackend(model)
    with backend:
        yield backend


def size(backend: LlamaBackend) -> int:
    return backend._growing.size


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_rows_are_bit_for_bit_those_of_a_context_of_full_length(
    model: Model, kv_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(EXACT, kv_type=kv_type)
    with LlamaBackend(model, options) as growing:
        monkeypatch.setattr(growing_context, "FIRST_CONTEXT", options.n_ctx)
        with LlamaBackend(model, options) as whole:
            sizes = []
            token = 11
            rows = [backend.prefill(PREFIX, never).logits(0).copy() for backend in (growing, whole)]
            for _ in range(500):
                assert np.array_equal(*rows)
                rows = [backend.extend([token], [-1]).logits(0).copy() for backend in (growing, whole)]
                token = int(rows[0].argmax()) or 11
                for backend in (growing, whole):
                    backend.keep((0,))
                    backend.check()
                sizes.append(size(growing))
            assert sorted(set(sizes)) == [32, 64, 128, 256, 512]
            assert size(whole) == 512
            assert growing.evaluated == whole.evaluated, "nothing is evaluated again"


def test_an_open_tree_moves_too(backend: LlamaBackend, whole: LlamaBackend) -> None:
    """Each path can be kept afterwards, whichever sequences carry it."""
    levels = [[-1, -1, -1], [0, 0, 1, 2], [3, 4, 5, 5, 6], [7, 8, 9, 10, 11, 11]]
    parents = [parent for level in levels for parent in level]
    tokens = list(range(20, 20 + len(parents)))
    for node in range(-1, len(parents)):
        with LlamaBackend(backend.model) as growing:
            growing.prefill(PREFIX[:4], never)
            sizes, first = [], 0
            for level in levels:
                growing.extend(tokens[first : first + len(level)], level)
                growing.check()
                first += len(level)
                sizes.append(size(growing))
            assert sizes == [16, 16, 16, 32], "the last level moves the others"
            path = path_to(parents, node)
            growing.keep(path)
            growing.check()
            assert list(growing.tokens) == PREFIX[:4] + [tokens[at] for at in path]
            assert_same_future(growing, whole, steps=8)


def test_trees_and_cuts_while_it_grows(backend: LlamaBackend, whole: LlamaBackend) -> None:
    rng = np.random.default_rng(7)
    for round_ in range(150):
        n = int(rng.integers(1, 9))
        parents = [int(rng.integers(-1, at)) if at else -1 for at in range(n)]
        backend.extend(rng.integers(1, 512, n).astype(np.int32), parents)
        backend.check()
        backend.keep(path_to(parents, int(rng.integers(0, n))))
        backend.check()
        if round_ % 9 == 8:
            backend.truncate(backend.length - 5)
            assert_same_future(backend, whole, steps=3)
    assert size(backend) == 256


def test_a_prompt_finds_room_and_what_is_cached_stays(backend: LlamaBackend, whole: LlamaBackend) -> None:
    backend.prefill(PREFIX, never)
    assert size(backend) == 16
    text = PREFIX * 20
    row = backend.prefill(text, never).logits(0)
    assert size(backend) == 256
    assert backend.evaluated == len(text)
    assert np.abs(row - whole.prefill(text, never).logits(0)).max() <= NOISE
    backend.prefill(PREFIX, never)
    assert size(backend) == 256, "a context that has grown stays as long"
    with pytest.raises(PromptTooLongError, match="the context holds 512"):
        backend.prefill([3] * 513, never)


def test_a_lone_token_moves_before_it_must(backend: LlamaBackend) -> None:
    """So that a draft, which has to answer for its pass, seldom must."""
    backend.prefill([3] * (32 - AHEAD), never)
    sizes = []
    for draft in ([5], [5, 6], [5]):
        backend.extend(draft, range(-1, len(draft) - 1))
        backend.keep(range(len(draft)))
        sizes.append(size(backend))
    assert sizes == [32, 32, 64]


def test_the_last_position_can_be_used_and_no_more(model: Model) -> None:
    with LlamaBackend(model, replace(EXACT, n_ctx=40)) as backend:
        backend.prefill(PREFIX, never)
        for _ in range(40 - len(PREFIX)):
            backend.extend([5], [-1])
            backend.keep((0,))
        assert (backend.length, size(backend)) == (40, 40)
        with pytest.raises(ResourceError, match="context is full: 40 of 40"):
            backend.extend([5], [-1])
        backend.check()


def test_rows_of_before_are_stale(backend: LlamaBackend) -> None:
    rows = backend.prefill(PREFIX, never)
    backend.time_rows(64)
    assert size(backend) == 128
    with pytest.raises(AssertionError, match="stale"):
        rows.logits(0)
    backend.check()
    assert backend.extend([5], [-1]).logits(0).shape == (TINY.vocab,)


def test_threads_are_taken_along(model: Model) -> None:
    with LlamaBackend(model, replace(EXACT, threads=3, threads_batch=2)) as backend:
        backend.prefill(PREFIX * 3, never)
        assert size(backend) == 32
        found = api.llama_n_threads(backend._growing.context), api.llama_n_threads_batch(backend._growing.context)
        assert found == (3, 2)
    with LlamaBackend(model, replace(EXACT, threads=None)) as backend:
        assert backend.threads == 1, "settled, for so small a model"
        backend.prefill(PREFIX * 3, never)
        assert api.llama_n_threads(backend._growing.context) == 1


@pytest.mark.parametrize("what", ["memory", "llama.cpp", "state"])
def test_where_it_cannot_move_all_stays_as_it_was(
    backend: LlamaBackend, whole: LlamaBackend, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    backend.prefill(PREFIX, never)
    backend.extend([5, 6], [-1, 0])
    context = backend._growing.context
    with monkeypatch.context() as patch:
        if what == "memory":
            patch.setattr("localspec.backends.context.available_memory", lambda: 1000)
        elif what == "llama.cpp":
            patch.setattr(api, "llama_init_from_model", lambda model, params: None)
        else:
            patch.setattr(api, "llama_state_set_data", lambda *arguments: 0)
        with pytest.raises(InternalError if what == "state" else ResourceError):
            backend.extend([7] * 8, list(range(1, 9)))
    assert backend._growing.context is context
    assert size(backend) == 16
    backend.check()
    backend.keep((0, 1))
    backend.check()
    assert list(backend.tokens) == [*PREFIX, 5, 6]
    assert_same_future(backend, whole)
    assert size(backend) == 64


@pytest.mark.parametrize(
    ("shape", "options", "changed"),
    [
        pytest.param(TINY, replace(EXACT, flash_attn="on", kv_type="f16"), {}, id="flash attention"),
        pytest.param(TINY, replace(EXACT, reproducible=True), {}, id="reproducible"),
        pytest.param(SLIDING, EXACT, {}, id="sliding window"),
        pytest.param(MAMBA, EXACT, {}, id="recurrent"),
        pytest.param(JAMBA, EXACT, {}, id="hybrid"),
        pytest.param(TINY, EXACT, {"SMALL_MODEL": 2**30}, id="small"),
        pytest.param(TINY, EXACT, {"available_memory": lambda: 10**6}, id="little memory"),
        pytest.param(TINY, EXACT, {"available_memory": lambda: None}, id="memory unknown"),
        pytest.param(TINY, replace(EXACT, n_ctx=16), {}, id="short"),
    ],
)
def test_where_nothing_is_won_it_is_of_full_length(
    shape: Shape, options: LoadOptions, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in changed.items():
        monkeypatch.setattr(growing_context, name, value)
    with Model(random_gguf(shape), options) as model, LlamaBackend(model, options) as backend:
        assert size(backend) == options.n_ctx


def test_layers_on_a_gpu_are_not_moved(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "n_gpu_layers", 1)
    monkeypatch.setattr("localspec.backends.context.devices", lambda: (Device("CPU", "", False, 0),))
    with LlamaBackend(model) as backend:
        assert size(backend) == EXACT.n_ctx


@pytest.mark.parametrize(
    ("shape", "options", "is_moved"),
    [
        pytest.param(TINY, EXACT, True, id="attention"),
        pytest.param(TINY, replace(EXACT, flash_attn="on", kv_type="f16"), True, id="flash attention"),
        pytest.param(TINY, replace(EXACT, reproducible=True), False, id="reproducible"),
        pytest.param(SLIDING, EXACT, False, id="sliding window"),
        pytest.param(MAMBA, EXACT, False, id="recurrent"),
        pytest.param(JAMBA, EXACT, False, id="hybrid"),
    ],
)
def test_a_context_is_lengthened(shape: Shape, options: LoadOptions, is_moved: bool) -> None:
    """What was read is not read again, but where a text cannot move."""
    text = PREFIX * 8
    with (
        Model(random_gguf(shape), options) as model,
        LlamaBackend(model, replace(options, n_ctx=64)) as backend,
        LlamaBackend(model, options) as whole,
    ):
        for each in (backend, whole)[: 1 + is_moved]:
            each.prefill(text[:50], never)
        backend.lengthen(256)
        assert (backend.capabilities.n_ctx, backend.length) == (256, 50 if is_moved else 0)
        backend.check()
        row = backend.prefill(text, never).logits(0)
        assert backend.evaluated == len(text) + (0 if is_moved else 50)
        assert np.abs(row - whole.prefill(text, never).logits(0)).max() <= NOISE
        if options.kv_type == "f32":  # else a text that was read in other pieces differs by more
            assert_same_future(backend, whole)
        with pytest.raises(PromptTooLongError, match="the context holds 256"):
            backend.prefill([3] * 257, never)


@pytest.fixture
def stretching(tmp_path: Path) -> Iterator[Model]:
    """A model whose keys are turned more slowly in a context of more than 256 positions."""
    half = TINY.width // TINY.heads // 2
    made = copied(
        random_gguf(), tmp_path / "longrope.gguf", {}, texts={"llama.rope.scaling.type": "longrope"},
        numbers={"llama.rope.scaling.original_context_length": 256},
        tensors={
            f"rope_factors_{which}.weight": np.full(half, factor, np.float32)
            for which, factor in (("short", 1.0), ("long", 4.0))
        },
    )  # fmt: skip
    with Model(made, EXACT) as model:
        yield model


@pytest.mark.parametrize(("n_ctx", "first"), [(512, 512), (256, 16)])
def test_no_key_is_turned_for_a_shorter_context(
    stretching: Model, n_ctx: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The factors of one pass are those of its context; keys of the passes before would keep others."""
    options = replace(EXACT, n_ctx=n_ctx)
    with LlamaBackend(stretching, options) as growing:
        monkeypatch.setattr(growing_context, "FIRST_CONTEXT", n_ctx)
        with LlamaBackend(stretching, options) as whole:
            assert size(growing) == first
            for start in range(0, n_ctx - 64, 64):
                text = [1 + 7 * at % 500 for at in range(start + 64)]
                rows = [backend.prefill(text, never).logits(0).copy() for backend in (growing, whole)]
                assert np.array_equal(*rows)


def test_a_context_that_becomes_stretched_is_read_anew(stretching: Model) -> None:
    text = PREFIX * 30
    with (
        LlamaBackend(stretching, replace(EXACT, n_ctx=256)) as backend,
        LlamaBackend(stretching, EXACT) as whole,
    ):
        backend.prefill(text[:200], never)
        backend.lengthen(512)
        assert backend.length == 0
        rows = [each.prefill(text, never).logits(0).copy() for each in (backend, whole)]
        assert np.array_equal(*rows)


def test_where_memory_does_not_hold_it_nothing_is_lengthened(
    backend: LlamaBackend, whole: LlamaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.prefill(PREFIX, never)
    monkeypatch.setattr(growing_context, "available_memory", lambda: backend.model.n_bytes + 10**6)
    with pytest.raises(ResourceError, match="no context of 100000 tokens"):
        backend.lengthen(100_000)
    assert backend.capabilities.n_ctx == EXACT.n_ctx
    assert_same_future(backend, whole)
