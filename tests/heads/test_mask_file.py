"""Mask tokens as files: the masks alone, the target with them, and targets that cannot have any."""

from array import array
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.errors import IncompatibleError, IntegrityError, ResourceError
from localspec.heads.mask_file import MASK_EMBEDDING, require_llama, with_masks
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.head import head_info
from localspec.models.gguf.header import Strings, read_header
from localspec.models.gguf.info import model_info
from localspec.models.heads import head_for
from localspec.models.pair_check import check_pair
from tests.heads.masks import random_masks, write_masks, write_random_masks
from tests.heads.reference import FACTS, TARGET, read_weights
from tests.integration.gguf_models import copied, random_gguf
from tests.weights.random_gguf import Shape
from tests.weights.read_gguf import read_gguf

K = 4
V = 4096


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def masks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_masks(tmp_path_factory.mktemp("masks") / "masks.gguf", K, matrices="Q8_0")


def test_the_file_of_the_masks_says_what_it_holds(masks: Path) -> None:
    """It is read as a draft, which fits the target by its vocabulary, and is less than a megabyte."""
    header = read_header(masks)
    info = head_info(header)
    assert info is not None
    assert (info.kind, info.target_width, info.n_guesses, info.trained_for) == ("mask-tokens", 192, K, FACTS.target)
    target = model_info(read_header(TARGET))
    assert check_pair(target, model_info(header, may_be_head=True)).fits
    assert header.size < 1_200_000


def test_the_target_with_masks(masks: Path) -> None:
    """The target's own tensors byte for byte, queries with keys and values, rows and tokens for the masks."""
    path = with_masks(read_header(TARGET), read_header(masks))
    old, new, lora = (read_weights(each) for each in (TARGET, path, masks))
    for name in ("token_embd.weight", "output.weight"):
        assert np.array_equal(new[name][:V], old[name])
    assert np.abs(new["token_embd.weight"][V:] - lora[MASK_EMBEDDING]).max() < 1e-2  # Q8_0, as the others
    assert not new["output.weight"][V:].any()
    qkv = np.concatenate([old[f"blk.3.attn_{part}.weight"] for part in "qkv"])
    assert np.array_equal(new["blk.3.attn_qkv.weight"], qkv)
    assert np.array_equal(new["blk.3.ffn_down.lora_b"][1], lora["blk.3.ffn_down.lora_b"])
    assert not new["blk.3.ffn_down.lora_b"][0].any()
    assert len(new) == len(old) - 2 * 8 + 14 * 8
    header = read_header(path)
    tokens, types = (header.metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type"))
    assert isinstance(tokens, Strings)
    assert isinstance(types, array)
    assert [tokens[V], tokens[-1], len(tokens)] == [b"<|mask_1|>", b"<|mask_4|>", V + K]
    assert types[V:].tolist() == [3] * K
    assert list(header.metadata["graniteswitch.adapters.token_ids_activate"]) == [V]
    assert model_info(header).n_ctx_train == model_info(read_header(TARGET)).n_ctx_train


def test_it_is_made_once(masks: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other masks make another file. One that is cut short is made again."""
    first = with_masks(read_header(TARGET), read_header(masks))
    made = first.stat().st_mtime_ns
    assert with_masks(read_header(TARGET), read_header(masks)) == first
    assert first.stat().st_mtime_ns == made
    first.write_bytes(first.read_bytes()[:-100])
    assert with_masks(read_header(TARGET), read_header(masks)) == first
    assert first.stat().st_size == read_header(first).size > 5_000_000
    read_header(first)
    other = write_random_masks(home / "other.gguf", 2, matrices="Q8_0")
    assert with_masks(read_header(TARGET), read_header(other)) != first
    left = {path.suffix for path in (home / "cache" / "mask-tokens").iterdir()}
    assert left == {".gguf", ".from", ""}


def test_a_full_disk_leaves_nothing(masks: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("localspec.heads.mask_file.write_gguf", full)
    with pytest.raises(ResourceError, match=r"the target with its mask tokens cannot be kept in .*No space") as caught:
        with_masks(read_header(TARGET), read_header(masks))
    assert caught.value.hint == "free some space"
    assert not list((home / "cache" / "mask-tokens").glob("*.gguf*"))


def test_masks_of_another_target(masks: Path) -> None:
    """By their width, by their layers, and by what their own file lacks."""
    small = read_header(random_gguf(Shape(vocab=V, width=64, layers=3, heads=4, kv_heads=4, ff=128, quant="F32")))
    with pytest.raises(IntegrityError, match="holds no mask tokens of"):
        with_masks(small, read_header(masks))
    report = check_pair(model_info(small), model_info(read_header(masks), may_be_head=True))
    assert report.reasons[0] == "the head reads states of 192 numbers, and the target's have 64"


def test_masks_among_the_heads(home: Path) -> None:
    """`TARGET+auto` takes no masks, `TARGET+mask-tokens` does."""
    facts = replace(FACTS, target=file_fingerprint(TARGET))
    path = home / "data" / "heads" / "masks.gguf"
    path.parent.mkdir(parents=True)
    write_masks(path, random_masks(2, 32), facts, read_header(TARGET))
    assert head_for(TARGET) is None
    assert head_for(TARGET, "mask-tokens") == path


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (Shape(arch="gemma3", vocab=512, width=64, layers=1, ff=128), "its architecture is gemma3, and only llama"),
        (Shape(vocab=512, width=64, layers=1, ff=128, quant="Q4_0"), "its embedding is of the type Q4_0"),
    ],
)
def test_targets_that_cannot_have_masks(shape: Shape, why: str) -> None:
    with pytest.raises(IncompatibleError, match=why):
        require_llama(read_header(random_gguf(shape)))


def test_tensors_and_widths_that_the_form_does_not_have(tmp_path: Path) -> None:
    """A llama whose positions are scaled by a table, and one that turns a part of a head."""
    source = random_gguf(Shape(vocab=512, width=64, layers=1, heads=4, kv_heads=4, ff=128, quant="F32"))
    table = tmp_path / "table.gguf"
    writer, reader = gguf.GGUFWriter(table, "llama"), read_gguf(source)
    writer.add_block_count(1)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.add_tensor("rope_freqs.weight", np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(IncompatibleError, match=r"the form with them has no tensor rope_freqs\.weight"):
        require_llama(read_header(table))
    half = copied(source, tmp_path / "half.gguf", {"llama.rope.dimension_count": lambda _: 8})
    with pytest.raises(IncompatibleError, match="their turned parts differ in width"):
        require_llama(read_header(half))
    without = copied(source, tmp_path / "without.gguf", {"llama.block_count": lambda _: 2})
    with pytest.raises(IncompatibleError, match=r"it has no tensor blk\.1\.attn_k\.weight"):
        require_llama(read_header(without))
