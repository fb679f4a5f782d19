"""Mask tokens of a target as files (arXiv 2507.11851): the masks alone, and the target with them.

The file of the masks holds k embeddings and one LoRA adapter. llama.cpp's architecture `graniteswitch` is a llama with
an adapter that acts on the rows that see a certain token. In the target's file with masks that token is the first mask.
Each chain of masks begins with it, and no token of the text sees a mask. So the rows of the text are those of the
target, bit for bit.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import IncompatibleError, IntegrityError
from localspec.heads.target_file import EMBEDDING, OUTPUT, read_tensor
from localspec.heads.writer import Stored, stored, write_gguf
from localspec.models.derived_files import identity, made
from localspec.models.gguf.draft_kinds import MASKS
from localspec.models.gguf.head import SWITCH
from localspec.models.gguf.header import Header, Strings
from localspec.models.gguf.values import KeyValue
from localspec.settings.folders import cache_folder

MASK_EMBEDDING = "mask_embd.weight"
ADAPTED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_NORMS = ("attn_norm", "ffn_norm")
_WHAT = "the target with its mask tokens"  # in messages
_CONTROL = 3  # llama.cpp's type of tokens without a text
_UNUSUAL = -1000.0  # the score of a token that no text is split into


@dataclass(frozen=True)
class LlamaHeader:
    """The target's header, read as that of a llama."""

    header: Header

    def number(self, key: str) -> int:
        return self.header.number(f"llama.{key}")

    @property
    def n_vocab(self) -> int:
        tokens = self.header.metadata.get("tokenizer.ggml.tokens")
        return len(tokens) if isinstance(tokens, Strings) else 0

    def adapters(self, rank: int) -> dict[str, tuple[int, int]]:
        """Return the shapes of an adapter's matrices by name: A [rank, in], B [out, rank]."""
        sizes = {tensor.name: tensor.shape for tensor in self.header.tensors}
        shapes = {}
        for layer in range(self.number("block_count")):
            for part in ADAPTED:
                n_in, n_out = sizes[f"blk.{layer}.{part}.weight"]
                shapes[f"blk.{layer}.{part}.lora_a"] = (rank, n_in)
                shapes[f"blk.{layer}.{part}.lora_b"] = (n_out, rank)
        return shapes


def with_masks(target: Header, masks: Header) -> Path:
    """Return the file of the target with the masks, which is made in the cache folder if it is not there yet.

    Its name tells the contents of both. Raises IncompatibleError for a target that cannot have masks, IntegrityError
    for masks that are not those of this target, ResourceError where the file cannot be kept.
    """
    path = cache_folder(MASKS) / f"{identity(target)}-{identity(masks)[:12]}.gguf"
    return made(path, target, _WHAT, lambda part: write_gguf(part, *_model(target, masks)))


def require_llama(target: Header) -> None:
    """Raise IncompatibleError, with the reason, for a target that cannot have mask tokens."""
    why = _obstacle(target)
    if why:
        raise IncompatibleError(
            f"{target.name} cannot have mask tokens: {why}", hint="another draft of: localspec plan TARGET --hub"
        )


def _obstacle(target: Header) -> str:
    if target.architecture != "llama":
        return f"its architecture is {target.architecture}, and only llama has a form with them"
    llama = LlamaHeader(target)
    layers = range(llama.number("block_count"))
    needed = {f"blk.{layer}.{part}.weight" for layer in layers for part in (*_NORMS, *ADAPTED)}
    needed |= {EMBEDDING, "output_norm.weight"}
    types = {tensor.name: tensor.type for tensor in target.tensors}
    unknown = sorted(types.keys() - needed - {OUTPUT})
    if unknown:
        return f"the form with them has no tensor {unknown[0]}"
    if needed - types.keys():
        return f"it has no tensor {min(needed - types.keys())}"
    for layer in layers:
        if len({types[f"blk.{layer}.attn_{part}.weight"] for part in "qkv"}) > 1:
            return f"its matrices blk.{layer}.attn_q, attn_k and attn_v are not of one type"
    if types[EMBEDDING] not in ("F32", "F16", "Q8_0"):
        return f"its embedding is of the type {types[EMBEDDING]}, and new tokens can be added to Q8_0, F16 and F32"
    width = llama.number("embedding_length") // max(1, llama.number("attention.head_count"))
    keys = llama.number("attention.key_length") or width
    others = llama.number("attention.value_length") or width, llama.number("rope.dimension_count") or keys
    if set(others) != {keys}:
        return "its keys, its values and their turned parts differ in width"
    return ""


