"""Everything that a model's file says of itself, for `localspec show`: read from the header alone, in milliseconds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.models.gguf.fingerprint import fingerprint
from localspec.models.gguf.header import Header
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.layer_sizes import Anatomy, anatomy
from localspec.models.gguf.open import open_regular
from localspec.models.gguf.shards import read_model
from localspec.sanitize import quoted

KV_TYPES = ("f16", "q8_0", "q4_0")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Description:
    """A model as its header describes it; `tokenizer` is the vocabulary's fingerprint."""

    header: Header
    info: ModelInfo
    anatomy: Anatomy
    tokenizer: str

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object of `localspec show --json`; sizes in bytes, layers in order."""
        info, parts, vocab = self.info, self.anatomy, self.info.vocab
        return {
            "path": str(info.path),
            "files": [str(path) for path in self.header.files],
            "name": info.name,
            "architecture": info.architecture,
            "n_params": info.n_params,
            "bytes": info.bytes,
            "quant": info.quant,
            "types": dict(parts.types),
            "n_layer": info.n_layer,
            "n_embd": info.n_embd,
            "n_head": info.n_head,
            "n_head_kv": info.n_head_kv,
            "n_ctx_train": info.n_ctx_train,
            "sliding_window": info.sliding_window,
            "is_recurrent": info.is_recurrent,
            "experts": {"n": parts.n_experts, "used": parts.n_used},
            "next_token_layers": parts.n_next,
            "kv_bytes_per_token": {kind: parts.kv_per_token(kind) for kind in KV_TYPES},
            "weights": {
                "embedding": parts.embedding,
                "output": parts.output,
                "output_is_embedding": parts.is_tied,
                "layers": [asdict(layer) for layer in parts.layers],
            },
            "tokenizer": {
                "model": vocab.model,
                "pre": vocab.pre,
                "type": vocab.type,
                "n_tokens": info.n_vocab,
                "bos": self.special("bos"),
                "eos": self.special("eos"),
                "eot": self.special("eot"),
                "add_bos": vocab.add_bos,
                "add_eos": vocab.add_eos,
                "fingerprint": self.tokenizer,
            },
            "chat_template": info.chat_template,
        }

    def special(self, name: str) -> dict[str, Any] | None:
        """Return a special token's id and printable text, None if the vocabulary has none."""
        token: int | None = getattr(self.info.vocab, name)
        return None if token is None else {"id": token, "text": quoted(self.info.vocab.text(token))[1:-1]}


def describe(path: str | Path) -> Description:
    """Describe the model at `path`; raises what `read_model` and `model_info` do."""
    return described(read_model(path))


def described(header: Header) -> Description:
    """Describe the model with this header; raises what `model_info` does."""
    info = model_info(header, may_be_head=True)
    return Description(header, info, anatomy(header), fingerprint(header, info.vocab))


def sha256(path: Path, report: Callable[[int], None]) -> str:
    """Return the sha256 of a file in hex; `report` is told how many bytes were read so far."""
    digest, done = hashlib.sha256(), 0
    with open_regular(path) as (fd, _size):
        while chunk := os.read(fd, _CHUNK):
            digest.update(chunk)
            done += len(chunk)
            report(done)
    return digest.hexdigest()
