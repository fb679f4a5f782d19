"""Lookahead: the contract, the window as the paper lays it out, and a pool that holds nothing but what came from it."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.draft import Draft, Draw, Step
from localspec.engine.loop import Engine
from localspec.engine.protocols import Plan, Rows, Shape, TreePolicy
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.errors import UsageError
from localspec.methods import DrafterContext
from localspec.methods._window import Window
from localspec.methods.lookahead import Lookahead, NgramPool
from localspec.settings.declaration import Value
from localspec.settings.request import Sampling, Speculation
from localspec.speculation.resolve import resolve_axes
from localspec.testing.contract import (
    ContractLimits,
    DrafterContract,
    DrafterUnderTest,
    Scripted,
    Table,
    TableBackend,
    random_table,
)
from localspec.trees.budget import MAX_LEAVES
from localspec.trees.static import Chain
from localspec.verify.match import MatchVerifier

Ngram = tuple[int, ...]
PROMPT = (0, 1, 2, 1, 3, 0, 2, 2, 1)
SHAPES = ((4, 3, 4), (1, 2, 1), (3, 2, 2), (1, 3, 2), (2, 4, 3), (5, 5, 5))


def parts(eog: int = -1, **options: Value) -> DrafterContext:
    return DrafterContext(None, Sampler(Sampling()), Chain(), lambda: False, 4, options, lambda token: token == eog)


def plan_for(w: int, n: int, g: int) -> Plan:
    shape = Lookahead.shape(1, {"W": w, "N": n, "G": g})
    return Plan("it", shape.nodes, shape.depth)


class TestLookahead(DrafterContract):
    """With budgets that hold the n-grams alone, and with one that holds the window."""

    policies: ClassVar[tuple[tuple[TreePolicy, int, int], ...]] = (
        (Chain(), 1, 1),
        (Chain(), 7, 2),
        (Chain(), 15, 1),
        (Chain(), 15, 2),
    )

    def make(self, table: Table, policy: TreePolicy, n_ctx: int = 64) -> DrafterUnderTest:
        return DrafterUnderTest(Lookahead(parts()))


class Paper(Lookahead):
    """Lookahead beside the paper's own book-keeping: a window by level and column, and the n-grams of every pass."""

    def __init__(self, parts: DrafterContext, table: Table, text: Sequence[int]) -> None:
        super().__init__(parts)
        self.table = table
        self.text = list(text)
        self.produced: set[Ngram] = set()
        self.drafts: list[Draft] = []

    def observe(self, step: Step, rows: Rows) -> None:
        draft, w, n = step.draft, self._w, self._n
        cells = np.flatnonzero(draft.scratch).tolist()
        before = set(self._pool)
        super().observe(step, rows)
        new = set(self._pool) - before
        if cells or (w, n) == (1, 2):
            cells = [0, *cells]  # the pending token is the first cell
            self.drafts.append(draft)
            grid = [cells[level * w : (level + 1) * w] for level in range(n - 1)]
            for column in range(w):
                token = [int(draft.tokens[grid[level][column]]) for level in range(n - 1)]
                ahead = [int(draft.tokens[cell]) for cell in grid[0][1 : column + 1]]
                seen = (*self.text, *ahead, *token[1:])
                predicted = int(self.table(seen).argmax())
                ngram = (*token, predicted)
                self.produced.add(ngram)
                assert self._window is not None
                assert self._window.levels[-1][column] in (predicted, *PROMPT)
        assert new <= self.produced
        self.text += step.tokens


def run(w: int, n: int, g: int, *, eog: int = -1, table: Table | None = None, **options: Value) -> Paper:
    """Generate 30 tokens; the window's levels are checked after every pass."""
    table = table or random_table(4, 5, scale=3.0)
    prompt = PROMPT[: 9 if eog < 0 else 3]
    drafter = Paper(parts(eog, W=w, N=n, G=g, **options), table, prompt)
    context = ContractLimits(max_tokens=30, n_ctx=200).context(prompt)
    engine = Engine.local(
        TableBackend(table, 4, 200), {"it": drafter}, MatchVerifier(), Scripted([plan_for(w, n, g)]),
        Sampler(Sampling()), SeededRandom(3), lambda: 0.0, lambda: False,
    )  # fmt: skip
    for index, step in enumerate(engine.generate(context)):
        if index == 0:
            drafter.text += step.tokens
    return drafter


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reads_prompt", [False, True])
def test_the_pool_holds_what_the_window_produced(shape: tuple[int, int, int], reads_prompt: bool) -> None:
    """Every n-gram begins with its own column's first token and ends with what the target says after what it saw."""
    drafter = run(*shape, prompt=reads_prompt)
    n = shape[1]
    opening = drafter.text[: len(PROMPT) + 1]
    read = {tuple(opening[at : at + n]) for at in range(len(opening) - n + 1)} if reads_prompt else set()
    assert drafter.produced
    assert set(drafter._pool) <= drafter.produced | read
    assert len(set(drafter._pool) & drafter.produced) > 0
    assert all(len(list(drafter._pool.after(token))) <= shape[2] for token in range(4))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shape_is_a_bound(shape: tuple[int, int, int]) -> None:
    """No draft is larger than `shape` says, and the largest come near it."""
    w, n, g = shape
    bound = Lookahead.shape(1, {"W": w, "N": n, "G": g})
    drafts = run(w, n, g).drafts
    sizes = [(len(draft), draft.depth, draft.n_leaves) for draft in drafts]
    assert max(nodes for nodes, _, _ in sizes) <= bound.nodes
    assert max(depth for _, depth, _ in sizes) == bound.depth
    assert max(leaves for _, _, leaves in sizes) <= bound.leaves <= MAX_LEAVES


