"""Items become a trie, which is kept; files that hold none are refused in a line."""

import random
from pathlib import Path

import numpy as np
import pytest

from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.ranking.items import Items, build, kept_trie, read_items


def paths(n: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(4) for _ in range(rng.randint(1, 5))] for _ in range(n)]


@pytest.mark.parametrize("seed", range(5))
def test_every_item_has_its_path(seed: int) -> None:
    items = paths(60, seed)
    trie = build(items)
    parents = trie.parents()
    depths = trie.depths()
    assert depths.dtype == np.int32
    found = {}
    for node in range(len(trie)):
        path, at = [], node
        while at > 0:
            path.append(int(trie.tokens[at]))
            at = int(parents[at])
        assert len(path) == depths[node]
        below = trie.tokens[trie.children(node)].tolist()
        assert below == sorted(set(below))
        assert all(parents[trie.children(node)] == node)
        if trie.items[node] >= 0:
            found[tuple(path[::-1])] = int(trie.items[node])
    assert found == {tuple(path): items.index(path) for path in items}
    ends = [sum(other == path[: len(other)] for other in found) for path in found]
    assert trie.nested(parents) == max(ends)


def test_the_trie_is_kept_for_its_file_and_vocabulary(tmp_path: Path) -> None:
    asked: list[str] = []

    def tokenize(text: str) -> list[int]:
        asked.append(text)
        return list(text.encode())

    items = Items(("ab", "b"), 0, "file")
    first, was_kept = kept_trie(items, tokenize, "words", tmp_path)
    assert (was_kept, asked) == (False, ["ab", "b"])
    again, was_kept = kept_trie(items, tokenize, "words", tmp_path)
    assert was_kept
    assert len(asked) == 2
    assert (again.tokens == first.tokens).all()
    for other in (Items(("ab", "c"), 0, "other"), items):
        assert kept_trie(other, tokenize, "other words", tmp_path)[1] is False
    assert not list(tmp_path.glob("*.part"))


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    items = Items(("ab", "b"), 0, "file")

    def tokenize(text: str) -> list[int]:
        return list(text.encode())

    trie, _ = kept_trie(items, tokenize, "words", tmp_path)
    (path,) = tmp_path.iterdir()
    assert trie.items.max() == 1
    np.savez(tmp_path / "wrong.npz", tokens=trie.tokens, items=trie.items + 1, first=trie.first)
    wrong = (tmp_path / "wrong.npz").read_bytes()
    for damage in (b"", b"PK", path.read_bytes()[:-40], wrong):
        path.write_bytes(damage)
        assert kept_trie(items, tokenize, "words", tmp_path)[1] is False
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    assert len(kept_trie(items, tokenize, "words", nowhere / "below")[0]) == len(trie)


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "items.txt"
    path.write_bytes("\ufeff b\r\nä\n\n b\n".encode())
    assert read_items(str(path)).texts == (" b", "ä")
    assert read_items(str(path)).n_double == 1
    assert read_items("yes, no,yes").texts == ("yes", " no")


@pytest.mark.parametrize(
    ("raw", "kind", "said"),
    [(None, NotFoundError, "No such file"), (b"", UsageError, "no items"), (b" \n\n", UsageError, "no items"),
     (b"\xff\xfe", UsageError, "not UTF-8")],
)  # fmt: skip
def test_a_file_without_items_is_refused(
    tmp_path: Path, raw: bytes | None, kind: type[LocalspecError], said: str
) -> None:
    path = tmp_path / "items.txt"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(kind, match=said):
        read_items(str(path))
    with pytest.raises(NotFoundError):
        read_items(str(tmp_path))
