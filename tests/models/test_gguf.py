"""The header reader against files that are right, and against other readers and writers."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.cli.pull import _fit
from localspec.errors import IntegrityError
from localspec.models.gguf.header import Header, Strings, read_header
from localspec.models.gguf.types import FILE_TYPES, TENSOR_TYPES
from localspec.models.store import parse_pair
from localspec.prompt.chat_template import DIFFER
from tests.models.gguf_files import assert_fails, inspect, model, words

REQUIRED = [
    "general.architecture",
    "llama.block_count",
    "llama.context_length",
    "llama.embedding_length",
    "llama.attention.head_count",
    "tokenizer.ggml.model",
    "tokenizer.ggml.tokens",
]


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_required_key_is_named(tmp_path: Path, key: str) -> None:
    assert_fails(model().without(key).write(tmp_path / "m.gguf"), IntegrityError, key)


def test_only_templates_of_one_vocabulary_are_compared(tmp_path: Path) -> None:
    one, other = (
        model().set("tokenizer.chat_template", "str", text).write(tmp_path / f"{name}.gguf")
        for name, text in (("one", "{{ messages }}"), ("other", "{{ messages[0] }}"))
    )
    assert _fit(f"{one}+{other}")[1:] == [DIFFER]  # behind that the draft is as large
    assert DIFFER not in _fit(f"{one}+{one}")


def test_the_valid_file_that_the_bad_ones_are_made_from_is_read_completely(tmp_path: Path) -> None:
    path = model().set("tokenizer.chat_template", "str", "{{ messages }}").write(tmp_path / "m.gguf")
    header, info = read_header(path), inspect(path)
    assert (header.version, header.size, header.data_offset % 32) == (3, path.stat().st_size, 0)
    assert [(t.name, t.shape, t.type, t.offset, t.n_bytes) for t in header.tensors] == [
        ("token_embd.weight", (32, 2), "Q8_0", 0, 68),
        ("output_norm.weight", (32,), "F32", 96, 128),
        ("scale", (8,), "F32", 224, 32),
    ]
    assert header.types["tokenizer.ggml.tokens"] == "arr[str]"
    assert (info.architecture, info.name, info.quant, info.n_params) == ("llama", "tiny", "Q8_0", 64 + 32 + 8)
    assert (info.n_layer, info.n_ctx_train, info.n_embd, info.n_head, info.n_head_kv) == (2, 128, 32, 4, 4)
    assert (info.n_vocab, list(info.vocab.tokens)) == (16, [word.encode() for word in words(16)])
    assert (info.vocab.bos, info.vocab.eos, info.vocab.eot) == (0, 1, None)
    assert (info.vocab.add_bos, info.vocab.add_eos) == (True, False)
    assert info.chat_template == "{{ messages }}"


def test_every_truncation_is_refused_with_the_size_found(tmp_path: Path) -> None:
    """At each field's end, one byte before and after, and at each 64th of the file."""
    file = model()
    whole = file.build()
    path = tmp_path / "cut.gguf"
    cuts = {cut + d for cut in file.boundaries() for d in (-1, 0, 1)} | {len(whole) * i // 64 for i in range(64)}
    for cut in sorted(cut for cut in cuts if 0 <= cut < len(whole)):
        path.write_bytes(whole[:cut])
        error = assert_fails(path, IntegrityError, "")
        if "is cut off" in error.message:
            assert error.detail["actual_bytes"] == cut < error.detail["expected_bytes"]
            assert str(cut) in error.message
    path.write_bytes(whole)
    inspect(path)


def test_a_download_cut_off_in_the_weights_says_expected_and_actual_size(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    whole = model().build()
    path.write_bytes(whole[:-1])
    assert_fails(path, IntegrityError, f"{len(whole)} bytes expected, {len(whole) - 1} found")


def test_type_table_equals_that_of_the_gguf_package() -> None:
    package = {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    ours = {number: (kind.block, kind.size) for number, kind in TENSOR_TYPES.items()}
    # Q8_1 (9) only ever holds activations; the package still has its size from before ggml halved its two scales.
    both = (package.keys() & ours.keys()) - {9}
    assert {n: ours[n] for n in both} == {n: package[n] for n in both}
    assert {TENSOR_TYPES[n].name for n in both} == {gguf.GGMLQuantizationType(n).name for n in both}
    # The two may be of different ages: what only one of them knows is newer than either's common types.
    assert len(both) >= 33
    names = {int(kind): kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in gguf.LlamaFileType}
    both = FILE_TYPES.keys() & names.keys()
    assert {n: FILE_TYPES[n] for n in both} == {n: names[n] for n in both}
    assert len(both) >= 35


def test_a_file_of_the_gguf_package_is_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "w.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    scalars = {"uint8": 255, "int8": -5, "uint16": 65535, "int16": -6, "uint32": 2**32 - 1, "int32": -7}
    scalars |= {"uint64": 2**64 - 1, "int64": -(2**63)}
    for name, number in scalars.items():
        getattr(writer, f"add_{name}")(name, number)
    writer.add_float32("float32", 0.5)
    writer.add_float64("float64", 0.1)
    writer.add_bool("bool", True)
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("floats", [0.5, -1.5])
    writer.add_array("texts", ["", "é", "z" * 1000])
    writer.add_tensor("a", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("b", np.zeros((2, 34), dtype=np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_header(path)
    expected = scalars | {"general.architecture": "llama", "float32": 0.5, "float64": 0.1, "bool": True}
    assert {key: header.metadata[key] for key in expected} == expected
    assert list(header.metadata["ints"]) == [1, -2, 3]
    assert list(header.metadata["floats"]) == [0.5, -1.5]
    assert list(header.metadata["texts"]) == [b"", "é".encode(), b"z" * 1000]
    assert [(t.name, t.shape, t.type, t.n_bytes) for t in header.tensors] == [
        ("a", (4, 3), "F32", 48),
        ("b", (32, 2), "Q8_0", 68),
    ]
    first = header.data_offset + header.tensors[0].offset
    assert struct.unpack("<12f", path.read_bytes()[first : first + 48]) == tuple(range(12))


def test_head_counts_per_layer_are_summed_up_by_the_largest(tmp_path: Path) -> None:
    file = model().set("llama.attention.head_count", "arr[u32]", [4, 8])
    info = inspect(file.set("llama.attention.head_count_kv", "arr[i32]", [0, 2]).write(tmp_path / "m.gguf"))
    assert (info.n_head, info.n_head_kv) == (8, 2)


def test_strings_behave_like_a_sequence(tmp_path: Path) -> None:
    tokens = read_header(model().write(tmp_path / "m.gguf")).metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, Strings)
    assert (tokens[0], tokens[-1], tokens[3:5]) == (b"w0", b"w15", [b"w3", b"w4"])
    with pytest.raises(IndexError):
        tokens[16]


@pytest.mark.parametrize("part", ["target", "draft"])
def test_the_bundled_models_are_read(part: str) -> None:
    pair_ref = parse_pair()
    path = pair_ref.target if part == "target" else pair_ref.draft
    assert path is not None
    info = inspect(path)
    assert (info.architecture, info.quant) == ("llama", "Q8_0")
    assert info.n_vocab > 1000


def test_header_is_immutable(tmp_path: Path) -> None:
    header: Header = read_header(model().write(tmp_path / "m.gguf"))
    with pytest.raises(TypeError):
        header.metadata["x"] = 1


@pytest.mark.parametrize("size", [5, 20, 100, 3_000, 20_000, 60_000, 200_000, 500_000])
def test_a_real_model_that_was_cut_is_called_cut_off(size: int, tmp_path: Path) -> None:
    """In its header, its vocabulary, its tensor table or its weights: never malformed, nor somebody's fault."""
    draft = parse_pair("storyteller").draft
    assert draft is not None
    whole = draft.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[:size])
    error = assert_fails(path, IntegrityError, "is cut off: ")
    assert f"{size} found" in error.message
    assert error.hint == "download the file again"
