"""What a model consists of, against sums made by hand, llama.cpp's own caches and every file there is."""

from pathlib import Path

import pytest

from localspec.cli.show import describe
from localspec.models.gguf.header import read_header
from localspec.models.gguf.layer_sizes import Anatomy, anatomy, row_bytes
from tests.models.gguf_files import File, model
from tests.models.hollow import LLAMA_1B, LLAMA_70B, QWEN3_30B_A3B, Hollow, write


def of(path: Path) -> Anatomy:
    return anatomy(read_header(path))


def test_llama_70b(tmp_path: Path) -> None:
    """Q4_K takes 144 bytes for 256 weights. A layer: q and output 8192 x 8192, k and v 8192 x 1024, three matrices of
    the feed-forward part 8192 x 28672, two norms of 8192 floats.
    """
    parts = of(write(tmp_path / "m.gguf", LLAMA_70B))
    matrices = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
    assert {layer.dense for layer in parts.layers} == {matrices * 144 // 256 + 2 * 8192 * 4}
    assert len(parts.layers) == 80
    assert parts.embedding == 128_256 * 8192 * 144 // 256
    assert parts.output == parts.embedding + 8192 * 4  # the head and the last norm
    assert parts.largest == parts.embedding
    assert parts.kv_per_token("f16") == 80 * 2 * 8 * 128 * 2 == 327_680
    assert parts.kv_per_token("q8_0") == 80 * 2 * 8 * 128 * 34 // 32
    assert not parts.is_tied
    assert parts.weights == sum(one.n_bytes for one in read_header(tmp_path / "m.gguf").tensors)


def test_a_shared_head_is_stored_once_and_copied_to_a_device(tmp_path: Path) -> None:
    parts = of(write(tmp_path / "m.gguf", LLAMA_1B))
    assert parts.is_tied
    assert parts.output == 128_256 * 2048 * 144 // 256 + 2048 * 4
    assert parts.weights == sum(one.n_bytes for one in read_header(tmp_path / "m.gguf").tensors)


def test_experts_are_told_from_the_rest(tmp_path: Path) -> None:
    """128 experts of 3 x 2048 x 768 weights in each of 48 layers; 8 of them a token."""
    parts = of(write(tmp_path / "m.gguf", QWEN3_30B_A3B))
    assert {layer.experts for layer in parts.layers} == {128 * 3 * 2048 * 768 * 144 // 256}
    assert parts.used_share == 8 / 128
    assert parts.ff == 8 * 768
    assert parts.weights == sum(one.n_bytes for one in read_header(tmp_path / "m.gguf").tensors)


def test_experts_of_each_layer_are_summed_up_by_the_most(tmp_path: Path) -> None:
    file = model().set("llama.expert_count", "u32", 8).set("llama.expert_feed_forward_length", "u32", 64)
    parts = of(file.set("llama.expert_used_count", "arr[u32]", [0, 2]).write(tmp_path / "m.gguf"))
    assert (parts.n_used, parts.used_share, parts.ff) == (2, 2 / 8, 2 * 64)


LATENT = (
    model().set("llama.attention.kv_lora_rank", "u32", 512).set("llama.attention.head_count_kv", "u32", 1)
    .set("llama.attention.key_length", "u32", 576).set("llama.attention.value_length", "u32", 512)
)  # fmt: skip

CACHES: dict[str, tuple[File, list[tuple[int, int]]]] = {
    "heads of the cache default to those of attention": (model(), [(32, 32), (32, 32)]),
    "grouped": (model().set("llama.attention.head_count_kv", "u32", 2), [(16, 16), (16, 16)]),
    "of each layer": (model().set("llama.attention.head_count_kv", "arr[i32]", [4, 0]), [(32, 32), (0, 0)]),
    "a width of its own": (
        model().set("llama.attention.key_length", "u32", 24).set("llama.attention.value_length", "u32", 16),
        [(96, 64), (96, 64)],
    ),
    "compressed (MLA)": (
        LATENT.set("llama.attention.key_length_mla", "u32", 192).set("llama.attention.value_length_mla", "u32", 128),
        [(576, 0), (576, 0)],
    ),
    "with one of the two widths alone nothing is compressed": (
        model().set("llama.attention.kv_lora_rank", "u32", 512).set("llama.attention.key_length_mla", "u32", 192),
        [(32, 32), (32, 32)],
    ),
    "MLA in an older file, of which llama.cpp makes heads": (
        model().set("llama.attention.kv_lora_rank", "u32", 512).set("llama.attention.key_length", "u32", 192)
        .set("llama.attention.value_length", "u32", 128),
        [(768, 512), (768, 512)],
    ),
    "windowed layers have heads of their own": (
        model().set("llama.attention.sliding_window_pattern", "arr[bool]", [True, False])
        .set("llama.attention.key_length", "u32", 16).set("llama.attention.key_length_swa", "u32", 8)
        .set("llama.attention.value_length", "u32", 16).set("llama.attention.value_length_swa", "u32", 4),
        [(32, 16), (64, 64)],
    ),
    "the last layer reads an earlier one's": (
        model().set("llama.attention.shared_kv_layers", "u32", 1), [(32, 32), (0, 0)]
    ),
    "every second layer is recurrent": (model().set("llama.full_attention_interval", "u32", 2), [(0, 0), (32, 32)]),
    "a lie about a width": (model().set("llama.attention.key_length", "u32", 2**31), [(32, 32), (32, 32)]),
}  # fmt: skip


@pytest.mark.parametrize(("file", "entries"), CACHES.values(), ids=CACHES)
def test_cache_entries(tmp_path: Path, file: File, entries: list[tuple[int, int]]) -> None:
    """The small model has 2 layers of 4 heads of 8."""
    parts = of(file.write(tmp_path / "m.gguf"))
    assert [(layer.k_entries, layer.v_entries) for layer in parts.layers] == entries


def mixed(arch: str, *kv_heads: int) -> File:
    """Return a model of 2 layers. A state of Mamba-2 has 4 x (3 x (64 + 2 x 8) + 64 x 8) = 3008 bytes."""
    file = model(arch=arch).set(f"{arch}.ssm.inner_size", "u32", 64).set(f"{arch}.ssm.state_size", "u32", 8)
    file = file.set(f"{arch}.ssm.group_count", "u32", 1).set(f"{arch}.ssm.conv_kernel", "u32", 4)
    return file.set(f"{arch}.attention.head_count_kv", "arr[i32]", list(kv_heads)) if kv_heads else file


MIXED = 3008
KDA = 4 * 4 * 8 * (3 * 3 + 8)
NEXT = mixed("qwen3next").set("qwen3next.block_count", "u32", 5).set("qwen3next.nextn_predict_layers", "u32", 1)
STATES: dict[str, tuple[File, list[int]]] = {
    "attention alone": (model(), [0, 0]),
    "either": (mixed("jamba", 0, 2), [MIXED, 0]),
    "both in each layer": (mixed("falcon-h1"), [MIXED, MIXED]),
    "a feed-forward part is a layer of its own": (
        mixed("nemotron_h", 0, 0).set("nemotron_h.feed_forward_length", "arr[i32]", [0, 64]), [MIXED, 0]
    ),
    "each fourth attends, and so does the block for further tokens": (NEXT, [MIXED, MIXED, MIXED, 0, 0]),
    "RWKV": (
        model(arch="rwkv7").set("rwkv7.attention.head_count", "u32", 0).set("rwkv7.wkv.head_size", "u32", 16),
        [4 * 32 * (2 + 16)] * 2,
    ),
    "a short convolution": (
        model(arch="lfm2").set("lfm2.attention.head_count_kv", "arr[i32]", [0, 4])
        .set("lfm2.shortconv.l_cache", "u32", 3),
        [4 * 32 * 2, 0],
    ),
    "delta attention of Kimi": (
        model(arch="kimi-linear").set("kimi-linear.attention.head_count_kv", "arr[i32]", [0, 4])
        .set("kimi-linear.kda.head_dim", "u32", 8).set("kimi-linear.ssm.conv_kernel", "u32", 4),
        [KDA, 0],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("file", "states"), STATES.values(), ids=STATES)
def test_bytes_of_a_state(tmp_path: Path, file: File, states: list[int]) -> None:
    """As llama.cpp computes them (`n_embd_r` and `n_embd_s` of src/llama-hparams.cpp), in F32."""
    assert [layer.state for layer in of(file.write(tmp_path / "m.gguf")).layers] == states


def test_rows_of_a_cache() -> None:
    assert row_bytes(1024, "f16") == 2048
    assert row_bytes(1024, "q8_0") == 1088
    assert row_bytes(0, "q4_0") == 0
    assert row_bytes(33, "q4_0") == 36  # two blocks of 32
    with pytest.raises(KeyError):
        row_bytes(32, "f99")


@pytest.mark.parametrize("shape", [Hollow(6, 256, 4, 1, 768, 4096), Hollow(4, 512, 8, 2, 256, 4096, experts=8, used=2)])
def test_hollow_files_describe_themselves(tmp_path: Path, shape: Hollow) -> None:
    """What `localspec show` tells is made of the same numbers."""
    wire = describe(write(tmp_path / "m.gguf", shape)).to_wire()
    assert wire["kv_bytes_per_token"]["f16"] == shape.layers * 2 * 2 * shape.kv_heads * shape.width // shape.heads
    assert wire["experts"] == {"n": shape.experts, "used": shape.used}
    assert sum(wire["types"].values()) == sum(
        [wire["weights"]["embedding"], wire["weights"]["output"]]
        + [layer["dense"] + layer["experts"] for layer in wire["weights"]["layers"]]
    )
