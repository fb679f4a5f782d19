"""The file of a draft head, in the form that llama.cpp loads.

`eagle3` reads three layer inputs of the target (EAGLE-3, arXiv 2503.01840); its file has the architecture `eagle3`.
`eagle1` reads the target's final normed state (EAGLE-1, arXiv 2401.15077). Its file has the architecture `eagle3` too,
whose encoder reads that state before two others of zeros, so that its vocabulary can be reduced.
`medusa` reads the same state (Medusa, arXiv 2401.10774). Its file has the architecture `eagle3` as well: the encoder's
matrix holds those of its heads side by side, and the block adds nothing. The embedding is the target's, and unused.
`mtp` reads the same state. Its file has the architecture `hy_v3` with one prediction block and no other layer.
"""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ResourceError
from localspec.heads.target_file import EMBEDDING, OUTPUT, OUTPUT_NORM, read_tensor
from localspec.heads.writer import Stored, stored, write_gguf
from localspec.models.gguf.head import N_STATES, Q8_BLOCK, encoder_width
from localspec.models.gguf.header import Header
from localspec.models.gguf.values import KeyValue, Value
from localspec.sanitize import shown

Kind = Literal["eagle3", "eagle1", "mtp", "medusa"]
Weights = Mapping[str, NDArray[np.generic]]  # by the names of the file; matrices [out, in]

ARCHITECTURES: dict[Kind, str] = {"eagle3": "eagle3", "eagle1": "eagle3", "medusa": "eagle3", "mtp": "hy_v3"}


@dataclass(frozen=True)
class HeadShape:
    """The sizes of a head.

    `d` is its width, `target_width` the target's; they are equal for `mtp` and `medusa`. `vocab` counts the target's
    tokens, `n_out` those that can be drafted; all of them for `mtp`. `layers` are the layer inputs that an `eagle3`
    head reads, `guesses` the tokens that a `medusa` head guesses at once, each with a matrix of its own.
    """

    kind: Kind
    d: int
    heads: int
    kv_heads: int
    head_width: int
    ff: int
    vocab: int
    n_out: int
    target_width: int
    context: int
    layers: tuple[int, ...] = ()
    guesses: int = 0
    norm_before_fc: bool = False
    rope_base: float = 10000.0
    eps: float = 1e-5

    @property
    def has_encoder(self) -> bool:
        """Return whether the file has the architecture eagle3, whose encoder joins three states."""
        return self.kind != "mtp"

    @property
    def feature_width(self) -> int:
        return self.target_width * (N_STATES if self.kind == "eagle3" else 1)

    @property
    def state_width(self) -> int:
        """Return the width of each of the states that the encoder joins, in floats."""
        return encoder_width(self.kind, self.target_width, self.guesses) // N_STATES

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor that is made for the head, by its name, matrices as [out, in]."""
        named = {
            "fc.weight": (self.d, N_STATES * self.state_width),
            "d2t": (self.n_out,),
            OUTPUT: (self.n_out, self.d),
            OUTPUT_NORM: (self.d,),
        }
        if self.kind == "medusa":
            return named
        if self.has_encoder:
            named[EMBEDDING] = (self.vocab, self.d)
            if self.norm_before_fc:
                named["enc.output_norm.weight"] = (N_STATES * self.target_width,)
        else:
            named = {OUTPUT: (self.vocab, self.d), EMBEDDING: (self.vocab, self.d), OUTPUT_NORM: (self.d,)}
        return named | self.block()

    def block(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor of the block by its name, matrices as [out, in]."""
        d, q, kv = self.d, self.heads * self.head_width, self.kv_heads * self.head_width
        block = {
            "attn_norm": (d,),
            "attn_output": (d, q),
            "ffn_norm": (d,),
            "ffn_gate": (self.ff, d),
            "ffn_up": (self.ff, d),
            "ffn_down": (d, self.ff),
        }
        if self.has_encoder:
            block |= {"attn_norm_2": (d,), "attn_q": (q, 2 * d), "attn_k": (kv, 2 * d), "attn_v": (kv, 2 * d)}
        else:
            block |= {"attn_q": (q, d), "attn_k": (kv, d), "attn_v": (kv, d)}
            block |= {"attn_q_norm": (self.head_width,), "attn_k_norm": (self.head_width,)}
            block |= {"nextn.eh_proj": (d, 2 * d), "nextn.enorm": (d,), "nextn.hnorm": (d,)}
            block |= {"nextn.shared_head_norm": (d,)}
        return {f"blk.0.{name}.weight": shape for name, shape in block.items()}


@dataclass(frozen=True)
class HeadOrigin:
    """The origin of a head.

    `target` is the fingerprint of the target's file, `tokens` the length of the training text, `steps` the number of
    updates. `accepted[k - 1]` is the share of positions of held-out text where the first k drafts are all the target's.
    """

    target: str
    tokens: int
    steps: int
    accepted: tuple[float, ...]
    seed: int


