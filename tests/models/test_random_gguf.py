"""The random-weight models, checked by our reader and by llama.cpp."""

from pathlib import Path

import numpy as np
import pytest

from tests.models.gguf_files import inspect
from tests.weights.random_gguf import ARCHITECTURES, QUANTS, Shape, write_random_gguf

SHAPES = [Shape(quant=quant) for quant in QUANTS] + [Shape(arch=arch, layers=6) for arch in ARCHITECTURES]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.arch}-{shape.quant}")
def test_a_random_model_loads_in_llama_cpp_and_is_described_the_same(tmp_path: Path, shape: Shape) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    info = inspect(write_random_gguf(tmp_path / "r.gguf", shape, seed=1))
    loaded = llama_cpp.llama_model_load_from_file(str(info.path).encode(), llama_cpp.llama_model_default_params())
    assert loaded
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = 64
    context = llama_cpp.llama_init_from_model(loaded, params)
    try:
        vocab = llama_cpp.llama_model_get_vocab(loaded)
        assert info.n_vocab == llama_cpp.llama_vocab_n_tokens(vocab) == shape.vocab
        assert info.n_params == llama_cpp.llama_model_n_params(loaded)
        assert info.n_ctx_train == llama_cpp.llama_model_n_ctx_train(loaded)
        assert info.vocab.bos == llama_cpp.llama_vocab_bos(vocab)
        assert info.vocab.add_bos == llama_cpp.llama_vocab_get_add_bos(vocab)
        assert info.vocab.text(300) == llama_cpp.llama_vocab_get_text(vocab, 300)
        is_stateful = llama_cpp.llama_model_is_recurrent(loaded) or llama_cpp.llama_model_is_hybrid(loaded)
        assert info.is_recurrent == is_stateful
        tokens = (llama_cpp.llama_token * 3)(5, 60, 700)
        assert llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, 3)) == 0
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (info.n_vocab,))
        assert np.isfinite(logits).all()
        assert 0.5 < logits.std() < 10
    finally:
        llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(loaded)


def test_a_random_model_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    one, two, other = (
        write_random_gguf(tmp_path / f"{i}.gguf", Shape(), seed).read_bytes() for i, seed in enumerate((1, 1, 2))
    )
    assert one == two != other


def test_impossible_random_shapes_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    for shape in (Shape(width=130), Shape(vocab=100), Shape(width=80, quant="Q8_0"), Shape(heads=3)):
        with pytest.raises(ValueError, match=r"width|vocab|rows"):
            write_random_gguf(tmp_path / "x.gguf", shape)
    assert list(tmp_path.iterdir()) == []
