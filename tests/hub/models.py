"""The bundled storyteller as repositories of a hub, whole and in parts."""

import struct
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf

from tests.cli.harness import PAIR
from tests.hub.server import Repo
from tests.weights.read_gguf import read_gguf

TARGET = (PAIR / "target-q8_0.gguf").read_bytes()
DRAFT = (PAIR / "draft-q8_0.gguf").read_bytes()


def whole() -> dict[str, Repo]:
    """Return a target and a draft in a repository each, with what else lies there."""
    return {
        "tales/storyteller-GGUF": Repo(
            {"README.md": b"# a model", "storyteller-Q8_0.gguf": TARGET, "mmproj-storyteller-Q8_0.gguf": b"GGUF"}
        ),
        "tales/draft-GGUF": Repo({"sub/draft.Q8_0.gguf": DRAFT}),
        "tales/parts-GGUF": Repo({"Q8_0/" + name: data for name, data in parts().items()}),
    }


@cache
def parts() -> dict[str, bytes]:
    """Return the target split into parts, as llama-gguf-split does: some tensors each, the metadata in the first."""
    reader = read_gguf(PAIR / "target-q8_0.gguf")
    n_per_part = -(-len(reader.tensors) // 3)
    writer = gguf.GGUFWriter(None, "llama", split_max_tensors=n_per_part)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=sub)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    with TemporaryDirectory() as folder:
        writer.write_header_to_file(Path(folder) / "storyteller-Q8_0.gguf")
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.gguf"))}


@cache
def of_other_tokens() -> bytes:
    """Return the draft with other texts for nearly all of its tokens: small letters, signs and digits are exchanged."""
    lower, signs = bytes(range(0x61, 0x7B)), bytes(range(0x21, 0x3B))
    table = bytes.maketrans(lower + signs, signs + lower)
    made = bytearray(DRAFT)
    at = DRAFT.index(b"tokenizer.ggml.tokens") + len("tokenizer.ggml.tokens") + 8  # behind the types
    (n_tokens,) = struct.unpack_from("<Q", DRAFT, at)
    at += 8
    for _ in range(n_tokens):
        (size,) = struct.unpack_from("<Q", DRAFT, at)
        made[at + 8 : at + 8 + size] = made[at + 8 : at + 8 + size].translate(table)
        at += 8 + size
    return bytes(made)
