"""What a model consists of: bytes of each layer, experts apart, and what a position of its cache takes.

This is what placing a model needs to know of it. Sizes come from the tensor table; which tensors are experts, input and
output from llama.cpp's names for them (LLM_TENSOR_NAMES in src/llama-arch.cpp).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.models.gguf.architectures import FOURTH_ATTENDS, ROLLS_BACK
from localspec.models.gguf.header import Header, Strings
from localspec.models.gguf.types import TENSOR_TYPES

_BLOCK = re.compile(r"blk\.(\d{1,4})\.(.+)", re.DOTALL)
_EXPERTS = re.compile(r"ffn_(gate|up|down|gate_up)_(ch)?exps\b")
_BY_NAME = {kind.name: kind for kind in TENSOR_TYPES.values()}
BOTH = "falcon-h1"  # whose layers attend and keep a state
HEADS = frozenset(("eagle3", "dflash"))
EITHER = frozenset(("nemotron_h", "nemotron_h_moe"))  # whose layers attend, keep a state, or are a feed-forward part
_MAX_WIDTH = 1 << 24  # of a head, a layer: beyond, the number is a lie and would only make sums overflow their columns


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: bytes of its routed experts and of all else, and cache entries of a position for keys and values.
    `state` bytes are one state of a recurrent layer, which does not grow."""

    dense: int
    experts: int
    k_entries: int
    v_entries: int
    state: int = 0


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A model's parts in bytes and the widths that decide its buffers.

    `output` is the head, for a model that shares it with the embedding (`is_tied`) the copy a device needs. `types` are
    the bytes of each tensor type, most first. `ff` is the feed-forward width, of all experts that one token uses.
    `largest` is the largest tensor. `n_next` counts layers that predict further tokens (MTP, NextN). `rolls_back`: a
    context keeps a state for each of a pass's last tokens.
    """

    layers: tuple[Layer, ...]
    embedding: int
    output: int
    is_tied: bool
    width: int
    ff: int
    n_heads: int
    n_vocab: int
    n_experts: int
    n_used: int
    n_next: int
    largest: int
    types: tuple[tuple[str, int], ...]
    rolls_back: bool = False

    @property
    def weights(self) -> int:
        body = sum(layer.dense + layer.experts for layer in self.layers)
        return self.embedding + body + (0 if self.is_tied else self.output)

    @property
    def used_share(self) -> float:
        return self.n_used / self.n_experts if self.n_experts else 1.0

    def cache_bytes(self, layer: Layer, n_ctx: int, kv_type: str) -> int:
        return n_ctx * (row_bytes(layer.k_entries, kv_type) + row_bytes(layer.v_entries, kv_type)) + layer.state

    def kv_per_token(self, kv_type: str) -> int:
        return sum(row_bytes(layer.k_entries, kv_type) + row_bytes(layer.v_entries, kv_type) for layer in self.layers)


def row_bytes(entries: int, kv_type: str) -> int:
    """Return the bytes of a row of cache entries; raises KeyError for an unknown type."""
    kind = _BY_NAME[kv_type.upper()]
    return -(-entries // kind.block) * kind.size


def anatomy(header: Header) -> Anatomy:
    """Take apart a model that `model_info` has accepted. Numbers that make no sense count as zero."""
    arch = header.architecture
    about = _About(header, arch)
    n_layers = about.number("block_count")
    dense, experts = [0] * n_layers, [0] * n_layers
    embedding = output = head = 0
    for tensor in header.tensors:
        block = _BLOCK.fullmatch(tensor.name)
        if block and int(block[1]) < n_layers:
            part = experts if _EXPERTS.match(block[2]) else dense
            part[int(block[1])] += tensor.n_bytes
        elif arch in HEADS and not tensor.name.startswith(("output", "token_embd")):
            dense[0] += tensor.n_bytes  # what joins the target's states
        elif tensor.name.startswith("output"):
            output += tensor.n_bytes
            head += tensor.n_bytes * (tensor.name == "output.weight")
        else:
            embedding += tensor.n_bytes
    is_tied = not head
    table = next((tensor.n_bytes for tensor in header.tensors if tensor.name == "token_embd.weight"), 0)
    if is_tied:
        embedding, output = embedding + output, output + table  # the norm goes with either, and is counted once
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return Anatomy(
        layers=tuple(_layer(about, i, dense[i], experts[i]) for i in range(n_layers)),
        embedding=embedding,
        output=output,
        is_tied=is_tied,
        width=about.number("embedding_length"),
        ff=_feed_forward(about),
        n_heads=max(1, *about.each("attention.head_count")),
        n_vocab=len(tokens) if isinstance(tokens, Strings) else 0,
        n_experts=about.number("expert_count"),
        n_used=about.n_used,
        n_next=about.number("nextn_predict_layers"),
        largest=max((tensor.n_bytes for tensor in header.tensors), default=0),
        types=tuple(sorted(header.types_bytes.items(), key=lambda item: (-item[1], item[0]))),
        rolls_back=arch in ROLLS_BACK,
    )


class _About:
    def __init__(self, header: Header, arch: str) -> None:
        self._header = header
        self.arch = arch
        self.n_layers = self.number("block_count")
        self.head = self.number("embedding_length") // max(1, *self.each("attention.head_count"))
        self.n_used = max((0, *self.each("expert_used_count")))  # experts of one token, in the layer with the most
        self.pattern = self.each("attention.sliding_window_pattern")
        has_kv = f"{arch}.attention.head_count_kv" in header.metadata
        self.kv_heads = self.each("attention.head_count_kv" if has_kv else "attention.head_count")

    def number(self, key: str, default: int = 0) -> int:
        value = self._header.metadata.get(f"{self.arch}.{key}", default)
        is_sane = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_WIDTH
        return value if is_sane and isinstance(value, int) else default

    def each(self, key: str) -> list[int]:
        value = self._header.metadata.get(f"{self.arch}.{key}")
        if isinstance(value, Sequence) and not isinstance(value, str | Strings):
            widths = [int(width) if 0 <= width <= _MAX_WIDTH else 0 for width in value[: self.n_layers]]
            return widths + [0] * (self.n_layers - len(widths))
        return [self.number(key)] * self.n_layers


def _layer(about: _About, index: int, dense: int, experts: int) -> Layer:
    heads = about.kv_heads[index]
    shared = about.number("attention.shared_kv_layers")  # of the last layers, which read the cache of an earlier one
    interval = about.number("full_attention_interval", 4 if about.arch in FOURTH_ATTENDS else 0)
    is_trunk = index < about.n_layers - about.number("nextn_predict_layers")  # blocks for further tokens attend
    if index >= about.n_layers - shared or (is_trunk and interval and (index + 1) % interval):
        heads = 0
    is_windowed = bool(about.pattern[index]) if len(set(about.pattern)) > 1 else False
    key, value = (about.number(f"attention.{what}_length", about.head) for what in ("key", "value"))
    if is_windowed:
        key, value = about.number("attention.key_length_swa", key), about.number("attention.value_length_swa", value)
    # Multi-head latent attention keeps one compressed row and no values; older files, without these keys, are unfolded.
    is_latent = about.number("attention.key_length_mla") and about.number("attention.value_length_mla")
    values = 0 if is_latent else heads * value
    has_state = about.arch == BOTH or not heads
    if about.arch in EITHER:
        has_state = has_state and not about.each("feed_forward_length")[index]
    return Layer(dense, experts, heads * key, values, state=_state(about) if has_state else 0)


def _state(about: _About) -> int:
    """Return the bytes of a recurrent layer's state: a convolution's last inputs and the state proper, in F32. As
    `n_embd_r` and `n_embd_s` of src/llama-hparams.cpp have it."""
    width, kernel = about.number("embedding_length"), about.number("shortconv.l_cache")
    if wkv := about.number("wkv.head_size"):
        return 4 * width * (about.number("token_shift_count", 2) + wkv)
    if kernel:
        return 4 * width * (kernel - 1)
    if head := about.number("kda.head_dim"):
        n_heads = max(about.each("attention.head_count"))
        return 4 * n_heads * head * (3 * max(0, about.number("ssm.conv_kernel", 4) - 1) + head)
    inner, state = about.number("ssm.inner_size"), about.number("ssm.state_size")
    groups, kernel = about.number("ssm.group_count"), about.number("ssm.conv_kernel")
    return 4 * (max(0, kernel - 1) * (inner + 2 * groups * state) + inner * state)


def _feed_forward(about: _About) -> int:
    dense = max((0, *about.each("feed_forward_length")))
    if not about.number("expert_count"):
        return dense
    expert = about.number("expert_feed_forward_length") or dense
    leading = dense if about.number("leading_dense_block_count") else 0
    return max(leading, expert * about.n_used)
