"""Drafts copied from files: the same text in fewer passes, indexed once, and read again where a file changed."""

import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.engine import events
from localspec.session import corpus as session_corpus
from localspec.session.corpus import groups, listed
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.folders import answers_folder
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.integration import pair

ASKED = Request(prompt="Once upon a time there was a king", max_tokens=80, sampling=Sampling(temperature=0.0))


def never() -> bool:
    return False


@pytest.fixture(scope="module")
def session() -> Iterator[LoadedPair]:
    found, _ = pair.load_pair(LoadSettings(str(pair.TARGET), kv_type="f32", flash_attn="off", threads=1))
    yield found
    found.close()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def answered(session: LoadedPair, method: str, *corpus: Path) -> tuple[str, int, list[str]]:
    """Return the text of an answer, its passes and its warnings; all of the corpus is read first."""
    names = tuple(map(str, corpus))
    session.corpora.corpus(names, session.target, never, waits=True)
    asked = replace(ASKED, speculation=Speculation(method=method, corpus=names), cold=True)
    told = list(session.answer(asked))
    passes = [event for event in told if isinstance(event, events.Committed)]
    finished = next(event for event in told if isinstance(event, events.Finished))
    warnings = [event.message for event in told if isinstance(event, events.Warned)]
    return "".join(one.text for one in passes) + finished.tail, len(passes), warnings


@pytest.mark.parametrize("method", ["copy", "auto"])
def test_files_save_passes_and_change_no_text(session: LoadedPair, tmp_path: Path, method: str) -> None:
    text, n_plain, _ = answered(session, "plain")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "king.txt").write_text(ASKED.prompt + text)
    (folder / "other.txt").write_text("A dragon slept on gold. " * 40)
    found, n_passes, warnings = answered(session, method, folder)
    assert (found, warnings) == (text, [])
    if method == "copy":  # auto drafts by what a pass costs on this machine
        assert n_passes < n_plain / 4
        assert answered(session, method)[1] > 2 * n_passes, "the next answer knows nothing of the files"


def test_what_an_answer_missed_of_its_corpus_is_told(
    session: LoadedPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(100))
    assert answered(session, "copy", tmp_path / "a.txt")[2] == ["the corpus has no text"]
    (tmp_path / "b.txt").write_text("Some text that is long enough.")
    may_read = threading.Event()
    tokens = session_corpus._Job._tokens
    monkeypatch.setattr(session_corpus._Job, "_tokens", lambda job, one: may_read.wait(60) and tokens(job, one))
    asked = replace(ASKED, max_tokens=2, speculation=Speculation(method="copy", corpus=(str(tmp_path / "b.txt"),)))
    told = [event.message for event in session.answer(asked) if isinstance(event, events.Warned)]
    may_read.set()
    assert told == ["the corpus was not read to its end: the next answer has more of it than 0 files"]
    assert answered(session, "copy", tmp_path / "b.txt")[2] == []


def test_a_request_copies_from_its_own_files_alone(session: LoadedPair, tmp_path: Path) -> None:
    names = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for name in names:
        name.write_text("some text that is long enough")
    reader = session_corpus.CorpusReader()
    first, again, other = (
        reader.corpus((str(name),), session.target, never, waits=True) for name in (names[0], names[0], names[1])
    )
    assert first is again, "what a drafter holds stays of use"
    assert other is not first
    assert [one.n_files for one in (first, other) if one is not None] == [1, 1]


