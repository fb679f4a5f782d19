"""Hyperparameters and types of weights that end llama.cpp's process, or make it compute NaN: refused with a reason.

Source: the assertions of `llama_model_base::load_hparams` in src/llama-model.cpp, those of ggml's norms, and the types
that ggml's matrix products have no kernel for. A value of a wrong type is left to llama.cpp, which refuses the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from localspec.errors import IncompatibleError
from localspec.models.gguf.header import Header, unusable
from localspec.sanitize import shown
from localspec.settings.sizes import counted

COUNTS = ("arr[u32]", "arr[i32]")  # the types of a number for each layer
_MAX_EXPERTS = 1024  # LLAMA_MAX_EXPERTS
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")  # LLAMA_ROPE_SCALING_TYPES
_EPSILONS = ("layer_norm_rms_epsilon", "layer_norm_epsilon", "group_norm_epsilon")
_LONE_EXPERT = ("hunyuan_vl", "hunyuan-dense")  # whose single expert llama.cpp takes for none
_MIN_CONTEXT = 2  # a position for the prompt and one for the answer

# Every architecture multiplies with these; tables of numbers, which some have besides, bear other names.
_WEIGHTS = re.compile(
    r"(?:token_embd|output|output_norm|blk\.\d+\.(?:attn_(?:norm|q|k|v|qkv|output)|ffn_(?:norm|(?:gate|up|down)(?:_exps)?)))"
    r"\.weight"
)
_NO_WEIGHTS = frozenset({"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"})  # the last two are of products under way


def check_weights(header: Header) -> None:
    """Raise IntegrityError for weights in a type that nothing can be multiplied with."""
    for tensor in header.tensors:
        if tensor.type in _NO_WEIGHTS and _WEIGHTS.fullmatch(tensor.name):
            raise unusable(
                header, f"the tensor '{shown(tensor.name)}' is of the type {tensor.type}, which is none of weights"
            )


def check_hparams(header: Header, arch: str) -> None:
    """Raise IntegrityError for numbers that no model can have, IncompatibleError for an unknown scaling of positions.

    The number of layers was checked before.
    """
    n_ctx = _number(header, f"{arch}.context_length")
    if 0 < n_ctx < _MIN_CONTEXT:  # 0 leaves it open
        raise unusable(header, f"{arch}.context_length is {n_ctx}, and no text fits into that")
    n_layer, n_next = (_number(header, f"{arch}.{key}") for key in ("block_count", "nextn_predict_layers"))
    if n_next > n_layer:
        raise unusable(header, f"{arch}.nextn_predict_layers is {n_next}, and there are {counted(n_layer, 'layer')}")
    _check_experts(header, arch)
    _check_rope(header, arch)
    for key in (f"{arch}.attention.{name}" for name in _EPSILONS):
        if not _float(header, key, 0.0) >= 0.0:
            raise unusable(header, f"{key} is {_float(header, key, 0.0):g}, not a number from 0 on")


def _check_experts(header: Header, arch: str) -> None:
    n = _number(header, f"{arch}.expert_count")
    n_used = _largest(header, f"{arch}.expert_used_count")
    if arch in _LONE_EXPERT and n <= 1:
        n = n_used = 0
    if n > _MAX_EXPERTS:
        raise unusable(header, f"{arch}.expert_count is {n}, and no more than {_MAX_EXPERTS} are possible")
    if not (0 < n_used <= n or n == n_used == 0):
        raise unusable(header, f"{arch}.expert_used_count is {n_used} of {counted(n, 'expert')}")
    n_groups = _number(header, f"{arch}.expert_group_count")
    n_groups_used = _number(header, f"{arch}.expert_group_used_count")
    is_even = n_groups <= 1 or (n % n_groups == 0 and 0 < n_groups_used < n_groups)
    if n_groups and not (n_groups < n and is_even):
        raise unusable(header, f"{arch} cannot use {n_groups_used} of {n_groups} groups of {n} experts")


def _check_rope(header: Header, arch: str) -> None:
    scaling = header.metadata.get(f"{arch}.rope.scaling.type", "linear")
    if isinstance(scaling, str) and scaling not in _ROPE_SCALINGS:
        raise IncompatibleError(
            f"{header.name} scales its positions by '{shown(scaling)}', which this llama.cpp does not know",
            hint="update with: pip install -U llama-cpp-python, or use another version of the model",
        )
    base = _float(header, f"{arch}.rope.freq_base", 1.0)
    if not base > 0.0:
        raise unusable(header, f"{arch}.rope.freq_base is {base:g}, not a number above 0")
    if math.isnan(_float(header, f"{arch}.rope.scaling.factor", 1.0)):
        raise unusable(header, f"{arch}.rope.scaling.factor is not a number")


def _number(header: Header, key: str) -> int:
    value = header.metadata.get(key, 0)
    return value if header.types.get(key) == "u32" and isinstance(value, int) else 0


def _float(header: Header, key: str, default: float) -> float:
    value = header.metadata.get(key, default)
    return value if isinstance(value, float) else default


def _largest(header: Header, key: str) -> int:
    """Return a number; where every layer has its own, the largest."""
    value, kind = header.metadata.get(key), header.types.get(key, "u32")
    if not isinstance(value, Sequence) or isinstance(value, str):
        return _number(header, key)
    if kind not in COUNTS:
        raise unusable(header, f"the metadata key {key} has the type {kind} instead of u32")
    return max(map(int, value), default=0)
