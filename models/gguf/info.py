"""What a GGUF header says about a language model; refuses files that are none.

Follows `llama_model_base::load_hparams` and `llama_vocab::impl::load` of llama.cpp: keys they require are required
here, and states in which they abort are refused with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import IncompatibleError
from localspec.models.gguf.head import HeadInfo, has_own_head, head_info
from localspec.models.gguf.header import Header, unusable
from localspec.models.gguf.hparams import COUNTS, check_hparams, check_weights
from localspec.models.gguf.kind import check_kind
from localspec.models.gguf.types import FILE_TYPES, KNOWN, RECURRENT
from localspec.models.gguf.vocab import Vocab, read_vocab
from localspec.sanitize import shown

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

    @property
    def n_vocab(self) -> int:
        """Return the number of tokens."""
        return len(self.vocab.tokens)

    @property
    def label(self) -> str:
        """Return the printable name for messages: the file's name."""
        return shown(self.path.name)


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
    arch = _text(header, "general.architecture")
    if arch not in known:
        raise IncompatibleError(
            f"{header.name} has the architecture '{shown(arch)}', which this llama.cpp does not know",
            hint="update with: pip install -U llama-cpp-python, or use a model of another architecture",
        )
    n_layer = _number(header, f"{arch}.block_count")
    if not 1 <= n_layer <= _MAX_LAYERS:
        raise unusable(header, f"{arch}.block_count is {n_layer}, not from 1 to {_MAX_LAYERS}")
    check_hparams(header, arch)
    check_weights(header)
    states = tuple(f"{arch}.{what}." for what in ("ssm", "wkv", "shortconv"))  # what hybrids keep beside a cache
    n_head = _heads(header, arch, "head_count", 0 if arch in RECURRENT else None)
    return ModelInfo(
        path=header.path,
        architecture=arch,
        name=shown(_text(header, "general.name", header.path.stem)),
        n_params=sum(tensor.n_elements for tensor in header.tensors),
        n_layer=n_layer,
        n_embd=_number(header, f"{arch}.embedding_length"),
        n_ctx_train=_number(header, f"{arch}.context_length"),
        n_head=n_head,
        n_head_kv=_heads(header, arch, "head_count_kv", n_head),
        quant=_quant(header),
        bytes=header.size,
        is_recurrent=arch in RECURRENT or any(key.startswith(states) for key in header.metadata),
        sliding_window=_number(header, f"{arch}.attention.sliding_window", 0),
        chat_template=None if head else _chat_template(header),
        vocab=read_vocab(header),
        head=head,
        has_mtp=has_own_head(header),
    )


def _chat_template(header: Header) -> str | None:
    """Return the chat template, of several the default one."""
    key = "tokenizer.chat_template"
    return _text(header, key, "") or _text(header, f"{key}.default", "") or None


def _text(header: Header, key: str, default: str | None = None) -> str:
    value = header.metadata.get(key, default)
    if value is None:
        raise unusable(header, f"the metadata key {key} is missing")
    if not isinstance(value, str):
        raise unusable(header, f"the metadata key {key} has the type {header.types[key]} instead of str")
    return value


def _number(header: Header, key: str, default: int | None = None) -> int:
    value = header.metadata.get(key, default)
    if value is None:
        raise unusable(header, f"the metadata key {key} is missing")
    # llama.cpp takes no other integer type for these.
    if header.types.get(key, "u32") != "u32" or not isinstance(value, int):
        raise unusable(header, f"the metadata key {key} has the type {header.types[key]} instead of u32")
    return value


def _heads(header: Header, arch: str, what: str, default: int | None) -> int:
    """Return a head count; where every layer has its own, the largest."""
    key = f"{arch}.attention.{what}"
    value = header.metadata.get(key)
    if header.types.get(key) in COUNTS and isinstance(value, Sequence) and len(value):
        return max(map(int, value))
    return _number(header, key, default)


def _quant(header: Header) -> str:
    value = header.metadata.get("general.file_type")
    if isinstance(value, int):
        return FILE_TYPES.get(value & ~1024, "?")  # 1024 marks a guessed type
    # Without the key, name the type that most bytes have, as llama.cpp guesses it.
    sizes: dict[str, int] = {}
    for tensor in header.tensors:
        sizes[tensor.type] = sizes.get(tensor.type, 0) + tensor.n_bytes
    return max(sizes, key=lambda name: sizes[name], default="?")