def write_head(
    path: Path, shape: HeadShape, weights: Weights, origin: HeadOrigin, target: Header, matrices: str = "Q8_0"
) -> None:
    """Write a head for `target` to `path`, whole or not at all.

    `weights` holds the arrays that `shape.tensors` names, float32; `d2t` holds int64 ids of the target's tokens. An
    embedding, an output matrix or an output norm that is not in `weights` is copied from the target, except for the
    embedding of an EAGLE head, which borrows it when it runs. `matrices` is the
    type of the matrices, Q8_0 or F32; rows that Q8_0 cannot hold become F16. Raises ValueError for weights of other
    names or shapes, ResourceError where the file cannot be written.
    """
    tensors = _tensors(shape, weights, target, matrices)
    write_file(path, [*_metadata(shape, origin), *tokenizer_of(target)], tensors)


def tokenizer_of(target: Header) -> list[KeyValue]:
    return [
        KeyValue(key, target.types[key], value)
        for key, value in target.metadata.items()
        if key.startswith("tokenizer.")
    ]


def write_file(path: Path, metadata: Sequence[KeyValue], tensors: Sequence[Stored]) -> None:
    """Write a head's file whole or not at all. Raises ResourceError where it cannot be written."""
    try:
        write_gguf(path, metadata, tensors)
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise ResourceError(
            f"the head cannot be written to {shown(path)}: {error.strerror or error}",
            hint="free some space" if is_full else "name another file with: -o HEAD.gguf",
        ) from error


def _tensors(shape: HeadShape, weights: Weights, target: Header, matrices: str) -> list[Stored]:
    expected = shape.tensors()
    unknown = weights.keys() - expected.keys()
    if unknown:
        raise ValueError(f"a head of the kind {shape.kind} has no tensor {min(unknown)}")
    tensors = []
    for name, size in expected.items():
        if name in weights:
            if weights[name].shape != size:
                raise ValueError(f"the tensor {name} has the shape {weights[name].shape} instead of {size}")
            tensors.append(stored(name, weights[name], _type(name, size, matrices)))
        elif name == EMBEDDING and shape.has_encoder:
            continue  # llama.cpp takes the target's
        elif name in (EMBEDDING, OUTPUT, OUTPUT_NORM):
            tensors += _copied(target, name, size, is_optional=name == OUTPUT and shape.kind == "mtp")
        else:
            raise ValueError(f"the tensor {name} is missing")
    if shape.kind == "medusa":
        idle = {name: np.zeros(size, np.float32) for name, size in shape.block().items()}
        tensors += [stored(name, array, _type(name, array.shape, matrices)) for name, array in idle.items()]
    return tensors


def _copied(target: Header, name: str, size: tuple[int, ...], *, is_optional: bool) -> list[Stored]:
    """Return the target's tensor. A target whose embedding is its output matrix too has one tensor for both."""
    tensor = read_tensor(target, name)
    if tensor is None and is_optional:
        return []
    if tensor is None or tensor.shape != tuple(reversed(size)):
        raise ValueError(f"the target has no tensor {name} of the shape {size}")
    return [tensor]


def _type(name: str, size: Sequence[int], matrices: str) -> str:
    if name == "d2t":
        return "I64"
    if len(size) == 1:
        return "F32"
    return "F16" if matrices == "Q8_0" and size[-1] % Q8_BLOCK else matrices


def _metadata(shape: HeadShape, origin: HeadOrigin) -> list[KeyValue]:
    arch = ARCHITECTURES[shape.kind]
    sizes: dict[str, tuple[str, Value]] = {
        "context_length": ("u32", shape.context),
        "embedding_length": ("u32", shape.d),
        "block_count": ("u32", 1),
        "feed_forward_length": ("u32", shape.ff),
        "attention.head_count": ("u32", shape.heads),
        "attention.head_count_kv": ("u32", shape.kv_heads),
        "attention.key_length": ("u32", shape.head_width),
        "attention.value_length": ("u32", shape.head_width),
        "attention.layer_norm_rms_epsilon": ("f32", shape.eps),
        "rope.dimension_count": ("u32", shape.head_width),
        "rope.freq_base": ("f32", shape.rope_base),
        "vocab_size": ("u32", shape.vocab),
    }
    if shape.has_encoder:
        sizes["target_layers"] = ("arr[i32]", shape.layers or (0,) * N_STATES)
        sizes["target_hidden_size"] = ("u32", shape.state_width)
        sizes["norm_before_fc"] = ("bool", shape.norm_before_fc)
    else:
        sizes["nextn_predict_layers"] = ("u32", 1)
        sizes["expert_feed_forward_length"] = ("u32", shape.ff)  # llama.cpp demands it, also without experts
    return [
        KeyValue("general.architecture", "str", arch),
        KeyValue("general.name", "str", f"draft head ({shape.kind})"),
        *(KeyValue(f"{arch}.{key}", *entry) for key, entry in sizes.items()),
        *origin_of(shape.kind, origin, shape.guesses),
    ]


def origin_of(kind: str, origin: HeadOrigin, guesses: int) -> list[KeyValue]:
    """Return the metadata of a head's origin, its kind, and the tokens that it guesses at once, if any."""
    own: dict[str, tuple[str, Value]] = {
        "kind": ("str", kind),
        "target_fingerprint": ("str", origin.target),
        "tokens": ("u64", origin.tokens),
        "steps": ("u32", origin.steps),
        "accepted": ("arr[f32]", origin.accepted),
        "seed": ("u64", origin.seed),
    }
    if guesses:
        own["guesses"] = ("u32", guesses)
    return [KeyValue(f"localspec.head.{key}", *entry) for key, entry in own.items()]
