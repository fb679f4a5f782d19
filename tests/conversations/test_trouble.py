"""Files that must not be touched, files that cannot be written, several processes, and processes that are killed."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from localspec.conversations import answer_stream, database, rows, search
from localspec.conversations.store import Store
from localspec.errors import IncompatibleError, IntegrityError, LocalspecError, ResourceError
from tests.cli.harness import wait_for

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.db"


def python(code: str, *args: object, stdin: int | None = None) -> subprocess.Popen[bytes]:
    """Run `code` in a process of its own."""
    start = "import sys, time\nfrom pathlib import Path\nfrom localspec.conversations.store import Store\n"
    words = [sys.executable, "-c", start + code, *map(str, args)]
    return subprocess.Popen(words, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE)


def refuse(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def with_one_message(path: Path) -> str:
    with Store.open(path) as store:
        home = store.create("p").id
        store.add_message(home, None, "user", "one")
    return home


def damage(path: Path) -> None:
    with_one_message(path)
    data = bytearray(path.read_bytes())
    data[4096 + 100 :] = b"\xff" * (len(data) - 4096 - 100)
    path.write_bytes(data)


def foreign(version: int, *tables: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with sqlite3.connect(path) as db:
            for table in tables:
                db.execute(f"CREATE TABLE {table} (name)")
            db.execute(f"PRAGMA user_version = {version}")
        db.close()

    return make


def make_newer(path: Path) -> None:
    with_one_message(path)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {database.VERSION + 1}")
    db.close()


@pytest.mark.parametrize(
    ("prepare", "error", "words"),
    [
        (lambda path: path.write_bytes(b"not a database " * 100), IntegrityError, "file is not a database"),
        (damage, IntegrityError, "malformed"),
        (foreign(0, "recipes"), IntegrityError, "belongs to another program"),
        (foreign(0, "conversation", "message"), IntegrityError, "belongs to another program"),
        (foreign(1, "recipes"), IntegrityError, "belongs to another program"),
        (foreign(1, "message"), IntegrityError, "belongs to another program"),
        (foreign(-1, "recipes"), IntegrityError, "belongs to another program"),
        (foreign(99, "recipes"), IntegrityError, "belongs to another program"),
        (foreign(1), IntegrityError, "belongs to another program"),
        (foreign(-1), IntegrityError, "belongs to another program"),
        (make_newer, IncompatibleError, "newer localspec"),
    ],
    ids=[
        "no database",
        "damaged",
        "another's",
        "another's of our names",
        "another's first version",
        "another's message",
        "another's below 0",
        "another's above ours",
        "empty, of a version",
        "empty, below 0",
        "newer",
    ],
)
def test_a_file_that_must_not_be_touched(
    path: Path, prepare: Callable[[Path], None], error: type[LocalspecError], words: str
) -> None:
    prepare(path)
    before = path.read_bytes()
    with pytest.raises(error, match=words) as caught, Store.open(path) as store:
        store.path(1)
    assert str(path) in caught.value.message
    assert "--no-save" in caught.value.hint
    assert path.read_bytes() == before
    assert prepare is damage or list(path.parent.iterdir()) == [path]


def test_an_empty_file_is_begun(path: Path) -> None:
    path.touch()
    assert with_one_message(path)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("a folder", "it is not a regular file"),
        ("below a file", "File exists"),
        ("a device", "it is not a regular file"),
        ("a pipe", "it is not a regular file"),
    ],
)
def test_a_place_that_holds_no_file_costs_the_saving_alone(tmp_path: Path, what: str, why: str) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    places = {
        "a folder": tmp_path,
        "below a file": tmp_path / "file" / "x",
        "a device": Path("/dev/full"),
        "a pipe": tmp_path / "pipe",
    }
    with Store.open(places[what]) as store:
        home = store.create("p").id
        store.add_message(home, None, "user", "one")
        assert len(store.messages(home)) == 1
        assert not store.is_saved
        trouble = store.trouble()
        assert isinstance(trouble, ResourceError)
        assert trouble.message == f"conversations are not saved: {places[what]}: {why}"
        assert trouble.hint == "/save FILE keeps this one"
        assert store.trouble() is None, "it is told once"


def test_a_file_that_cannot_be_written_can_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder is another's too; root may write everything, so the system's answer is put in its mouth."""
    home = with_one_message(path)

    monkeypatch.setattr(database, "_prepare", refuse)
    with Store.open(path) as store:
        assert not store.is_saved
        assert [message.text for message in store.messages(home)] == ["one"]
        store.add_message(home, None, "user", "two")
        assert "Permission denied" in str(store.trouble())
    monkeypatch.undo()
    with Store.open(path) as store:
        assert len(store.messages(home)) == 1


