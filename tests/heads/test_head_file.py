"""The files of heads: llama.cpp loads them and computes what the reference computes."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.batch import Batch
from localspec.backends.lib import api, logits_address
from localspec.errors import ResourceError
from localspec.heads.head_file import Kind, write_head
from localspec.heads.target_file import read_tensor
from localspec.heads.writer import stored
from localspec.models.gguf.header import read_header
from localspec.models.gguf.info import model_info
from tests.heads.reference import (
    FACTS,
    TARGET,
    Reference,
    random_weights,
    read_weights,
    storyteller_shape,
    write_random_head,
)

KINDS: tuple[Kind, ...] = ("eagle3", "eagle1", "mtp")
MTP = 1  # LLAMA_CONTEXT_TYPE_MTP
VOCAB = 4096


@contextmanager
def opened(path: Path, kind: Kind) -> Iterator[Any]:
    params = api.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts, params.load_mtp = 0, False, kind == "mtp"
    model = api.llama_model_load_from_file(os.fsencode(path), params)
    assert model
    settings = api.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_threads, settings.n_threads_batch = 64, 32, 32, 1, 1
    settings.type_k = settings.type_v = api.GGML_TYPE_F32
    settings.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED  # it rounds to F16
    if kind == "mtp":
        settings.ctx_type = MTP
    context = api.llama_init_from_model(model, settings)
    assert context
    try:
        yield context
    finally:
        api.llama_free(context)
        api.llama_model_free(model)


def decode(context: Any, tokens: NDArray[np.int32], vectors: NDArray[np.float32], first: int) -> NDArray[np.float32]:
    """Feed rows of a chain with the vectors beside them; return their logits [n, vocab]."""
    n, width = vectors.shape
    batch = Batch(n, 1, width)
    batch.states[:] = vectors
    batch.fill_chain(tokens, first)
    assert api.llama_decode(context, batch.struct) == 0
    rows = [(ctypes.c_float * VOCAB).from_address(logits_address(context, row)) for row in range(n)]
    return np.array(rows, np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_llama_cpp_computes_what_the_reference_computes(tmp_path: Path, kind: Kind) -> None:
    path = write_random_head(tmp_path / "head.gguf", kind)
    shape, rng = storyteller_shape(kind), np.random.default_rng(1)
    first = 1 if kind == "mtp" else 0
    reference = Reference(shape, read_weights(path), first)
    tokens = rng.integers(3, shape.vocab, 12).astype(np.int32)
    vectors = rng.standard_normal((12, shape.d)).astype(np.float32)
    expected, _ = reference.feed(tokens.tolist(), vectors.astype(float), range(-1, 11))
    with opened(path, kind) as context:
        logits = decode(context, tokens, vectors, first)
    can_draft = np.isfinite(expected)
    assert (np.isfinite(logits) == can_draft).all()
    assert can_draft.sum(1).tolist() == [shape.n_out] * 12
    assert np.abs(logits[can_draft] - expected[can_draft]).max() < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_quantised_head_is_close_to_what_was_written(tmp_path: Path, kind: Kind) -> None:
    path = write_random_head(tmp_path / "head.gguf", kind, matrices="Q8_0")
    types = {tensor.name: tensor.type for tensor in read_header(path).tensors}
    assert types.pop("d2t", "I64") == "I64"
    assert {types[name] for name in types if "norm" in name} == {"F32"}
    assert {types[name] for name in types if "norm" not in name} == {"Q8_0"}
    written, read = random_weights(storyteller_shape(kind)), read_weights(path)
    assert written.keys() == read.keys()
    for name, array in written.items():
        assert np.abs(array.astype(float) - read[name]).max() <= np.abs(array.astype(float)).max() / 250, name
    with opened(path, kind) as context:
        rng = np.random.default_rng(2)
        logits = decode(context, np.array([5], np.int32), rng.standard_normal((1, 192)).astype(np.float32), 1)
    assert np.isfinite(logits).any()


def test_rows_are_quantised_as_gguf_does_it() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 96)).astype(np.float32)
    rows[2] = 0
    expected = gguf.quants.quantize(rows, gguf.GGMLQuantizationType.Q8_0)
    assert (stored("m", rows, "Q8_0").data == expected.reshape(-1)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokenizer_and_the_facts_are_in_the_file(tmp_path: Path, kind: Kind) -> None:
    header, target = read_header(write_random_head(tmp_path / "head.gguf", kind)), read_header(TARGET)
    keys = [key for key in target.metadata if key.startswith("tokenizer.")]
    assert len(keys) > 5
    for key in keys:
        assert (header.types[key], header.metadata[key]) == (target.types[key], target.metadata[key])
    own = {key.rpartition(".")[2]: value for key, value in header.metadata.items() if key.startswith("localspec.head.")}
    assert list(own.pop("accepted")) == list(FACTS.accepted)
    expected = {"kind": kind, "target_fingerprint": FACTS.target, "tokens": 0, "steps": 0, "seed": 0}
    assert own == expected


def test_weights_that_are_left_out_are_the_targets(tmp_path: Path) -> None:
    target = read_header(TARGET)
    shape = storyteller_shape("mtp")
    kept = {"token_embd.weight", "output.weight", "output_norm.weight"}
    weights = {name: array for name, array in random_weights(shape).items() if name not in kept}
    write_head(tmp_path / "head.gguf", shape, weights, FACTS, target)
    head = read_header(tmp_path / "head.gguf")
    for name in kept:
        ours, theirs = read_tensor(head, name), read_tensor(target, name)
        assert ours is not None
        assert theirs is not None
        assert (ours.type, ours.shape, ours.data.tobytes()) == (theirs.type, theirs.shape, theirs.data.tobytes())
    with opened(tmp_path / "head.gguf", "mtp"):
        pass


@pytest.mark.parametrize("kind", ["eagle3", "eagle1"])
def test_an_eagle_head_holds_no_embedding_of_the_target(tmp_path: Path, kind: Kind) -> None:
    """It would be most of the file: 145 MB of 180 for a model with 152 000 tokens."""
    shape = storyteller_shape(kind)
    weights = {name: array for name, array in random_weights(shape).items() if name != "token_embd.weight"}
    write_head(tmp_path / "head.gguf", shape, weights, FACTS, read_header(TARGET))
    head = read_header(tmp_path / "head.gguf")
    assert read_tensor(head, "token_embd.weight") is None
    assert read_tensor(head, "output.weight") is not None
    info = model_info(head, may_be_head=True)
    assert info.head is not None
    assert info.head.borrows


def test_rows_that_q8_0_cannot_hold_become_f16(tmp_path: Path) -> None:
    shape = replace(storyteller_shape("mtp"), ff=200)
    write_head(tmp_path / "head.gguf", shape, random_weights(shape), FACTS, read_header(TARGET))
    types = {tensor.name: tensor.type for tensor in read_header(tmp_path / "head.gguf").tensors}
    assert (types["blk.0.ffn_down.weight"], types["blk.0.ffn_up.weight"]) == ("F16", "Q8_0")
    with opened(tmp_path / "head.gguf", "mtp"):
        pass


def test_wrong_weights_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    shape, target = storyteller_shape("eagle3"), read_header(TARGET)
    weights = random_weights(shape)
    wrong = [
        weights | {"blk.0.attn_q_norm.weight": np.ones(64, np.float32)},
        weights | {"fc.weight": np.ones((192, 192), np.float32)},
        {name: array for name, array in weights.items() if name != "d2t"},
        {name: array for name, array in weights.items() if name != "output.weight"},  # the target's has more rows
    ]
    for case in wrong:
        with pytest.raises(ValueError, match="tensor"):
            write_head(tmp_path / "head.gguf", shape, case, FACTS, target)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    shape = storyteller_shape("eagle3")
    with pytest.raises(ResourceError, match="cannot be written") as caught:
        write_head(tmp_path / "none" / "head.gguf", shape, random_weights(shape), FACTS, read_header(TARGET))
    assert "-o" in caught.value.hint
