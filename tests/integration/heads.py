"""A target and a head on it, opened together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.backends.head import HeadBackend, HeadModel
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.marginals import MarginalBackend, head_backend
from localspec.models.gguf.head import head_info
from localspec.models.gguf.header import read_header
from localspec.session.loaded_model import head_traits
from tests.integration.gguf_models import EXACT


@contextmanager
def opened_head(target: Path, file: Path) -> Iterator[tuple[LlamaBackend, HeadBackend | MarginalBackend]]:
    """Yield a context of the target and one of the head, which hears it."""
    info = head_info(read_header(file))
    assert info is not None
    with (
        Model(target, EXACT) as model,
        LlamaBackend(model, EXACT) as backend,
        HeadModel(file, head_traits(info), model, EXACT) as weights,
        head_backend(weights, backend, EXACT) as head,
    ):
        yield backend, head
