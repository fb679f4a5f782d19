"""A copy of the bundled target in fewer bits: its importance matrix, its file, and the same text when it drafts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from localspec.backends.importance import Importance, Matrix, WatchedModel
from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.options import LoadOptions
from localspec.backends.quantise import QuantiseRecipe, quantise, size_of
from localspec.engine import events
from localspec.errors import ResourceError
from localspec.heads import make_copy as maker
from localspec.heads.make_copy import make_copy
from localspec.heads.target_file import target_rows
from localspec.models.gguf.header import read_header
from localspec.models.low_bit import copies_of, copy_of
from localspec.settings.lone_jobs import CopyOptions
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.heads.reference import TARGET
from tests.integration.pair import load_pair
from tests.integration.qwen_experts import write as write_experts

TEXTS = ("Once upon a time there was a king who had three sons.", "The ship had been three days at sea.", "Come in.")
MOE = "qwen35moe"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


def options(home: Path, **other: Any) -> CopyOptions:
    return structs.replace(CopyOptions(str(TARGET), str(home / "matrix"), "2", "Q2_K", raw=TEXTS, threads=1), **other)


def test_rows_of_an_odd_width_take_four_bits_whatever_is_asked_for(home: Path) -> None:
    """Blocks of two and three bits hold 256 numbers, and the bundled target's rows have 192."""
    sizes = {}
    for kind in ("Q2_K", "Q3_K_S", "Q4_0"):
        path = home / f"{kind}.gguf"
        sizes[kind] = quantise(TARGET, path, QuantiseRecipe(kind, threads=1), {}, lambda share: None)
        types = {tensor.name: tensor.type for tensor in read_header(path).tensors}
        assert types["blk.1.ffn_up.weight"] == "Q4_0"
        assert size_of(TARGET, QuantiseRecipe(kind, threads=1), {}) == sizes[kind]
    assert sizes["Q2_K"] == sizes["Q3_K_S"]


def read(path: Path, tokens: list[int]) -> Matrix:
    importance, loading = Importance(), LoadOptions(n_ctx=512, threads=1)
    with (
        WatchedModel(path, loading, importance) as model,
        LlamaBackend(model, loading) as backend,
        importance.counting(),
    ):
        maker._read(backend, tokens)
    assert importance.is_known
    return importance.matrix()


def test_the_matrix_is_the_mean_square_of_the_inputs() -> None:
    """The first layer's queries read the normed embeddings, which numpy has too; the head reads every row."""
    tokens = list(range(300, 500))  # more than one pass has rows with logits
    matrix, header = read(TARGET, tokens), read_header(TARGET)
    rows = target_rows(header, "token_embd.weight", np.array(tokens))
    norm = target_rows(header, "blk.0.attn_norm.weight")
    assert rows is not None
    assert norm is not None
    normed = rows / np.sqrt(np.square(rows).mean(1, keepdims=True) + 1e-5) * norm
    np.testing.assert_allclose(matrix["blk.0.attn_q.weight"], np.square(normed).mean(0), rtol=1e-3)
    assert len(matrix) == 8 * 7 + 1


def test_the_last_layer_counts_every_row(home: Path) -> None:
    """llama.cpp takes only rows with logits through the end of the last layer: one of a prompt, if nobody asks."""
    one, two = (read(TARGET, tokens)["blk.7.ffn_up.weight"] for tokens in ([5, 6, 7, 8, 9], [300, 400, 7, 8, 9]))
    assert np.abs(one - two).max() > 0.01 * one.max()  # the first tokens differ, and the last is the same


def test_experts_have_means_of_their_own(tmp_path: Path) -> None:
    matrix = read(write_experts(tmp_path / "moe.gguf", MOE), list(range(1, 60)))
    name = "blk.0.ffn_gate_exps.weight"
    tensor = next(one for one in read_header(tmp_path / "moe.gguf").tensors if one.name == name)
    width, _, n_experts = tensor.shape
    means = matrix[name].reshape(n_experts, width)
    assert (means > 0).all()
    assert len(np.unique(means.round(6), axis=0)) > 1  # each expert sees rows of its own


def test_a_copy_is_found_by_its_target_and_an_interrupted_run_goes_on(home: Path) -> None:
    run = make_copy(options(home))
    assert next(run)["stage"] == "matrix"
    run.close()
    assert copies_of(TARGET) == []
    *_, done = make_copy(options(home))
    (found,) = copies_of(TARGET)
    assert (str(found.path), found.kind, found.has_matrix, found.layers) == (done["path"], "Q2_K", True, 8)
    assert copy_of(TARGET) == found.path
    assert done["bytes"] < 0.65 * done["target_bytes"]
    assert next(one["stage"] for one in make_copy(options(home))) == "quantising"  # the matrix is kept
    assert next(one["stage"] for one in make_copy(options(home, raw=("Once",)))) == "matrix"  # of other texts
    assert [file.name for file in found.path.parent.iterdir() if file.suffix == ".part"] == []


def test_layers_are_left_out(home: Path) -> None:
    *_, whole = make_copy(options(home, tokens=0))
    *_, cut = make_copy(options(home, tokens=0, dropped=(3, 4)))
    assert cut["bytes"] < 0.9 * whole["bytes"]
    assert sorted((one.layers, one.has_matrix) for one in copies_of(TARGET)) == [(6, False), (8, False)]


def test_a_failure_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "quantise", lambda *_: None)
    with pytest.raises(ResourceError, match="could not make a copy"):
        list(make_copy(options(home, tokens=0)))
    assert [file.name for file in (home / "data" / "drafts").iterdir()] == ["lock"]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_plain_decoding(home: Path, temperature: float) -> None:
    list(make_copy(options(home)))
    settings = LoadSettings(str(TARGET), str(copy_of(TARGET)), ctx=512, threads=1)
    pair, _ = load_pair(settings)
    sampling = Sampling(temperature=temperature, seed=7)
    try:
        asked = Request(prompt=TEXTS[0], max_tokens=48, sampling=sampling, speculation=Speculation("plain"))
        expected = list(tokens(pair.answer(asked)))
        for k in (4, 16):
            drafted = replace(asked, speculation=Speculation("draft-model", k=k))
            assert list(tokens(pair.answer(drafted))) == expected
    finally:
        pair.close()


def tokens(answer: Iterator[events.Event]) -> Iterator[int]:
    for event in answer:
        if isinstance(event, events.Committed):
            yield from (piece.id for piece in event.out)
