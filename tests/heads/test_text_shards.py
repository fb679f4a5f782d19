"""Shards keep texts as they are; windows and vocabularies are cut from them."""

from pathlib import Path

import numpy as np
import pytest

from localspec.errors import IntegrityError
from localspec.heads.text_shards import Text, frequent_tokens, read_shard, read_shards, windows, write_shard


def text(length: int, seed: int, *, has_states: bool = True) -> Text:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 50, length).astype(np.int32)
    features = rng.standard_normal((length, 6)).astype(np.float16)
    states = rng.standard_normal((length, 2)).astype(np.float16) if has_states else None
    return Text(tokens, features, states, rng.random(length) < 0.5)


def is_same(one: Text, other: Text) -> bool:
    if one.states is None or other.states is None:
        states = one.states is other.states
    else:
        states = bool((one.states == other.states).all())
    assert one.own is not None
    assert other.own is not None
    arrays = ((one.tokens, other.tokens), (one.features, other.features), (one.own, other.own))
    return states and all(bool((ours == theirs).all()) for ours, theirs in arrays)


@pytest.mark.parametrize("has_states", [True, False])
def test_texts_come_back_as_they_were(tmp_path: Path, has_states: bool) -> None:
    written = [text(n, n, has_states=has_states) for n in (5, 1, 9)]
    write_shard(tmp_path / "a", written[:2])
    write_shard(tmp_path / "b", written[2:])
    read = read_shards([tmp_path / "a", tmp_path / "b"])
    assert [len(one) for one in read] == [5, 1, 9]
    assert all(map(is_same, read, written))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_text_that_does_not_say_whose_it_is_is_the_targets(tmp_path: Path) -> None:
    write_shard(tmp_path / "a", [Text(np.zeros(3, np.int32), np.zeros((3, 2), np.float16))])
    (read,) = read_shard(tmp_path / "a")
    assert read.own is not None
    assert read.own.tolist() == [True] * 3


def test_a_shard_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dimension"):
        write_shard(tmp_path / "a", [text(3, 0), Text(np.zeros(2, np.int32), np.zeros((2, 7), np.float16))])
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_shard_is_one_error(tmp_path: Path) -> None:
    for name in ("tokens.npy", "features.npy", "states.npy", "own.npy", "starts.npy"):
        folder = tmp_path / name
        write_shard(folder, [text(8, 0)])
        whole = (folder / name).read_bytes()
        for damaged in (whole[:40], whole[:-3], b"", b"\x93NUMPY"):
            (folder / name).write_bytes(damaged)
            with pytest.raises(IntegrityError, match="cannot be read") as caught:
                read_shard(folder)
            assert "Remove" in caught.value.hint
    write_shard(tmp_path / "a", [text(8, 0)])
    np.save(tmp_path / "a" / "tokens.npy", np.zeros(7, np.int32))
    with pytest.raises(IntegrityError, match="lengths"):
        read_shard(tmp_path / "a")


def test_windows_cover_every_text_once() -> None:
    texts = [text(n, n) for n in (10, 4, 1, 9)]
    assert [len(window) for window in windows(texts, 4)] == [4, 4, 2, 4, 4, 4]
    assert is_same(next(windows(texts, 4)), texts[0].part(0, 4))


def test_frequent_tokens_are_kept_beside_those_that_end_a_text() -> None:
    tokens = np.array([7, 7, 7, 3, 3, 9, 9, 1], np.int32)
    some = [Text(tokens[:3], np.zeros((3, 1), np.float16)), Text(tokens[3:], np.zeros((5, 1), np.float16))]
    assert frequent_tokens(some, 2, 12, [11]).tolist() == [3, 7, 11]
    assert frequent_tokens(some, 3, 12, [7]).tolist() == [3, 7, 9]
    assert frequent_tokens(some, 5, 12, []).tolist() == [0, 1, 3, 7, 9]
