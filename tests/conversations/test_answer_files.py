"""Earlier answers as files to copy from: those that are kept, the latest first, and none that was deleted."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.console import Console
from localspec.cli.live import Live
from localspec.cli.pair_engine import asking
from localspec.conversations import answer_files
from localspec.conversations.store import Store
from localspec.settings.folders import answers_folder, cache_folder, conversations_file, drop_texts, states_folder
from localspec.settings.jobs import Generate
from localspec.settings.request import Request, Speculation
from localspec.settings.values import corpus_source

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(answer_files, "PATIENCE", 60.0)


def said(store: Store, question: str, answer: str) -> str:
    """Begin a conversation with an answer; return its id."""
    home = store.create("pair").id
    asked = store.add_message(home, None, "user", question)
    open_one = store.add_message(home, asked.id, "assistant")
    store.append_text(open_one.id, answer)
    store.finish(open_one.id, "eos")
    return home


def written(began: float = 1e12) -> dict[str, str]:
    """Return the texts of the files by conversation, after they were brought up to date."""
    answer_files.bring_up_to_date((corpus_source("answers"),), began)
    return {file.stem: file.read_text("utf-8") for file in answers_folder().glob("*")}


def test_answers_alone_are_written_for_their_owner_alone() -> None:
    with Store.open(conversations_file()) as store, Store.open(None) as unsaved:
        first = said(store, "a question", "the king\nlaughed")
        second = said(store, "another", "the queen 👑")
        said(unsaved, "a secret", "nobody may know")
        going = store.create("pair").id
        store.append_text(store.add_message(going, None, "assistant").id, "half of it")
        assert written() == {first: "the king\nlaughed", second: "the queen 👑", going: ""}
    assert {file.stat().st_mode & 0o077 for file in (answers_folder(), *answers_folder().glob("*"))} == {0}


def test_as_much_is_kept_as_the_manual_says() -> None:
    manual = " ".join((ROOT / "docs" / "configuration.md").read_text("utf-8").split())
    assert f"the latest conversations, {answer_files.MOST_BYTES / 2**20:g} MiB in all" in manual


def test_what_takes_longer_keeps_neither_the_answer_nor_the_end_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_files, "PATIENCE", 0.0)
    begun: list[threading.Thread] = []
    has_begun, is_over = threading.Event(), threading.Event()

    def write(*_: object) -> None:
        begun.append(threading.current_thread())
        has_begun.set()
        is_over.wait(60)

    monkeypatch.setattr(answer_files, "_write", write)
    answer_files.bring_up_to_date((corpus_source("answers"),), 1e12)
    assert has_begun.wait(60)
    assert [(thread.daemon, thread.is_alive()) for thread in begun] == [(True, True)]
    is_over.set()


def test_where_nothing_was_said_nothing_is_dropped() -> None:
    state = states_folder() / "a.state"
    state.parent.mkdir(parents=True)
    state.touch()
    with Store.open(conversations_file()):
        assert written() == {}
    assert state.exists()


def test_nothing_is_written_unless_it_is_asked_for() -> None:
    with Store.open(conversations_file()) as store:
        said(store, "a question", "an answer")
    answer_files.bring_up_to_date(("/a/project",), 1e12)
    assert not answers_folder().exists()


def test_a_race_has_them_too() -> None:
    with Store.open(conversations_file()) as store:
        name = said(store, "a question", "an answer")
    worker: Any = type("Idle", (), {"start": lambda _, job: iter(()), "cancel": lambda _: None})()
    asked = Request(speculation=Speculation(corpus=(corpus_source("answers"),)))
    console = Console(quiet=True)
    with asking(worker, Live(console), console) as engine:
        assert not answers_folder().exists()
        engine.start(Generate(asked))
        assert [file.stem for file in answers_folder().glob("*")] == [name]


def test_a_file_is_written_again_only_where_its_conversation_went_on() -> None:
    now = [1000.0]
    with Store.open(conversations_file(), clock=lambda: now[0]) as store:
        old, new = said(store, "one", "first"), said(store, "two", "second")
        written()
        (answers_folder() / f"{old}.txt").write_text("as it was")
        os.utime(answers_folder() / f"{old}.txt", (1000.0, 1000.0))
        now[0] = 2000.0
        more = store.add_message(new, store.get(new).leaf, "assistant")
        store.append_text(more.id, "third")
        store.finish(more.id, "eos")
        later = said(store, "three", "fourth")
        assert written(began=1500.0) == {old: "as it was", new: "second"}, "what this process said is in its context"
        assert written(began=2000.0) == {old: "as it was", new: "second"}, "from the first moment on"
        assert written() == {old: "as it was", new: "second\n\nthird", later: "fourth"}
        assert (answers_folder() / f"{new}.txt").stat().st_mtime == 2000.0
        for seconds, text in ((1000.0005, "as it was"), (1000.0015, "first")):
            os.utime(answers_folder() / f"{old}.txt", (seconds, seconds))
            assert written()[old] == text


def test_the_latest_are_kept_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    with Store.open(conversations_file(), clock=lambda: now[0]) as store:
        names = []
        for n in range(4):
            now[0] += 1.0
            names.append(said(store, "q", f"answer {n}"))
        written()
        monkeypatch.setattr(answer_files, "MOST_BYTES", 2 * len("answer 0"))
        assert sorted(written()) == sorted(names[2:])


def test_what_is_deleted_is_copied_from_no_more() -> None:
    with Store.open(conversations_file()) as store:
        gone, kept = said(store, "one", "a secret"), said(store, "two", "an answer")
        written()
        index = cache_folder("corpus") / "of-both.npy"
        index.parent.mkdir(parents=True)
        index.write_bytes(b"a secret")
        store.delete(gone)
        assert not index.exists()
        assert not list(answers_folder().glob("*"))
        assert written() == {kept: "an answer"}
        store.undelete(gone)
        assert written() == {kept: "an answer", gone: "a secret"}
        for file in answers_folder().glob("*"):
            file.unlink()
        index.write_bytes(b"a secret")
        store.delete(gone)
        assert not index.exists(), "the index of files that are gone has their texts"


@pytest.mark.parametrize("now", [False, True])
def test_an_answer_that_begins_while_one_is_deleted_does_not_write_it_again(
    monkeypatch: pytest.MonkeyPatch, now: bool
) -> None:
    """Its files are brought up to date at the worst moment, when the old ones have just gone."""
    with Store.open(conversations_file()) as store:
        gone = said(store, "one", "a secret")
        written()

        def dropped() -> None:
            drop_texts()
            assert written() == {}

        monkeypatch.setattr("localspec.conversations.store.drop_texts", dropped)
        store.delete(gone, now=now)


def test_a_damaged_file_of_conversations_ends_nothing() -> None:
    conversations_file().parent.mkdir(parents=True)
    conversations_file().write_bytes(b"no database at all" * 100)
    assert written() == {}


def test_a_file_that_is_damaged_within_leaves_what_was_written() -> None:
    with Store.open(conversations_file()) as store:
        name = said(store, "one", "first")
        written()
        said(store, "two", "long " * 10_000)
    data = conversations_file().read_bytes()
    conversations_file().write_bytes(data[:-8192] + b"\xff" * 8192)
    answer_files._write(conversations_file(), answers_folder(), 1e12)
    assert [file.stem for file in answers_folder().glob("*")] == [name]


def test_conversations_that_are_gone_or_damaged_are_copied_from_no_more() -> None:
    for end in (lambda: conversations_file().write_bytes(b"no database at all" * 100), conversations_file().unlink):
        with Store.open(conversations_file()) as store:
            said(store, "one", "a secret")
        assert written()
        index = cache_folder("corpus") / "of-it.npy"
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_bytes(b"a secret")
        for file in conversations_file().parent.glob(f"{conversations_file().name}-*"):
            file.unlink()
        end()
        assert written() == {}
        assert not index.exists()
        conversations_file().unlink(missing_ok=True)
