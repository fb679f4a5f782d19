"""The header reader against files that lie: cases B01 to B23 of the bad-input list."""

import math
from pathlib import Path

import pytest

from localspec.errors import IntegrityError
from tests.models.gguf_files import File, assert_fails, inspect, model, pair, raw, string, tensor, u32, u64, words


def with_entry(*fields: bytes) -> bytes:
    file = model()
    file.pairs["extra"] = list(fields)
    return file.build()


def with_tensor(*shape: int, kind: int = 0, offset: int = 0, data: bytes = bytes(128)) -> bytes:
    return model().with_tensors(tensor("t", shape, kind, offset), data=data).build()


def two_tensors(*entries: list[bytes]) -> bytes:
    return model().with_tensors(*entries, data=bytes(256)).build()


def aligned(kind: str, n: int) -> bytes:
    return model().set("general.alignment", kind, n).build()


def hyper(name: str, kind: str, content: object) -> bytes:
    return model().set(f"llama.{name}", kind, content).build()


def experts(n: int, used: int, groups: int = 0) -> bytes:
    file = model().set("llama.expert_count", "u32", n).set("llama.expert_used_count", "u32", used)
    return file.set("llama.expert_group_count", "u32", groups).set("llama.expert_group_used_count", "u32", 1).build()


def pieces(*byte_tokens: int) -> File:
    """Return a model with a SentencePiece vocabulary that has tokens for these bytes."""
    return model([b"<0x%02X>" % byte for byte in byte_tokens]).set("tokenizer.ggml.model", "str", "llama")


