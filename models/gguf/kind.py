"""Telling language models from the other things that are kept in GGUF files."""

from __future__ import annotations

from localspec.errors import IncompatibleError
from localspec.models.gguf.head import head_info
from localspec.models.gguf.header import Header
from localspec.models.gguf.types import NOT_GENERATORS

_TYPES = {"adapter": "a LoRA adapter", "mmproj": "a vision or audio projector", "imatrix": "an importance matrix"}
_HINT = "give the path of the model itself"
_HEAD = "a draft head, which reads the hidden states of its target"


def check_kind(header: Header, *, needs_weights: bool = True) -> None:
    """Raise unless the file can be a whole language model.

    IncompatibleError for adapters, projectors, embedding models, draft heads, vocabularies and lone parts of split
    models.
    """
    _check_split(header)
    if head_info(header) is not None:
        raise IncompatibleError(f"{header.name} is {_HEAD}", hint=f"give it as the draft: --draft {header.name}")
    kind = header.metadata.get("general.type")
    arch = header.metadata.get("general.architecture")
    what = _TYPES.get(kind) if isinstance(kind, str) else None
    if what is None and isinstance(arch, str):
        what = NOT_GENERATORS.get(arch) or _embedding(header, arch)
    if what is None and needs_weights and "general.architecture" in header.metadata and not header.tensors:
        what = "a vocabulary without weights"
    if what and arch == "gemma4-assistant":
        raise IncompatibleError(
            f"{header.name} is the assistant of a Gemma 4 model, which drafts from that model's states",
            hint="it cannot be used yet; a smaller model of the family drafts: --draft FILE.gguf, or --draft none",
        )
    if what:
        raise IncompatibleError(f"{header.name} is {what}, not a language model that generates text", hint=_HINT)


def _embedding(header: Header, arch: str) -> str | None:
    """Recognise embedding and reranking models that share a generator's architecture."""
    is_causal = header.metadata.get(f"{arch}.attention.causal", True)
    pooling = header.metadata.get(f"{arch}.pooling_type", 0)
    return None if is_causal and pooling in (0, 2**32 - 1) else "a model for embeddings or ranking"


def _check_split(header: Header) -> None:
    """Refuse a part that was read without the others: it says too little of the model."""
    count = header.metadata.get("split.count", 0)
    if isinstance(count, int) and count > 1 and not header.parts:
        raise IncompatibleError(
            f"{header.name} is one of {count} parts of a split model, not a model alone",
            hint="give the path of the first part, with the others beside it",
        )