def test_a_cancel_ends_the_wait_for_a_corpus(session: LoadedPair, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")
    reader = session_corpus.CorpusReader()
    assert reader.corpus((str(tmp_path),), session.target, lambda: True, waits=True) is not None
    reader.close()
    assert reader.corpus((), session.target, never) is None


def test_a_corpus_that_nothing_copies_from_is_told(session: LoadedPair, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")
    for method in ("plain", "suffix"):
        _, _, warnings = answered(session, method, tmp_path / "a.txt")
        assert warnings == [f"the corpus has no effect: --method {method} does not copy from other files"]


def test_files_are_indexed_once_and_again_where_one_changed(
    session: LoadedPair, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    for n in range(3):
        (folder / f"{n}.txt").write_text(f"File number {n} of three. " * 20)
    read: list[str] = []
    tokens = session_corpus._Job._tokens
    monkeypatch.setattr(session_corpus._Job, "_tokens", lambda job, one: read.append(one.path.name) or tokens(job, one))
    monkeypatch.setattr(session_corpus, "GROUP", (1, 1))
    reader = session_corpus.CorpusReader()

    def indexed() -> int:
        reader.close()
        found = session_corpus.CorpusReader().corpus((str(folder),), session.target, never, waits=True)
        again = reader.corpus((str(folder),), session.target, never, waits=True)
        assert found is not None
        assert again is not None
        assert found.n_tokens == again.n_tokens
        return found.n_files

    assert indexed() == 3
    assert sorted(read) == ["0.txt", "1.txt", "2.txt"]
    (folder / "1.txt").write_text("Something else.")
    (folder / "2.txt").unlink()
    read.clear()
    assert indexed() == 2
    assert read == ["1.txt"]
    kept = list((home / "cache" / "corpus").glob("*.npy"))
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in kept)
    read.clear()
    for file in kept:
        cut = file.read_bytes()[:-20]
        file.unlink()
        file.write_bytes(cut)
    assert indexed() == 2, "a damaged index is made again"
    assert sorted(read) == ["0.txt", "1.txt"]


def test_the_least_used_indices_go_first(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / "cache" / "corpus"
    segment = session_corpus.CorpusSegment.of([[1, 2, 3, 4, 5]])
    for n in range(3):
        session_corpus._keep(folder / f"{n}.npy", segment)
        os.utime(folder / f"{n}.npy", (n, n))
    size = (folder / "0.npy").stat().st_size
    monkeypatch.setattr(session_corpus, "LARGEST_KEPT", 3 * size)
    assert session_corpus._stored_segment(folder / "0.npy") is not None
    session_corpus._keep(folder / "new.npy", segment)
    assert sorted(file.name for file in folder.iterdir()) == ["0.npy", "2.npy", "new.npy"]


def test_ignored_hidden_and_long_files_are_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name in ("a.py", "b.log", ".hidden.py", "empty.py", "long.py", ".git/c.py", "sub/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("" if name == "empty.py" else "x = 1\n" * (30 if name == "long.py" else 3))
    (tmp_path / ".gitignore").write_text("*.log\n")
    monkeypatch.setattr(session_corpus, "LARGEST_FILE", 100)
    assert [one.path.name for one in listed([str(tmp_path)])] == ["a.py", "d.py"]
    assert [one.path.name for one in listed([str(tmp_path / "b.log")])] == ["b.log"], "it was named"
    monkeypatch.setattr(session_corpus, "LARGEST", 20)
    assert [one.path.name for one in listed([str(tmp_path)])] == ["a.py"]


def test_earlier_answers_are_read_where_git_ignores_their_folder(home: Path) -> None:
    answers_folder().mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(home)], check=True)
    (home / ".gitignore").write_text("*\n")
    (answers_folder() / "a.txt").write_text("an answer")
    (answers_folder() / ".b.txt.1").write_text("half of one")
    assert [one.path.name for one in listed([str(answers_folder())])] == ["a.txt"]


def test_a_longer_file_moves_no_other_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_corpus, "GROUP", (10, 1000))
    monkeypatch.setattr(session_corpus, "GROUP_ENDS", 128)
    for n in range(60):
        (tmp_path / f"{n:02}.txt").write_text("text " * (2 + n % 3))
    before = [[one.path for one in group] for group in groups(listed([str(tmp_path)]))]
    (tmp_path / "05.txt").write_text("text " * 90)
    after = [[one.path for one in group] for group in groups(listed([str(tmp_path)]))]
    assert len(before) > 6
    assert sum(group not in before for group in after) <= 2