def test_a_file_that_can_be_neither_written_nor_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.touch()
    monkeypatch.setattr(database, "_prepare", refuse)
    with Store.open(path) as store:
        home = store.create("p").id
        store.add_message(home, None, "user", "one")
        assert [message.text for message in store.messages(home)] == ["one"]
        assert not store.is_saved


def test_the_log_waits_for_others_and_for_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    with_one_message(path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    monkeypatch.setattr(database.time, "sleep", lambda _seconds: pytest.fail("nothing is waited for"))
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        database._use_write_ahead_log(db)
    db.close()
    db, other = (sqlite3.connect(path, timeout=0, isolation_level=None) for _ in range(2))
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(database, "PATIENCE", -1.0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        database._use_write_ahead_log(db)
    monkeypatch.setattr(database, "PATIENCE", 5.0)
    monkeypatch.setattr(database.time, "sleep", lambda seconds: waited.append(seconds) or other.execute("ROLLBACK"))
    database._use_write_ahead_log(db)
    assert waited == [0.01]
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()
    other.close()


def test_a_file_is_opened_while_another_process_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open what needs no change takes no lock, nor does reading where no text is on its way."""
    home = with_one_message(path)
    monkeypatch.setattr(database, "PATIENCE", 0.0)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with Store.open(path) as store:
            asked: list[str] = []
            store._file._db.set_trace_callback(asked.append)
            assert len(store.messages(home)) == 1
            assert "BEGIN IMMEDIATE" not in asked
            store._file._db.set_trace_callback(None)
            assert store.is_saved
            other.execute("ROLLBACK")
    other.close()


def test_how_the_file_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (database.PATIENCE, answer_stream.INTERVAL, search._HELD) == (5.0, 0.5, 0.5)
    monkeypatch.setattr(database, "PATIENCE", 0.25)
    with Store.open(path) as store:
        db = store._file._db
        assert [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("busy_timeout", "foreign_keys")] == [250, 1]
        assert db.isolation_level is None
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        db.execute("SELECT 1")


def test_a_file_is_read_where_what_its_readers_share_cannot_be_made(path: Path) -> None:
    with_one_message(path)
    path.with_name(f"{path.name}-shm").mkdir()
    db = database.read_only(path)
    assert db.execute("SELECT text FROM message").fetchone()[0] == "one"
    db.close()


def test_errors_are_told_in_words_but_for_our_own() -> None:
    for error, reason in ((PermissionError(13, "Permission denied"), "Permission denied"), (OSError("odd"), "odd")):
        with pytest.raises(database.Unsaved) as caught, database.translated(Path("x")):
            raise error
        assert caught.value.message == f"conversations are not saved: x: {reason}"
        assert not caught.value.is_busy
    with pytest.raises(sqlite3.ProgrammingError), database.translated(Path("x")):
        raise sqlite3.ProgrammingError("a mistake")


class Ending:
    """A connection whose COMMIT ends with an error, after which it is in a transaction or not."""

    def __init__(self, error: BaseException, *, in_transaction: bool) -> None:
        self.in_transaction = in_transaction
        self._error = error
        self.done: list[str] = []

    def execute(self, statement: str) -> None:
        self.done.append(statement)
        if statement == "COMMIT":
            raise self._error


@pytest.mark.parametrize(
    ("error", "in_transaction", "is_committed"),
    [
        (KeyboardInterrupt(), False, True),
        (KeyboardInterrupt(), True, False),
        (sqlite3.OperationalError("full"), False, False),  # SQLite has rolled back itself
    ],
)
def test_what_an_error_at_the_commit_means(error: BaseException, in_transaction: bool, is_committed: bool) -> None:
    db = Ending(error, in_transaction=in_transaction)
    told: list[str] = []
    with pytest.raises(type(error)):
        database.transact(cast("sqlite3.Connection", db), lambda _db: None, lambda: told.append("committed"))
    assert bool(told) is is_committed
    assert db.done == ["BEGIN IMMEDIATE", "COMMIT", *["ROLLBACK"] * in_transaction]


def test_an_error_that_is_not_the_file_s_own_leaves_it_and_the_text(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise IntegrityError("damaged", hint="")

    with Store.open(path) as store:
        answer = store.add_message(store.create("p").id, None, "assistant")
        with monkeypatch.context() as patch:
            patch.setattr(store._file, "_try", fail)
            store.append_text(answer.id, "so far")
            store._file._flush_soon()
        assert store.is_saved
        assert store.message(answer.id).text == "so far"
    store.append_text(answer.id, "too late")
    store._file._flush_soon()
    assert store._file._stream.take() == {answer.id: "too late"}, "a file that was closed is written no more"
    store._file._stream.close()


def test_a_full_disk_costs_the_saving_and_no_word(path: Path) -> None:
    """The system refuses to let the file grow; everything that was said is still there, and can be gone on with."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, resource.RLIM_INFINITY))
with Store.open(Path(sys.argv[1])) as store:
    home, parent, said = store.create("p").id, None, []
    for i in range(100):
        asked = store.add_message(home, parent, "user", f"question {i} " + "long " * 300)
        answer = store.add_message(home, asked.id, "assistant")
        for word in ("answer", " ", str(i)):
            store.append_text(answer.id, word)
        store.finish(answer.id, "stop")
        parent = answer.id
    trouble = store.trouble()
    texts = [message.text for message in store.path(parent) if message.role == "assistant"]
    print(store.is_saved, texts == [f"answer {i}" for i in range(100)], trouble is not None)
"""
    done = python(code, path)
    assert done.communicate(timeout=60)[0].decode().split() == ["False", "True", "True"]
    with Store.open(path) as store:
        (home,) = store.conversations()
        n = home.n_messages
        kept = [message.text for message in store.messages(home.id)]
    assert 0 < n < 200
    assert all(kept[:-1])


def test_text_that_comes_on_a_full_disk_stays(path: Path) -> None:
    """Also if it is the clock that writes it, and nobody calls."""
    with Store.open(path) as store:
        home = store.create("p").id
        message = store.add_message(home, None, "assistant")
        pages = store._file._db.execute("PRAGMA page_count").fetchone()[0]
        store._file._db.execute(f"PRAGMA max_page_count = {pages}")
        store.append_text(message.id, "long " * 10_000)
        wait_for(lambda: not store.is_saved)  # the clock finds out
        store.append_text(message.id, "end")
        assert store.finish(message.id, "stop").text == "long " * 10_000 + "end"
        assert "full" in str(store.trouble())


def test_text_waits_for_another_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is held for a moment is written later, and the store stays with it."""
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    with Store.open(path) as store:
        home = store.create("p").id
        message = store.add_message(home, None, "assistant")
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            store.append_text(message.id, "so")
            time.sleep(1.0)
            store.append_text(message.id, " far")
            other.execute("COMMIT")
        other.close()
        assert store.finish(message.id, "stop").text == "so far"
        assert store.is_saved
        assert store.trouble() is None


def test_a_file_that_is_held_for_long_costs_the_saving(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    with Store.open(path) as store, sqlite3.connect(path, isolation_level=None) as other:
        home = store.create("p").id
        other.execute("BEGIN IMMEDIATE")
        store.add_message(home, None, "user", "one")
        assert len(store.messages(home)) == 1
        assert not store.is_saved
        assert "locked" in str(store.trouble())
        other.execute("ROLLBACK")
    other.close()


def test_processes_share_the_file(path: Path) -> None:
    code = """
with Store.open(Path(sys.argv[1])) as store:
    own = store.create("p").id
    for home in (own, *[each.id for each in store.conversations() if each.title == "all"]):
        parent = None
        for i in range(15):
            asked = store.add_message(home, parent, "user", f"{i}")
            answer = store.add_message(home, asked.id, "assistant")
            store.append_text(answer.id, f"answer {i}")
            parent = store.finish(answer.id, "stop").id
        assert len(store.path(parent)) == 30
        store.search("answer")
    assert store.is_saved and store.trouble() is None
"""
    with Store.open(path) as store:
        store.rename(store.create("p").id, "all")
    processes = [python(code, path) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    with Store.open(path) as store:
        assert store._file._db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert sorted(each.n_messages for each in store.conversations()) == [30] * 4 + [120]
        assert len(store.search("answer", limit=1000)) == 2 * 4 * 15


def test_processes_make_the_file_at_once(path: Path) -> None:
    """None takes another's half-made file for a stranger's: forty files, each opened at one moment by four."""
    begin = time.time() + 2
    code = f"""
for n in range(40):
    time.sleep(max(0, {begin} + n / 20 - time.time()))
    with Store.open(Path(f"{{sys.argv[1]}}.{{n}}")) as store:
        store.create("p")
        assert store.is_saved
"""
    processes = [python(code, path) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    for n in range(40):
        with Store.open(Path(f"{path}.{n}")) as store:
            assert len(store.conversations()) == 4


def test_a_killed_process_loses_what_came_since_the_last_half_second_alone(path: Path) -> None:
    """Time goes on here as the test says: what came up to then is in the file."""
    code = """
import threading
from types import SimpleNamespace
from localspec.conversations import answer_stream

now, written = 100.0, threading.Event()
answer_stream.time = SimpleNamespace(monotonic=lambda: now)
store = Store.open(Path(sys.argv[1]))
stream = store._file._stream
write = stream._write
stream._write = lambda: (write(), written.set())
answer = store.add_message(store.create("p").id, None, "assistant").id
for text in ("Once ", "upon "):
    store.append_text(answer, text)
    assert written.wait(60)
    written.clear()
    now += answer_stream.INTERVAL
now -= 0.001 + answer_stream.INTERVAL
answer_stream.threading = SimpleNamespace(Timer=lambda *_: SimpleNamespace(start=lambda: None))  # which is not due yet
store.append_text(answer, "a time ")
print("told", flush=True)
input()
"""
    with python(code, path, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"told\n"
        process.kill()
    with Store.open(path) as store:
        (home,) = store.conversations()
        (message,) = store.messages(home.id)
    assert (message.finish, message.text) == ("interrupted", "Once upon ")


def test_kills_at_any_time_leave_what_was_said(path: Path) -> None:
    """What a process had reported as finished is there after every kill, and the file is sound."""
    code = """
with Store.open(Path(sys.argv[1])) as store:
    home, parent = store.create("p").id, None
    while True:
        parent = store.add_message(home, parent, "user", "question " * 50).id
        answer = store.add_message(home, parent, "assistant")
        for _ in range(5):
            store.append_text(answer.id, "answer " * 20)
        parent = store.finish(answer.id, "stop", {"n": 1}).id
        print(parent, flush=True)
"""
    for tenths in (0, 1, 1.5, 2, 2.5, 3, 3.5, 4):
        process = python(code, path)
        assert process.stdout is not None
        first = process.stdout.readline() if tenths else b""  # once it has begun, however long that took
        time.sleep(0.05 + tenths / 10)
        process.send_signal(signal.SIGKILL)
        finished = [int(line) for line in [first, *process.stdout] if line.endswith(b"\n")]
        process.wait(60)
        with Store.open(path) as store:
            assert store._file._db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            assert store._file._db.execute("PRAGMA foreign_key_check").fetchall() == []
            assert all(store.message(each).text == "answer " * 100 for each in finished)
    assert finished


def test_a_migration_is_done_once_and_keeps_everything(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = with_one_message(path)
    added = (*database.MIGRATIONS, ("ALTER TABLE conversation ADD COLUMN colour TEXT",))
    monkeypatch.setattr(database, "MIGRATIONS", added)
    monkeypatch.setattr(database, "VERSION", len(added))
    for _ in range(2):
        with Store.open(path) as store:
            assert len(store.messages(home)) == 1
            assert store._file._db.execute("PRAGMA user_version").fetchone()[0] == len(added)
            assert store._file._db.execute("SELECT colour FROM conversation").fetchone()[0] is None


def test_who_writes_an_answer_is_known_by_number_and_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that began at another time is another one of the same number, be it this one's."""
    own = rows.this_process()
    assert own % rows._NUMBERS == os.getpid()
    assert rows._is_writing(own)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        theirs = rows._began(child.pid) * rows._NUMBERS + child.pid
        later = rows._NUMBERS
        assert rows._is_writing(theirs)
        assert rows._is_writing(child.pid), "as earlier versions wrote it"
        with monkeypatch.context() as patch:
            patch.setattr(rows.os, "kill", refuse)  # as for another user's
            assert rows._is_writing(theirs)
            patch.setattr(rows, "_began", lambda _process: 0)  # as without /proc
            assert rows._is_writing(theirs + later)
            assert rows.this_process() == os.getpid()
            patch.setattr(rows, "_began", lambda _process: 7)
            assert [rows._is_writing(began * later + child.pid) for began in (6, 7, 8)] == [False, True, False]
            assert not rows._is_writing(8 * later + os.getpid()), "an earlier one had this one's number"
        assert child.stdin is not None
        child.stdin.close()
    assert not rows._is_writing(theirs)
    assert rows._is_writing(1), "the first process is one, whoever's it is"
    assert not any(rows._is_writing(none) for none in (None, 0, -1, -later + 1, later))
    assert rows._began(0) == 0


def test_an_answer_is_still_coming_though_the_clock_was_set_forward(path: Path) -> None:
    """By an hour, and its process began just before."""
    code = """
store = Store.open(Path(sys.argv[1]), clock=lambda: time.time() - 3600)
print(store.add_message(store.create("p").id, None, "assistant").id, flush=True)
input()
"""
    with python(code, path, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        answer = int(process.stdout.readline())
        with Store.open(path) as store:
            seen = store.message(answer)
        assert (seen.finish, seen.writer) == (None, process.pid)
        process.kill()
    with Store.open(path) as store:
        assert store.message(answer).finish == "interrupted"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not tell when a process began")
def test_a_process_whose_name_is_cut_within_a_letter_has_begun(tmp_path: Path) -> None:
    name = tmp_path / ("x" * 14 + "é")  # the system keeps 15 bytes of it
    name.symlink_to(shutil.which("cat") or "")
    with subprocess.Popen(["cat"], executable=name, stdin=subprocess.PIPE) as child:
        assert rows._began(child.pid) >= rows._began(os.getpid())
        assert child.stdin is not None
        child.stdin.close()


def test_closing_twice_and_after_trouble_is_harmless(path: Path) -> None:
    store = Store.open(path)
    home = store.create("p").id
    answer = store.add_message(home, None, "assistant")
    store.append_text(answer.id, "so far")
    store.close()
    store.close()
    with Store.open(path) as again:
        assert again.message(answer.id).text == "so far"


def test_memory_that_is_full_is_an_error(path: Path) -> None:
    with Store.open(None) as store:
        home = store.create("p").id
        n_pages = store._file._db.execute("PRAGMA page_count").fetchone()[0]
        store._file._db.execute(f"PRAGMA max_page_count = {n_pages + 1}")
        with pytest.raises(ResourceError, match="not saved"):
            store.add_message(home, None, "user", "x" * 100_000)
        assert store.messages(home) == []


def test_a_file_of_this_version_without_its_tables_is_not_read(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {database.VERSION}")
    db.close()
    with pytest.raises(database.Unsaved, match="cannot read") as caught:
        database.read_only(path)
    assert caught.value.hint == "--no-save"