def _model(target: Header, masks: Header) -> tuple[list[KeyValue], list[Stored]]:
    require_llama(target)
    embedding = read_tensor(masks, MASK_EMBEDDING)
    lora = [tensor.shape for tensor in masks.tensors if tensor.name == "blk.0.attn_q.lora_a"]
    rank = lora[0][1] if lora and len(lora[0]) == 2 else 0
    llama = LlamaHeader(target)
    expected = {name: size[::-1] for name, size in llama.adapters(rank).items()}
    shapes = {tensor.name: tensor.shape for tensor in masks.tensors if tensor.name != MASK_EMBEDDING}
    size = (llama.number("embedding_length"), masks.metadata.get("localspec.head.guesses"))
    if embedding is None or embedding.type != "F32" or embedding.shape != size or shapes != expected:
        raise IntegrityError(
            f"{masks.name} holds no mask tokens of {target.name}", hint="masks that were trained for this target"
        )
    rows = np.asarray(embedding.data).view("<f4").reshape(embedding.shape[::-1])
    tensors = _tensors(target, rows) + [_stacked(masks, name) for name in expected]
    return [*_metadata(target, len(rows)), *_switch(llama.n_vocab, rank)], tensors


def _switch(n_vocab: int, rank: int) -> list[KeyValue]:
    """Return the metadata of an adapter that the token behind those of the text switches on."""
    return [
        KeyValue(f"{SWITCH}.logit_scale", "f32", 1.0),
        KeyValue(f"{SWITCH}.adapters.count", "u32", 1),
        KeyValue(f"{SWITCH}.adapters.lora_rank", "u32", rank),
        KeyValue(f"{SWITCH}.adapters.token_ids_activate", "arr[i32]", (n_vocab,)),
        KeyValue(f"{SWITCH}.adapters.token_ids_substitute", "arr[i32]", (n_vocab,)),
    ]


def _metadata(target: Header, k: int) -> list[KeyValue]:
    added: dict[str, list[int] | list[float]] = {
        "tokenizer.ggml.token_type": [_CONTROL] * k,
        "tokenizer.ggml.scores": [_UNUSUAL] * k,
    }
    metadata = []
    for key, value in target.metadata.items():
        if key.startswith("split.") or key == "general.alignment":
            continue
        if key == "general.architecture":
            value = SWITCH
        elif key == "llama.vocab_size" and isinstance(value, int):
            value += k
        elif key == "tokenizer.ggml.tokens" and isinstance(value, Strings):
            value = value.extended([b"<|mask_%d|>" % number for number in range(1, k + 1)])
        elif key in added:
            value = np.append(np.asarray(value), added[key]).tolist()
        name = f"{SWITCH}.{key.removeprefix('llama.')}" if key.startswith("llama.") else key
        metadata.append(KeyValue(name, target.types[key], value))
    return metadata


def _tensors(target: Header, rows: NDArray[np.float32]) -> list[Stored]:
    """Return the target's tensors: queries, keys and values joined, and rows for the masks.

    The masks' rows of the output matrix are zeros. Their logits are never looked at.
    """
    own = {tensor.name: _tensor(target, tensor.name) for tensor in target.tensors}
    k = len(rows)
    tensors = []
    for name, tensor in own.items():
        part = name.removesuffix(".weight").rpartition(".")[2]
        if name == EMBEDDING:
            tensors.append(_below(tensor, stored(name, rows, tensor.type).data, k))
        elif name == OUTPUT:
            row = tensor.data.size // tensor.shape[1]
            tensors.append(_below(tensor, np.zeros(k * row, np.uint8), k))
        elif part == "attn_q":
            parts = [own[name.replace("attn_q", f"attn_{which}")] for which in "qkv"]
            data = np.concatenate([part.data for part in parts])
            shape = (tensor.shape[0], sum(part.shape[1] for part in parts))
            tensors.append(Stored(name.replace("attn_q", "attn_qkv"), shape, tensor.type, data))
        elif part not in ("attn_k", "attn_v"):
            tensors.append(tensor)
    return tensors


def _below(tensor: Stored, rows: NDArray[np.uint8], k: int) -> Stored:
    """Return a matrix with the bytes of `k` rows more."""
    shape = (tensor.shape[0], tensor.shape[1] + k)
    return Stored(tensor.name, shape, tensor.type, np.concatenate([tensor.data, rows]))


def _stacked(masks: Header, name: str) -> Stored:
    """Return a matrix of the adapter behind one of zeros, which is the adapter of all rows that see no mask."""
    tensor = _tensor(masks, name)
    return Stored(name, (*tensor.shape, 2), tensor.type, np.concatenate([np.zeros_like(tensor.data), tensor.data]))


def _tensor(header: Header, name: str) -> Stored:
    tensor = read_tensor(header, name)
    assert tensor is not None, "the header lists it"
    return tensor
