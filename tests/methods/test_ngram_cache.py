"""The n-gram cache: the argmax of counts, what it learns from, and the file between runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pytest

from localspec.engine.protocols import DraftState
from localspec.errors import IncompatibleError, IntegrityError, LocalspecError, UsageError
from localspec.methods import ngram_cache as ngram_file
from localspec.methods.ngram_cache import HEADER, MAGIC, NgramFile
from tests.methods.lookups import LookupContract, drafted, propose, replay

V = 100


class TestNgramCache(LookupContract):
    name: ClassVar[str] = "ngram-cache"

    def test_the_most_frequent_continuation_wins(self) -> None:
        """Not the first and not the last one; of equally frequent ones the latest."""
        assert drafted(self.fresh(n=1), [1, 5, 1, 6, 1, 6, 1, 7, 1], 1) == [6]
        assert drafted(self.fresh(n=1), [1, 5, 1, 6, 1], 1) == [6]
        assert drafted(self.fresh(n=1), [1, 5, 1, 6, 1, 5, 1], 1) == [5]

    def test_the_longest_known_context_wins(self) -> None:
        """Two tokens that were seen once say more than one that was seen often; single tokens count, too."""
        text = [1, 2, 9, 3, 2, 8, 3, 2, 8, 4, 1, 2]
        assert drafted(self.fresh(n=2), text, 1) == [9]
        assert drafted(self.fresh(n=1), text, 1) == [8]
        assert drafted(self.fresh(), [1, 2, 3, 1], 1) == [2]

    def test_the_draft_is_a_context_too(self) -> None:
        """Each look-up sees the tokens drafted before it."""
        assert drafted(self.fresh(n=2), [1, 2, 3, 1, 4, 5, 6, 2, 7, 1, 4], 3) == [5, 6, 2]

    def test_what_to_do_with_an_unknown_context(self) -> None:
        """The draft ends; or goes on with the most frequent token."""
        text = [1, 2, 2, 3]
        assert drafted(self.fresh(), text, 3) == []
        assert drafted(self.fresh(stop_if_unknown=False), text, 3) == [2, 3, 2]
        assert drafted(self.fresh(stop_if_unknown=False), [7], 3) == []

    def test_counts_outlive_the_text(self) -> None:
        """A regenerated answer finds what the last one said, and the shared part is not counted twice."""
        drafter = self.fresh()
        propose(drafter, [1, 2, 3, 4, 5])
        assert drafted(drafter, [1, 2], 3) == [3, 4, 5]
        asked: list[DraftState] = []
        propose(drafter, [1, 2, 6, 1, 2], go_on=lambda state: bool(asked.append(state)))
        assert asked[0].dist.ids.tolist() == [3, 6]
        assert asked[0].dist.probs.tolist() == [0.5, 0.5]

    def test_no_file_unless_it_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """By default nothing of a text is kept anywhere."""
        monkeypatch.chdir(tmp_path)
        replay(self.fresh(), [1, 2, 3] * 20, 10, 4)
        assert list(tmp_path.iterdir()) == []

    def test_the_next_run_knows_the_answers_of_the_last(self, tmp_path: Path) -> None:
        """Every generated token is in the file when the run ends, however it ends; prompts are not."""
        path = tmp_path / "cache"
        truth = [*range(50), *range(20, 30), *range(60, 80)]
        steps = replay(self.fresh(file=str(path)), truth, 40, 4)
        assert max(len(step.tokens) for step in steps) > 1
        assert NgramFile(path, 4096).texts == [truth[40:]]
        later = self.fresh(file=str(path))
        assert drafted(later, [62, 63], 3) == [64, 65, 66]
        assert drafted(later, [0, 1], 3) == []

    def test_a_home_folder_in_the_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """`~` is the user's own, since the shell does not expand it after `=`."""
        monkeypatch.setenv("HOME", str(tmp_path))
        self.fresh(file="~/cache")
        assert (tmp_path / "cache").exists()