CUT = "is cut off"
MALFORMED: dict[str, tuple[bytes, str]] = {
    "B01 empty": (b"", "it is empty"),
    "B02 three bytes": (b"GGU", CUT),
    "B03 magic only": (b"GGUF", CUT),
    "B03 no counts": (b"GGUF" + u32(3), CUT),
    "B04 wrong magic": (b"\xffGUF" + bytes(64), "instead of 'GGUF'"),
    "B04 escape codes as magic": (b"\x1b[2J\xff" + bytes(64), r"\x1b[2J"),
    "B04 older format": (b"tjgg" + bytes(64), "before GGUF"),
    "B04 safetensors": (u64(40) + b'{"__metadata__":{}}' + bytes(64), "safetensors"),
    "B04 PyTorch": (b"PK\x03\x04" + bytes(64), "PyTorch"),
    "B04 text": (b"Once upon a time\n" * 40, "a text file"),
    "B04 text whose look ends within a character": (b"a" + "é".encode() * 400, "a text file"),
    "B04 the same, after three bytes of four": (b"a" + "😀".encode() * 200, "a text file"),
    "B04 text that ends within a character": (b"Once upon a time \xc3", "instead of 'GGUF'"),
    "B04 text with other bytes near its end": (b"a" * 508 + b"\xff" * 100, "instead of 'GGUF'"),
    "B05 HTML": (b"\n <!DOCTYPE html><title>404</title>", "a web page"),
    "B06 Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git-LFS pointer"),
    "B07 version 0": (File(version=0).build(), "version is 0"),
    "B07 version 1": (File(version=1).build(), "version is 1"),
    "B07 version 4": (File(version=4).build(), "version is 4"),
    "B07 version 2^31": (File(version=1 << 31).build(), "other byte order"),
    "B07 big-endian": (File(version=3 << 24).build(), "big-endian"),
    "B08 entries 2^63": (File(n_pairs=1 << 63).build(), f"{1 << 63} metadata entries"),
    "B08 entries one too many": (File(n_pairs=1).build(), "1 metadata entries"),
    "B09 tensors 2^63": (File(n_tensors=1 << 63).build(), f"{1 << 63} tensors"),
    "B10 key length 2^64-1": (with_entry(u64(2**64 - 1), b"key"), f"{2**64 - 1} bytes"),
    "B10 key length 65536": (with_entry(*string("k" * 65536)), "65536 bytes"),
    "B11 empty key": (with_entry(*pair("", "u32", 1)), "empty key"),
    "B12 duplicate key": (with_entry(*pair("general.name", "u32", 1)), "'general.name' occurs twice"),
    "zero byte in a key": (with_entry(*pair("llama.block_count\0", "u32", 600)), r"'llama.block_count\x00' holds"),
    "B13 unknown type": (with_entry(*raw("k", u32(99), u64(0))), "unknown type 99"),
    "B13 array of unknown type": (with_entry(*raw("k", u32(9), u32(99), u64(0))), "unknown type 99"),
    "B14 nested arrays": (with_entry(*raw("k", *([u32(9)] * 10_000))), "array of arrays"),
    "B15 2^30 strings": (with_entry(*raw("k", u32(9), u32(8), u64(1 << 30))), f"{1 << 30} elements"),
    "B15 2^62 numbers": (with_entry(*raw("k", u32(9), u32(10), u64(1 << 62))), f"{1 << 62} elements"),
    "B15 long string": (with_entry(*raw("k", u32(8), u64(1 << 40))), f"{1 << 40} bytes"),
    "B15 long string in array": (with_entry(*raw("k", u32(9), u32(8), u64(1), u64(1 << 40))), CUT),
    "B16 alignment 0": (aligned("u32", 0), "alignment is 0"),
    "B16 alignment 3": (aligned("u32", 3), "alignment is 3"),
    "B16 alignment 4": (aligned("u32", 4), "alignment is 4"),
    "B16 alignment 2^31": (aligned("u32", 1 << 31), f"alignment is {1 << 31}"),
    "B16 alignment u64": (aligned("u64", 32), "type u64"),
    "B17 five dimensions": (with_tensor(1, 1, 1, 1, 1), "5 dimensions"),
    "B17 2^32-1 dimensions": (two_tensors([*string("t"), u32(2**32 - 1)]), f"{2**32 - 1} dimensions"),
    "B17 dimension 0": (with_tensor(4, 0), "impossible shape"),
    "B17 dimension 2^63": (with_tensor(1 << 63), "impossible shape"),
    "B18 product overflow": (with_tensor((1 << 42) + 1, (1 << 42) + 1, kind=24), "impossible shape"),
    "B18 rows not in blocks": (with_tensor(33, kind=8), "block of 32"),
    "B19 offset past the end": (with_tensor(8, offset=1 << 20), "past the end"),
    "B19 offset 2^64-32": (with_tensor(8, offset=2**64 - 32), "impossible offset"),
    "B19 larger than the file": (with_tensor(1 << 30), CUT),
    "B19 unaligned": (two_tensors(tensor("a", (8,)), tensor("b", (8,), offset=33)), "not aligned"),
    "B19 gap": (two_tensors(tensor("a", (8,)), tensor("b", (8,), offset=64)), "expected 32"),
    "B20 overlap": (two_tensors(tensor("a", (16,)), tensor("b", (8,), offset=32)), "overlaps"),
    "B20 duplicate": (two_tensors(tensor("a", (8,)), tensor("a", (8,), offset=32)), "'a' occurs twice"),
    "B21 unknown tensor type": (with_tensor(8, kind=99), "type 99"),
    "B21 removed tensor type": (with_tensor(32, kind=4), "type 4"),
    "B21 long tensor name": (two_tensors(tensor("n" * 64, (8,))), "64 bytes"),
    "zero byte in a tensor name": (two_tensors(tensor("a\0", (8,))), r"'a\x00' holds a zero byte"),
    "B22 byte token": (
        model([*words(9), "<0x-1>"]).set("tokenizer.ggml.token_type", "arr[i32]", [1] * 9 + [6]).build(),
        "'<0x-1>'",
    ),
    "B22 a byte that no token spells": (pieces(*range(10), *range(11, 256)).build(), "no token <0x0A>"),
    "B22 scores of bytes": (model().set("tokenizer.ggml.scores", "arr[u8]", [0] * 16).build(), "arr[u8]"),
    "B22 few scores": (model().set("tokenizer.ggml.scores", "arr[f32]", [0.0] * 15).build(), "15 entries for 16"),
    "B22 token types a number": (model().set("tokenizer.ggml.token_type", "i32", 1).build(), "type i32"),
    "B22 token twice": (model(["a", "b", "a"]).build(), "tokens 0 and 2 have the same text 'a'"),
    "B22 token twice, as a C string": (model(["a", "b", "a\0b"]).build(), "tokens 0 and 2 have the same text 'a'"),
    "B22 name of an empty token": (model(["a", "\0b", "[EMPTY_1]"]).build(), "same text '[EMPTY_1]'"),
    "B22 tokens not text": (model().set("tokenizer.ggml.tokens", "arr[u32]", [1]).build(), "tokenizer.ggml.tokens"),
    "B22 unknown tokenizer": (model().set("tokenizer.ggml.model", "str", "x\x1b").build(), r"'x\x1b'"),
    "B22 no merges": (model().without("tokenizer.ggml.merges").build(), "tokenizer.ggml.merges"),
    "B22 no list of merges": (
        model().set("tokenizer.ggml.merges", "arr[i32]", [1]).build(),
        "tokenizer.ggml.merges has the type arr[i32]",
    ),
    "B22 flag not a truth value": (
        model().set("tokenizer.ggml.add_bos_token", "u8", 1).build(),
        "add_bos_token has the type u8",
    ),
    "B22 id not a number": (
        model().set("tokenizer.ggml.eos_token_id", "str", "1").build(),
        "eos_token_id has the type",
    ),
    "layers 0": (model().set("llama.block_count", "u32", 0).build(), "block_count is 0"),
    "layers 513": (model().set("llama.block_count", "u32", 513).build(), "block_count is 513"),
    "layers of the wrong type": (model().set("llama.block_count", "u64", 2).build(), "type u64"),
    "no room for a text": (model().set("llama.context_length", "u32", 1).build(), "context_length is 1"),
    "more next layers than layers": (hyper("nextn_predict_layers", "u32", 3), "nextn_predict_layers is 3"),
    "2^31 experts": (hyper("expert_count", "u32", 1 << 31), f"expert_count is {1 << 31}"),
    "experts used, and none there": (hyper("expert_used_count", "u32", 2), "2 of 0 experts"),
    "more experts used than there": (experts(4, 8), "8 of 4 experts"),
    "no expert used": (experts(4, 0), "0 of 4 experts"),
    "as many groups as experts": (experts(4, 2, groups=4), "1 of 4 groups of 4 experts"),
    "groups of unlike size": (experts(8, 2, groups=3), "1 of 3 groups of 8 experts"),
    "head counts of floats": (hyper("attention.head_count", "arr[f32]", [math.inf, 4.0]), "type arr[f32]"),
    "head counts NaN": (hyper("attention.head_count_kv", "arr[f64]", [math.nan, math.nan]), "type arr[f64]"),
    "experts used, of floats": (hyper("expert_used_count", "arr[f32]", [math.inf, 2.0]), "type arr[f32]"),
    "weights of integers": (
        model().with_tensors(tensor("blk.0.attn_q.weight", (8,), 26), data=bytes(32)).build(),
        "'blk.0.attn_q.weight' is of the type I32",
    ),
    "epsilon NaN": (hyper("attention.layer_norm_rms_epsilon", "f32", math.nan), "epsilon is nan"),
    "epsilon negative": (hyper("attention.layer_norm_rms_epsilon", "f32", -1.0), "epsilon is -1"),
    "rope base 0": (hyper("rope.freq_base", "f32", 0.0), "rope.freq_base is 0"),
    "rope base NaN": (hyper("rope.freq_base", "f32", math.nan), "rope.freq_base is nan"),
    "rope factor NaN": (hyper("rope.scaling.factor", "f32", math.nan), "rope.scaling.factor is not a number"),
    "name not text": (model().set("general.name", "u32", 2).build(), "general.name"),
}


@pytest.mark.parametrize(("content", "text"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_file_is_an_integrity_error_that_says_what_is_wrong(
    tmp_path: Path, content: bytes, text: str
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    error = assert_fails(path, IntegrityError, text)
    assert "bad.gguf" in error.message
    assert error.exit_code == 5


def test_a_byte_may_be_a_token_by_its_name_or_as_it_is(tmp_path: Path) -> None:
    assert inspect(pieces(*range(256)).write(tmp_path / "names.gguf")).vocab.type == "SPM"
    file = model([b"<0x%02X>" % byte if byte < 32 else bytes([byte]) for byte in range(256)])
    assert inspect(file.set("tokenizer.ggml.model", "str", "llama").write(tmp_path / "both.gguf")).n_vocab == 256
