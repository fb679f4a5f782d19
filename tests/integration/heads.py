"""A target and a head on it, opened together; the states that the head is told; its rows beside those of numpy."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from localspec.backends.head_backend import HeadBackend, HeadModel
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.marginals import MarginalBackend, open_head
from localspec.backends.tap import StateListener, States, Tap
from localspec.heads.writer import stored, write_gguf
from localspec.models.gguf.head import head_info
from localspec.models.gguf.header import read_header
from localspec.models.gguf.values import KeyValue
from localspec.session.loaded_model import head_traits
from tests.heads.reference import random_weights, storyteller_shape, write_random_head
from tests.integration.gguf_models import EXACT

TOLERANCE = 1e-4


@contextmanager
def head_on(target: LlamaBackend, file: Path) -> Iterator[HeadBackend | MarginalBackend]:
    """Yield a context of a head, which is told the target's states."""
    info = head_info(read_header(file))
    assert info is not None
    with (
        HeadModel(file, head_traits(info), target.model, EXACT) as weights,
        open_head(weights, target, EXACT) as head,
    ):
        yield head


@contextmanager
def opened_head(target: Path, file: Path) -> Iterator[tuple[LlamaBackend, HeadBackend | MarginalBackend]]:
    with Model(target, EXACT) as model, LlamaBackend(model, EXACT) as backend, head_on(backend, file) as head:
        yield backend, head


def told_states(target: LlamaBackend, tap: Tap, *heads: HeadBackend | MarginalBackend) -> dict[int, States]:
    """Return the states that the target tells from now on, by position; `heads` are told them too."""
    told: dict[int, States] = {}

    def receive(start: int, states: States) -> None:
        for head in heads:
            head._receive(start, states)
        told.update(enumerate(states, start))

    target.listen(StateListener(tap, receive))
    return told


def assert_rows(rows: np.ndarray, expected: np.ndarray) -> None:
    """Fail unless both rule out the same tokens and agree in all others."""
    is_finite = np.isfinite(expected)
    assert np.array_equal(np.isfinite(rows), is_finite)
    assert np.abs(rows[is_finite] - expected[is_finite]).max() < TOLERANCE


def with_own_block(path: Path, seed: int = 0) -> Path:
    """Write a random model of two layers, and a block for further tokens behind them, with the target's tokenizer."""
    shape = replace(storyteller_shape("mtp"), context=512)
    sources = [random_weights(shape, seed + layer) for layer in range(3)]
    tensors = []
    for layer, weights in enumerate(sources):
        for name, array in weights.items():
            is_own = name.startswith("blk.0.") and (layer == 2 or ".nextn." not in name)
            if is_own or (layer == 0 and not name.startswith("blk.0.")):
                tensors.append(stored(name.replace("blk.0.", f"blk.{layer}."), array, "F32"))
    header = read_header(write_random_head(path.with_suffix(".head"), "mtp"))
    changed = {"hy_v3.block_count": 3}
    write_gguf(path, [KeyValue(k, header.types[k], changed.get(k, v)) for k, v in header.metadata.items()], tensors)
    return path
