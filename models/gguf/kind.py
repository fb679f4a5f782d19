"""Telling language models from the other things that are kept in GGUF files."""

from __future__ import annotations

import re

from localspec.errors import IncompatibleError, NotFoundError
from localspec.models.gguf.archs import NOT_GENERATORS
from localspec.models.gguf.header import Header
from localspec.models.gguf.text import shown

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_TYPES = {"adapter": "a LoRA adapter", "mmproj": "a vision or audio projector", "imatrix": "an importance matrix"}
_HINT = "give the path of the model itself"


def check_kind(header: Header) -> None:
    """Raise unless the file can be a whole language model.

    IncompatibleError for adapters, projectors, embedding models, vocabularies and split models; NotFoundError for a
    split model of which a part is missing.
    """
    _check_split(header)
    kind = header.metadata.get("general.type")
    arch = header.metadata.get("general.architecture")
    what = _TYPES.get(kind) if isinstance(kind, str) else None
    if what is None and isinstance(arch, str):
        what = NOT_GENERATORS.get(arch) or _embedding(header, arch)
    if what is None and "general.architecture" in header.metadata and not header.tensors:
        what = "a vocabulary without weights"
    if what:
        raise IncompatibleError(f"{header.name} is {what}, not a language model that generates text", hint=_HINT)


def _embedding(header: Header, arch: str) -> str | None:
    """Recognise embedding and reranking models that share a generator's architecture."""
    is_causal = header.metadata.get(f"{arch}.attention.causal", True)
    pooling = header.metadata.get(f"{arch}.pooling_type", 0)
    return None if is_causal and pooling in (0, 2**32 - 1) else "a model for embeddings or ranking"


def _check_split(header: Header) -> None:
    count = header.metadata.get("split.count", 0)
    if not isinstance(count, int) or count <= 1:
        return
    match = _PART.fullmatch(header.path.name)
    if match:
        for number in range(1, count + 1):
            part = header.path.with_name(f"{match[1]}-{number:05}-of-{count:05}.gguf")
            if not part.is_file():
                raise NotFoundError(
                    f"{header.name} is one of {count} parts, and the part {shown(part.name)} is missing",
                    hint="download all parts, then join them with: llama-gguf-split --merge FIRST_PART OUTPUT.gguf",
                )
    raise IncompatibleError(
        f"{header.name} is one of {count} parts of a split model, which is not supported yet",
        hint="join the parts with: llama-gguf-split --merge FIRST_PART OUTPUT.gguf",
    )
