"""Which widths are exact is found by measurement: an inexact one is planted, wherever it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from localspec.engine.draft import Mask
from localspec.engine.protocols import Cancelled, Logits, Tokens
from localspec.session.exact_widths import DEPTHS, ENOUGH, WIDEST, exact_widths
from localspec.testing.contract import TableBackend, TableRows

V = 64


def table(tokens: tuple[int, ...]) -> Logits:
    return np.random.default_rng(hash(tokens) % 2**32).normal(size=V).astype(np.float32)


class Planted(TableBackend):
    """A backend that adds a last bit to one logit of a row where `is_wrong(self, width)` says so."""

    def __init__(self, is_wrong: Callable[[Planted, int], bool], n_ctx: int = ENOUGH) -> None:
        super().__init__(table, V, n_ctx)
        self.is_wrong = is_wrong
        self.widths: set[int] = set()  # of the passes so far
        self.spoilt: int | None = None  # the length from which on entries are not those of plain decoding

    def extend(self, tokens: Tokens, parents: Tokens, outputs: Mask | None = None) -> TableRows:
        self.widths.add(len(tokens))
        found = super().extend(tokens, parents, outputs)
        if self.is_wrong(self, len(tokens)):
            row = found.logits(0).copy()
            row[-1] = np.nextafter(row[-1], np.float32(np.inf))
            found._rows[0] = row
        return found

    def truncate(self, length: int) -> None:
        super().truncate(length)
        if self.spoilt is not None and length <= self.spoilt:
            self.spoilt = None


def measured(backend: TableBackend) -> tuple[int, ...]:
    run = exact_widths(backend, lambda: False)
    while True:
        try:
            assert 0.0 <= next(run) < 1.0
        except StopIteration as done:
            assert backend.length == 0
            widths: tuple[int, ...] = done.value
            return widths


def test_where_all_rows_agree_all_widths_are_exact() -> None:
    assert measured(Planted(lambda backend, width: False)) == tuple(range(1, WIDEST + 1))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("planted", [2, 3, 5, 16])
def test_an_inexact_width_is_found_at_the_one_depth_where_it_is(planted: int, depth: int) -> None:
    """By the last bit of one logit of one row."""
    backend = Planted(lambda backend, width: width == planted and depth <= backend.length < depth + 40)
    assert measured(backend) == tuple(range(1, planted))


def test_attention_that_changes_within_the_passes_is_found() -> None:
    """From 257 entries on, as llama.cpp's does."""
    backend = Planted(lambda backend, width: width > 1 and backend.length + width > 256 and backend.length < 300)
    assert measured(backend) == (1,)


def test_entries_that_a_wide_pass_leaves_are_compared_by_the_rows_that_follow() -> None:
    """The wide pass gives the right rows itself."""

    def is_wrong(backend: Planted, width: int) -> bool:
        if width == 4:
            backend.spoilt = backend.length
        return width == 1 and backend.spoilt is not None

    assert measured(Planted(is_wrong)) == (1, 2, 3)


def test_entries_that_a_rollback_leaves_are_compared_too() -> None:
    """Here only a pass of which a part was dropped spoils what follows."""

    class Kept(Planted):
        def keep(self, nodes: Sequence[int]) -> None:
            if self.open == 3 and len(nodes) == 1:
                self.spoilt = self.length
            super().keep(tuple(nodes))

    assert measured(Kept(lambda backend, width: width == 1 and backend.spoilt is not None)) == (1, 2)


def test_nothing_wider_is_tried_after_an_inexact_width() -> None:
    """A large model's wide passes take seconds."""
    backend = Planted(lambda backend, width: width == 3)
    assert measured(backend) == (1, 2)
    assert max(backend.widths) == 3


@pytest.mark.parametrize("changed", [{"can_rollback": False}, {"max_rows": 1}, {"n_ctx": 20}])
def test_where_passes_cannot_be_tried_one_row_is_exact(changed: dict[str, Any]) -> None:
    backend = Planted(lambda backend, width: False)
    backend.capabilities = replace(backend.capabilities, **changed)
    assert measured(backend) == (1,)


def test_a_short_context_is_measured_as_far_as_it_goes() -> None:
    backend = Planted(lambda backend, width: backend.length > 200 and width > 1, n_ctx=128)
    assert measured(backend) == tuple(range(1, WIDEST + 1))


def test_a_stop_leaves_the_cache_empty() -> None:
    asked = iter([False] * 5 + [True] * 5)
    backend = Planted(lambda backend, width: False)
    with pytest.raises(Cancelled):
        list(exact_widths(backend, lambda: next(asked)))
    assert backend.length == 0
