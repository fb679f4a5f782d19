"""The bundled pair as files: sizes, metadata, parameter counts, one vocabulary."""

import math
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.weights.read_gguf import read_gguf

FOLDER = Path(__file__).parents[2] / "models" / "storyteller"
FILES = {"target": FOLDER / "target-q8_0.gguf", "draft": FOLDER / "draft-q8_0.gguf"}
NAMES = {"target": "storyteller", "draft": "storyteller-draft"}
BOTH = pytest.mark.parametrize("which", list(FILES))


@pytest.fixture(scope="module")
def readers() -> dict[str, gguf.GGUFReader]:
    return {which: read_gguf(path) for which, path in FILES.items()}


def value(reader: gguf.GGUFReader, key: str) -> object:
    field = reader.get_field(key)
    assert field is not None, f"{key} is missing"
    return field.contents()


def parameters(reader: gguf.GGUFReader) -> int:
    """Count the parameters; a tied output matrix is stored, and counted, once."""
    return sum(math.prod(int(n) for n in tensor.shape) for tensor in reader.tensors)


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FILES.values()) <= 16 * 2**20
    assert (FOLDER / "README.md").stat().st_size > 0


@BOTH
def test_it_says_what_it_is(readers: dict[str, gguf.GGUFReader], which: str) -> None:
    reader = readers[which]
    assert value(reader, "general.architecture") == "llama"
    assert value(reader, "general.name") == NAMES[which]
    for key in ("general.author", "general.license", "general.description"):
        assert value(reader, key)
    assert value(reader, "llama.context_length") == 1024


@BOTH
def test_the_tokenizer_ends_turns(readers: dict[str, gguf.GGUFReader], which: str) -> None:
    reader = readers[which]
    tokens = value(reader, "tokenizer.ggml.tokens")
    types = value(reader, "tokenizer.ggml.token_type")
    assert isinstance(tokens, list)
    assert isinstance(types, list)
    assert tokens[:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert {i for i, kind in enumerate(types) if kind == gguf.TokenType.CONTROL} == {0, 1, 2}
    assert value(reader, "tokenizer.ggml.model") == "gpt2"
    assert value(reader, "tokenizer.ggml.pre") == "gpt-2"
    assert value(reader, "tokenizer.ggml.bos_token_id") == 0
    assert value(reader, "tokenizer.ggml.eos_token_id") == 0
    assert value(reader, "tokenizer.ggml.eot_token_id") == 2
    assert value(reader, "tokenizer.ggml.add_bos_token") is True


@BOTH
def test_the_chat_template_is_chatml(readers: dict[str, gguf.GGUFReader], which: str) -> None:
    template = value(readers[which], "tokenizer.chat_template")
    assert isinstance(template, str)
    for part in ("<|im_start|>", "<|im_end|>", "add_generation_prompt", "assistant"):
        assert part in template


@pytest.mark.parametrize("key", ["tokens", "token_type", "merges", "model", "pre"])
def test_both_have_one_vocabulary(readers: dict[str, gguf.GGUFReader], key: str) -> None:
    name = f"tokenizer.ggml.{key}"
    assert value(readers["target"], name) == value(readers["draft"], name)


def test_the_draft_is_at_most_a_quarter(readers: dict[str, gguf.GGUFReader]) -> None:
    assert 4 * parameters(readers["draft"]) <= parameters(readers["target"])


@BOTH
def test_matrices_are_q8_and_vectors_f32(readers: dict[str, gguf.GGUFReader], which: str) -> None:
    for tensor in readers[which].tensors:
        wanted = gguf.GGMLQuantizationType.Q8_0 if len(tensor.shape) == 2 else gguf.GGMLQuantizationType.F32
        assert tensor.tensor_type == wanted, tensor.name
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.isfinite(values).all(), tensor.name