def saved(path: Path, *texts: list[int]) -> NgramFile:
    file = NgramFile(path, V)
    for text in texts:
        file.begin(text[0])
        file.append(text[1:])
    return file


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    """It holds what was generated."""
    saved(tmp_path / "cache", [1, 2, 3])
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o600


def test_texts_come_back_in_order(tmp_path: Path) -> None:
    """Also those of several runs, and of two at once."""
    path = tmp_path / "cache"
    saved(path, [1, 2, 3], [4])
    saved(path, [5, 6])
    assert NgramFile(path, V).texts == [[1, 2, 3], [4], [5, 6]]


@pytest.mark.parametrize("torn", range(1, 12))
def test_a_torn_end_is_dropped(tmp_path: Path, torn: int) -> None:
    """A run that was killed while it wrote costs a token or a few, and what is appended next is read right."""
    path = tmp_path / "cache"
    saved(path, [1, 2, 3, 4])
    path.write_bytes(path.read_bytes()[:-torn])
    whole = [1, 2, 3, 4][: 4 - (torn + 3) // 4]
    assert NgramFile(path, V).texts == [whole]
    saved(path, [7, 8])
    assert NgramFile(path, V).texts == [whole, [7, 8]]


def test_an_old_file_is_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past twice what is kept, the latest tokens stay."""
    monkeypatch.setattr(ngram_file, "KEPT", 10)
    path = tmp_path / "cache"
    saved(path, list(range(19)))
    assert NgramFile(path, V).texts == [list(range(19))]
    saved(path, [50])
    assert NgramFile(path, V).texts == [[*range(11, 19)], [50]]
    assert path.stat().st_size == HEADER + 4 * 10


HEAD = MAGIC + V.to_bytes(4, "little")


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"", IntegrityError, "not an n-gram cache"),
        (MAGIC[:-3], IntegrityError, "not an n-gram cache"),
        (b"GGUF" + bytes(100), IntegrityError, "not an n-gram cache"),
        (MAGIC + b"\x07", IncompatibleError, "7 tokens"),
        (MAGIC + (128).to_bytes(4, "little"), IncompatibleError, "128 tokens, and this one has 100"),
        (HEAD + (100).to_bytes(4, "little"), IntegrityError, "damaged"),
        (HEAD + b"\xfe\xff\xff\xff", IntegrityError, "damaged"),
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(
    tmp_path: Path, content: bytes, error: type[LocalspecError], says: str
) -> None:
    """One clear error that names another file to give."""
    path = tmp_path / "cache"
    path.write_bytes(content)
    with pytest.raises(error, match=says) as caught:
        NgramFile(path, V)
    assert caught.value.hint.startswith("-o file=")
    assert path.read_bytes() == content


def test_places_that_cannot_hold_a_file(tmp_path: Path) -> None:
    """A folder, and a folder that does not exist: told before anything is generated."""
    with pytest.raises(IntegrityError, match="is not a file"):
        NgramFile(tmp_path, V)
    with pytest.raises(UsageError, match="No such file or directory"):
        NgramFile(tmp_path / "missing" / "cache", V)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_write_ends_the_saving_and_not_the_answer(tmp_path: Path) -> None:
    """A file that is gone from under the run does not come back without its header."""
    path = tmp_path / "cache"
    file = saved(path, [1, 2])
    path.unlink()
    file.append([3])
    assert not path.exists()
    saved(path, [5])
    file.append([4])
    assert NgramFile(path, V).texts == [[5]]


def test_a_failed_creation_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old file stays when the new one cannot take its place."""
    path = tmp_path / "cache"
    saved(path, [1, 2, 3])
    torn = path.read_bytes()[:-1]
    path.write_bytes(torn)

    def refuse(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UsageError, match="No space left"):
        NgramFile(path, V)
    assert [entry.name for entry in tmp_path.iterdir()] == ["cache"]
    assert path.read_bytes() == torn
