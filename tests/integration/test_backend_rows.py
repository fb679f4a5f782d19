"""Every row of a tree is the row that plain decoding of its path gives: what all verification stands on."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.errors import InternalError
from tests.integration.gguf_models import TREES, levels, never, path_to

NOISE = 1e-3
PREFIX = [7, 300, 12, 99, 4, 256, 31, 8, 77]


@pytest.fixture(scope="module")
def plain(model: Model) -> Iterator[LlamaBackend]:
    with LlamaBackend(model) as backend:
        yield backend


def row_of_path(plain: LlamaBackend, prefix: Sequence[int], path: Sequence[int]) -> np.ndarray:
    """Return the row after `prefix` and `path`, evaluated one token at a time."""
    plain.truncate(0)
    for token in [*prefix, *path]:
        row = plain.extend([token], [-1]).logits(0).copy()
        plain.keep((0,))
    return row


def some_tokens(n: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(1, 512, n).tolist()


@pytest.mark.parametrize("prefix", [[], PREFIX], ids=["empty cache", "after a prefix"])
@pytest.mark.parametrize("name", TREES)
def test_rows_equal_plain_decoding_of_their_path(
    backend: LlamaBackend, plain: LlamaBackend, name: str, prefix: list[int]
) -> None:
    parents = TREES[name]
    tokens = some_tokens(len(parents))
    if prefix:
        backend.prefill(prefix, never)
    rows = backend.extend(tokens, parents)
    for node in range(len(parents)):
        expected = row_of_path(plain, prefix, [tokens[at] for at in path_to(parents, node)])
        assert np.abs(rows.logits(node) - expected).max() <= NOISE
    backend.check()


@pytest.mark.parametrize("name", TREES)
def test_growing_level_by_level_gives_the_same_rows(backend: LlamaBackend, name: str) -> None:
    parents = TREES[name]
    tokens = some_tokens(len(parents))
    backend.prefill(PREFIX, never)
    rows = backend.extend(tokens, parents)
    at_once = [rows.logits(node).copy() for node in range(len(parents))]
    backend.keep(())

    ids = {-1: -1}  # ids go on from level to level
    for nodes in levels(parents):
        first = len(ids) - 1
        grown = backend.extend([tokens[node] for node in nodes], [ids[parents[node]] for node in nodes])
        ids |= {node: first + at for at, node in enumerate(nodes)}
        backend.check()
        for node in nodes:
            assert np.abs(grown.logits(ids[node]) - at_once[node]).max() <= NOISE


def test_only_wanted_rows_are_there(backend: LlamaBackend) -> None:
    parents, tokens = TREES["sixteen"], some_tokens(16)
    backend.prefill(PREFIX, never)
    everything = backend.extend(tokens, parents)
    expected = [everything.logits(node).copy() for node in range(16)]
    backend.keep(())
    wanted = np.zeros(16, np.bool_)
    wanted[[2, 3, 11, 15]] = True
    rows = backend.extend(np.array(tokens, np.int32), np.array(parents, np.int32), wanted)
    for node in np.flatnonzero(wanted).tolist():
        assert np.abs(rows.logits(node) - expected[node]).max() <= NOISE
    with pytest.raises(AssertionError, match="no logits were wanted for node 4"):
        rows.logits(4)
    backend.keep((0, 2))
    assert backend.extend([5], [-1], np.array([False])) is not None
    backend.check()


def test_rows_are_views_and_go_stale(backend: LlamaBackend) -> None:
    rows = backend.prefill(PREFIX, never)
    row = rows.logits(0)
    assert row.shape == (512,)
    assert row.dtype == np.float32
    assert not row.flags.owndata
    assert rows.logits(0).ctypes.data == row.ctypes.data
    grown = backend.extend([1], [-1])
    with pytest.raises(AssertionError, match="stale"):
        rows.logits(0)
    backend.keep((0,))
    grown.logits(0)  # committing moves no logits
    backend.close()
    with pytest.raises(AssertionError, match="stale"):
        grown.logits(0)


def test_rows_of_a_later_level_do_not_answer_for_an_earlier_one(backend: LlamaBackend) -> None:
    backend.extend([1, 2], [-1, 0])
    rows = backend.extend([3], [1])
    rows.logits(2)
    with pytest.raises(AssertionError, match="older"):
        rows.logits(1)


def test_a_token_outside_the_vocabulary_is_an_internal_error(backend: LlamaBackend, plain: LlamaBackend) -> None:
    backend.prefill(PREFIX, never)
    backend.extend([5], [-1])
    with pytest.raises(InternalError, match=r"code -1.*invalid token") as caught:
        backend.extend([512], [0])
    assert caught.value.detail["code"] == -1
    assert backend.length == len(PREFIX)
    backend.check()
    row = backend.extend([9], [-1]).logits(0)
    assert np.abs(row - row_of_path(plain, PREFIX, [9])).max() <= NOISE
