"""What a GGUF header says about a language model; refuses files that are none.

Follows `llama_model_base::load_hparams` and `llama_vocab::impl::load` of llama.cpp: keys they require are required
here, and states in which they abort are refused with a reason.

Refused are the other things that are kept in GGUF files, and hyperparameters and types of weights that end llama.cpp's
process or make it compute NaN. A LoRA adapter has to be one, and of the target's architecture. Whether its tensors fit
the target's is left to llama.cpp, which refuses them with a reason.

Source of the limits: the assertions of `llama_model_base::load_hparams` in src/llama-model.cpp, those of ggml's norms,
and the types that ggml's matrix products have no kernel for. A value of a wrong type is left to llama.cpp, which
refuses the file.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import IncompatibleError, IntegrityError
from localspec.models.gguf.architectures import KNOWN, NOT_GENERATORS, RECURRENT
from localspec.models.gguf.head import HeadInfo, has_own_head, head_info
from localspec.models.gguf.header import Header, read_header, unusable
from localspec.models.gguf.types import FILE_TYPES
from localspec.models.gguf.vocab import Vocab, read_vocab
from localspec.models.ollama import spoken
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
    for tensor in header.tensors:
        if tensor.type in _NO_WEIGHTS and _WEIGHTS.fullmatch(tensor.name):
            raise unusable(
                header, f"the tensor '{shown(tensor.name)}' is of the type {tensor.type}, which is none of weights"
            )


def check_hparams(header: Header, arch: str) -> None:
    """Raise IntegrityError for numbers that no model can have, IncompatibleError for an unknown scaling of positions.
    The number of layers was checked before."""
    n_ctx = _plain_number(header, f"{arch}.context_length")
    if 0 < n_ctx < _MIN_CONTEXT:  # 0 leaves it open
        raise unusable(header, f"{arch}.context_length is {n_ctx}, and no text fits into that")
    n_layer, n_next = (_plain_number(header, f"{arch}.{key}") for key in ("block_count", "nextn_predict_layers"))
    if n_next > n_layer:
        raise unusable(header, f"{arch}.nextn_predict_layers is {n_next}, and there are {counted(n_layer, 'layer')}")
    _check_experts(header, arch)
    _check_rope(header, arch)
    for key in (f"{arch}.attention.{name}" for name in _EPSILONS):
        if not _float(header, key, 0.0) >= 0.0:
            raise unusable(header, f"{key} is {_float(header, key, 0.0):g}, not a number from 0 on")


def _check_experts(header: Header, arch: str) -> None:
    n = _plain_number(header, f"{arch}.expert_count")
    n_used = _largest(header, f"{arch}.expert_used_count")
    if arch in _LONE_EXPERT and n <= 1:
        n = n_used = 0
    if n > _MAX_EXPERTS:
        raise unusable(header, f"{arch}.expert_count is {n}, and no more than {_MAX_EXPERTS} are possible")
    if not (0 < n_used <= n or n == n_used == 0):
        raise unusable(header, f"{arch}.expert_used_count is {n_used} of {counted(n, 'expert')}")
    n_groups = _plain_number(header, f"{arch}.expert_group_count")
    n_groups_used = _plain_number(header, f"{arch}.expert_group_used_count")
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


def _plain_number(header: Header, key: str) -> int:
    value = header.metadata.get(key, 0)
    return value if header.types.get(key) == "u32" and isinstance(value, int) else 0


def _float(header: Header, key: str, default: float) -> float:
    value = header.metadata.get(key, default)
    return value if isinstance(value, float) else default


def _largest(header: Header, key: str) -> int:
    value, kind = header.metadata.get(key), header.types.get(key, "u32")
    if not isinstance(value, Sequence) or isinstance(value, str):
        return _plain_number(header, key)
    if kind not in COUNTS:
        raise unusable(header, f"the metadata key {key} has the type {kind} instead of u32")
    return max(map(int, value), default=0)


_ALPHA = "adapter.lora.alpha"
_INVOKED = "adapter.alora.invocation_tokens"
_TYPES = {"adapter": "a LoRA adapter", "mmproj": "a vision or audio projector", "imatrix": "an importance matrix"}
_HINT = "give the path of the model itself"
_HEAD = "a draft head, which reads the hidden states of its target"
_MAX_LAYERS = 512  # LLAMA_MAX_LAYERS; llama.cpp aborts beyond it


@dataclass(frozen=True)
class ModelInfo:
    """A language model as its file describes it.

    `n_params` counts weights, `bytes` is the file's size, `n_ctx_train` the context length it was trained with,
    `n_embd` the width, `quant` the file type (Q8_0, Q4_K_M ...; "?" if it has no name here), `head` what a draft head
    needs of its target, None for language models. A head has no chat template: it reads the target's prompt.
    `has_mtp`: a block of its own predicts further tokens.
    """

    path: Path
    architecture: str
    name: str
    n_params: int
    n_layer: int
    n_embd: int
    n_ctx_train: int
    n_head: int
    n_head_kv: int
    quant: str
    bytes: int
    is_recurrent: bool
    sliding_window: int
    chat_template: str | None
    vocab: Vocab
    head: HeadInfo | None = None
    has_mtp: bool = False
    known_as: str = ""  # in messages, where the file's name says nothing to people

    @property
    def n_vocab(self) -> int:
        return len(self.vocab.tokens)

    @property
    def label(self) -> str:
        return self.known_as or spoken(self.path, briefly=True)


def model_info(
    header: Header, *, known: frozenset[str] = KNOWN, may_be_head: bool = False, needs_weights: bool = True
) -> ModelInfo:
    """Describe the language model in a file whose header was read.

    `known` holds the architectures that the installed llama.cpp loads. `may_be_head`: a draft head will do. Without
    `needs_weights` so will a model's file without its tensors. Raises IncompatibleError for files that are no text
    generator or of an unknown architecture, and IntegrityError where a key that llama.cpp requires is missing or
    malformed.
    """
    head = head_info(header) if may_be_head else None
    if head is None:
        check_kind(header, needs_weights=needs_weights)
    arch = header.required("general.architecture", "str")
    if arch not in known:
        raise IncompatibleError(
            f"{header.name} has the architecture '{shown(arch)}', which this llama.cpp does not know",
            hint="update with: pip install -U llama-cpp-python, or use a model of another architecture",
        )
    n_layer = header.required(f"{arch}.block_count", "u32")
    if not 1 <= n_layer <= _MAX_LAYERS:
        raise unusable(header, f"{arch}.block_count is {n_layer}, not from 1 to {_MAX_LAYERS}")
    check_hparams(header, arch)
    check_weights(header)
    states = tuple(f"{arch}.{what}." for what in ("ssm", "wkv", "shortconv"))  # what hybrids keep beside a cache
    n_head = _heads(header, arch, "head_count", 0 if arch in RECURRENT else None)
    key = "tokenizer.chat_template"  # of several the default one
    template = None if head else header.required(key, "str", "") or header.required(f"{key}.default", "str", "")
    return ModelInfo(
        path=header.path,
        architecture=arch,
        name=shown(header.required("general.name", "str", header.path.stem)),
        n_params=sum(tensor.n_elements for tensor in header.tensors),
        n_layer=n_layer,
        n_embd=header.required(f"{arch}.embedding_length", "u32"),
        n_ctx_train=header.required(f"{arch}.context_length", "u32"),
        n_head=n_head,
        n_head_kv=_heads(header, arch, "head_count_kv", n_head),
        quant=_quant(header),
        bytes=header.size,
        is_recurrent=arch in RECURRENT or any(key.startswith(states) for key in header.metadata),
        sliding_window=header.required(f"{arch}.attention.sliding_window", "u32", 0),
        chat_template=template or None,
        vocab=read_vocab(header),
        head=head,
        has_mtp=has_own_head(header),
    )


def _heads(header: Header, arch: str, what: str, default: int | None) -> int:
    key = f"{arch}.attention.{what}"
    value = header.metadata.get(key)
    if header.types.get(key) in COUNTS and isinstance(value, Sequence) and len(value):
        return max(map(int, value))
    n: int = header.required(key, "u32", default)
    return n


def _quant(header: Header) -> str:
    value = header.metadata.get("general.file_type")
    if isinstance(value, int):
        return FILE_TYPES.get(value & ~1024, "?")  # 1024 marks a guessed type
    # Without the key, name the type that most bytes have, as llama.cpp guesses it.
    sizes = header.types_bytes
    return max(sizes, key=lambda name: sizes[name], default="?")


def check_kind(header: Header, *, needs_weights: bool = True) -> None:
    """Raise unless the file can be a whole language model. IncompatibleError for adapters, projectors, embedding
    models, draft heads, vocabularies and lone parts of split models."""
    count = header.number("split.count")
    if count > 1 and not header.parts:  # which says too little of the model without the others
        message = f"{header.name} is one of {count} parts of a split model, not a model alone"
        raise IncompatibleError(message, hint="give the path of the first part, with the others beside it")
    if head_info(header) is not None:
        raise IncompatibleError(f"{header.name} is {_HEAD}", hint=f"give it as the draft: --draft {header.name}")
    arch = header.architecture
    what = _TYPES.get(header.text("general.type")) or NOT_GENERATORS.get(arch)
    is_causal = header.metadata.get(f"{arch}.attention.causal", True)
    if what is None and not (is_causal and header.metadata.get(f"{arch}.pooling_type", 0) in (0, 2**32 - 1)):
        what = "a model for embeddings or ranking"  # of a generator's architecture
    if what is None and needs_weights and "general.architecture" in header.metadata and not header.tensors:
        what = "a vocabulary without weights"
    if what and arch == "gemma4-assistant":
        raise IncompatibleError(
            f"{header.name} is the assistant of a Gemma 4 model, which drafts from that model's states",
            hint="it cannot be used yet; a smaller model of the family drafts: --draft FILE.gguf, or --draft none",
        )
    if what:
        hint = _HINT if header.tensors else f"{_HINT}, or --verifier URL where the weights are on another machine"
        raise IncompatibleError(f"{header.name} is {what}, not a language model that generates text", hint=hint)


def check_adapter(path: Path, target: Header) -> None:
    """Raise IncompatibleError for a file that is no LoRA of the target's architecture, or what reading it raises."""
    hint = "--lora FILE, made by llama.cpp's convert_lora_to_gguf.py"
    try:
        header = read_header(path)
    except IntegrityError as error:
        raise (error if path.suffix.lower() == ".gguf" else error.hinted(hint)) from None
    kinds = [header.text(key) for key in ("general.type", "adapter.type")]
    if kinds != ["adapter", "lora"] or header.types.get(_ALPHA, "f32") != "f32":
        raise IncompatibleError(f"{header.name} is not a LoRA adapter", hint=hint)
    arch, wanted = header.architecture, target.architecture
    if arch != wanted:
        message = f"the LoRA {header.name} is for {shown(arch) or 'no architecture'}, and the target is {shown(wanted)}"
        raise IncompatibleError(message, hint="--lora FILE of a LoRA that was trained on this target")
    if _INVOKED in header.metadata:
        message = f"the LoRA {header.name} is one that acts from certain tokens on, which is not supported"
        raise IncompatibleError(message, hint="--lora FILE of a LoRA that always acts")