def test_the_widest_shape_fits() -> None:
    """Whatever the options allow, the leaves have sequences."""
    largest = {option.name: option.high for option in Lookahead.info.options}
    assert Lookahead.shape(1, largest).leaves == MAX_LEAVES


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_wanted_where_they_are_read(shape: tuple[int, int, int]) -> None:
    """Of the window the tips' rows alone, of the n-grams all; a cell is never a child that could be accepted."""
    w, n, _ = shape
    for draft in run(*shape).drafts:
        cells = np.flatnonzero(draft.scratch)
        assert len(cells) == w * (n - 1) - 1
        inner = set(draft.parents.tolist())
        for node in range(len(draft) + 1):
            assert draft.outputs[node] == (not draft.scratch[node] or node not in inner or n == 2)
            assert not any(draft.scratch[child] for child in draft.children[node])


def test_a_cell_sees_its_column_and_the_level_below() -> None:
    """Cell (j, i) sees level 0 up to column i, then its own column up to level j."""
    drafter = Lookahead(parts(W=3, N=4, G=2, prompt=False))
    draft = drafter.propose(ContractLimits().context((3, 0, 1, 2)), plan_for(3, 4, 2), SeededRandom(1))
    assert drafter._window is not None
    (_, a, b), middle, top = drafter._window.levels
    paths = [draft.path(node) for node in range(1, len(draft) + 1)]
    columns = [[], [a], [a, b]]
    expected = [[a], [a, b]]
    expected += [[*columns[i], middle[i]] for i in range(3)]
    expected += [[*columns[i], middle[i], top[i]] for i in range(3)]
    assert paths == expected


def test_no_end_token_enters_the_window() -> None:
    """Neither from the text nor from a prediction; the pool keeps what was predicted, the end included."""
    drafter = run(4, 3, 4, eog=3, table=random_table(4, 8, scale=3.0))
    cells = {int(draft.tokens[node]) for draft in drafter.drafts for node in np.flatnonzero(draft.scratch)}
    assert 3 not in cells
    assert any(ngram[-1] == 3 for ngram in drafter.produced)


def test_a_small_budget_keeps_the_ngrams_and_leaves_the_window() -> None:
    """Near the end of the context the window no longer fits; what is known is still proposed."""
    drafter = Lookahead(parts())
    context = ContractLimits().context((1, 2, 3, 1, 0, 0, 1))
    drafter.begin(context)
    for nodes in range(1, 5):
        draft = drafter.propose(context, Plan("it", nodes, 2), SeededRandom(1))
        assert not draft.scratch.any()
        assert draft.tokens[1:].tolist() == [0, 0, 2, 3][:nodes]  # the newest n-gram first
    assert drafter.propose(context, Plan("it", 9, 1), SeededRandom(1)).tokens.tolist()[1:3] == [0, 2]
    assert set(drafter.propose(context, Plan("it", 9, 2), SeededRandom(1)).draws) == {Draw.FIXED}


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), max_size=60),
    st.integers(1, 4),
)
def test_the_pool_keeps_the_last_seen(ngrams: list[list[int]], width: int) -> None:
    """Of each first token the `width` latest different n-grams, newest first."""
    pool = NgramPool(3, width)
    for ngram in ngrams:
        pool.add(ngram)
    for token in range(4):
        latest = list(dict.fromkeys(tuple(ngram[1:]) for ngram in reversed(ngrams) if ngram[0] == token))
        assert list(pool.after(token)) == latest[:width]


def test_a_text_is_read_whole() -> None:
    """Every n-gram of a text is taken, none from a shorter one."""
    pool = NgramPool(3, 9)
    pool.read([1, 2, 3, 1, 2])
    assert set(pool) == {(1, 2, 3), (2, 3, 1), (3, 1, 2)}
    short = NgramPool(3, 9)
    short.read([1, 2])
    assert not set(short)


@pytest.mark.parametrize(
    ("name", "value"), [("W", "0"), ("W", "17"), ("N", "1"), ("N", "9"), ("G", "0"), ("G", "17"), ("prompt", "maybe")]
)
def test_options_out_of_range(name: str, value: str) -> None:
    """One line that says the range."""
    with pytest.raises(UsageError, match=f"-o {name}={value} is out of range"):
        resolve_axes(Speculation(method="lookahead", options=((name, value),)), has_draft=False, is_seeded=False)


def test_the_axes() -> None:
    """It is a tree with a shape of its own, judged with coupled noise unless asked otherwise."""
    axes = resolve_axes(Speculation(method="lookahead"), has_draft=False, is_seeded=False)
    assert (axes.verify, axes.shape) == ("coupled", Shape(nodes=15, depth=2, leaves=8))
    for verify in ("block", "token"):
        with pytest.raises(UsageError, match="takes chains only"):
            resolve_axes(Speculation(method="lookahead", verify=verify), has_draft=False, is_seeded=False)


def test_the_window_is_added_level_by_level_and_moves_up() -> None:
    window, added = Window([[1, 2, 3], [4, 5, 6], [7, 8, 9]]), []

    def add(token: int, parent: int, is_tip: bool) -> int:
        added.append((token, parent, is_tip))
        return len(added)

    assert window.add_to(add) == [6, 7, 8]
    assert added[:2] == [(2, 0, False), (3, 1, False)]
    assert added[2:5] == [(4, 0, False), (5, 1, False), (6, 2, False)]
    assert added[5:] == [(7, 3, True), (8, 4, True), (9, 5, True)]
    assert len(added) == Window.size(3, 3)
    window.advance((10, 11, 12))
    assert window.levels == [[4, 5, 6], [7, 8, 9], [10, 11, 12]]
