"""The tree of messages: what is added, looked at, switched, forked, found, deleted and brought back."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.conversations import rows, search
from localspec.conversations.records import LENGTH, Attachment, StoredMessage, as_typed, new_id
from localspec.conversations.store import KEPT_DELETED, Store
from localspec.errors import NotFoundError, UsageError
from localspec.settings.folders import states_folder
from tests.cli.harness import wait_for
from tests.recorded import recorded_expressions


class Clock:
    """Time that passes when told to."""

    now = 1.8e9

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "data" / "conversations.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path, clock=Clock()) as store:
        yield store


def say(store: Store, conversation: str, parent: int | None, *texts: str) -> list[StoredMessage]:
    """Add turns below `parent`, a person's first; return the messages."""
    made = []
    for i, text in enumerate(texts):
        message = store.add_message(conversation, parent, "assistant" if i % 2 else "user", "" if i % 2 else text)
        if i % 2:
            store.append_text(message.id, text)
            message = store.finish(message.id, "stop", {"text": text})
        made.append(message)
        parent = message.id
    return made


def texts(messages: list[StoredMessage]) -> list[str]:
    return [message.text for message in messages]


def test_a_conversation_is_there_again(store: Store, path: Path) -> None:
    made = store.create("big+small", system="Be brief")
    question = Attachment("notes.txt", "a\nb\n")
    asked = store.add_message(made.id, None, "user", "What is\nthis?", attachments=[question])
    said = store.add_message(made.id, asked.id, "assistant")
    store.append_text(said.id, "Notes")
    store.append_text(said.id, ", two lines")
    store.finish(said.id, "stop", {"seed": 7})
    store.close()
    with Store.open(path) as again:
        (found,) = again.conversations()
        assert (found.id, found.pair, found.system, found.leaf) == (made.id, "big+small", "Be brief", said.id)
        assert (found.title, found.n_messages) == ("What is this?", 2)
        first, second = again.path(found.leaf)
        assert first.attachments == (question,)
        assert first.content == "```notes.txt\na\nb\n```\n\nWhat is\nthis?"
        assert (first.finish, second.finish, second.text) == ("sent", "stop", "Notes, two lines")
        assert second.stats == {"seed": 7}


def test_files_are_their_owners_alone(store: Store, path: Path) -> None:
    say(store, store.create("p").id, None, "secret")
    modes = {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert len(list(path.parent.iterdir())) == 3  # the file, what readers share, and the write-ahead log
    assert modes == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_answers_and_edits_are_siblings(store: Store) -> None:
    home = store.create("p").id
    one, first, two, second = say(store, home, None, "one", "1", "two", "2")
    other = store.add_message(home, two.id, "assistant")
    edited, answer = say(store, home, first.id, "two, better", "2b")
    parents = [(m.id, m.parent) for m in store.messages(home)]
    assert parents == [
        (one.id, None), (first.id, one.id), (two.id, first.id), (second.id, two.id), (other.id, two.id),
        (edited.id, first.id), (answer.id, edited.id),
    ]  # fmt: skip
    assert store.get(home).leaf == answer.id
    assert texts(store.path(answer.id)) == ["one", "1", "two, better", "2b"]
    store.set_leaf(home, second.id)
    assert texts(store.path(store.get(home).leaf)) == ["one", "1", "two", "2"]
    store.set_leaf(home, None)
    assert store.path(store.get(home).leaf) == []
    assert len(store.messages(home)) == 7


def test_a_fork_is_a_conversation_of_its_own(store: Store) -> None:
    home = store.create("p", system="S").id
    _, first, _, _ = say(store, home, None, "one", "1", "two", "2")
    fork = store.fork(first.id)
    assert (fork.pair, fork.system, fork.title, fork.n_messages) == ("p", "S", "one", 2)
    say(store, fork.id, fork.leaf, "three", "3")
    assert texts(store.path(store.get(fork.id).leaf)) == ["one", "1", "three", "3"]
    assert texts(store.messages(home)) == ["one", "1", "two", "2"]
    assert store.path(store.get(fork.id).leaf)[1].stats == {"text": "1"}
    store.delete(home, now=True)
    assert len(store.path(store.get(fork.id).leaf)) == 4


def test_an_answer_that_is_being_written_is_an_interrupted_one_in_a_fork(store: Store) -> None:
    """Nobody writes on in the fork, so its copy has ended."""
    home = store.create("p").id
    (question,) = say(store, home, None, "one")
    answer = store.add_message(home, question.id, "assistant")
    store.append_text(answer.id, "half")
    copy = store.path(store.fork(answer.id).leaf)[-1]
    assert (copy.text, copy.finish) == ("half", "interrupted")
    assert store.path(answer.id)[-1].finish is None


def test_a_message_belongs_to_one_conversation(store: Store) -> None:
    here, there = store.create("p").id, store.create("p").id
    (message,) = say(store, here, None, "one")
    with pytest.raises(NotFoundError, match="has no message"):
        store.add_message(there, message.id, "assistant")
    with pytest.raises(NotFoundError, match="has no message"):
        store.set_leaf(there, message.id)
    with pytest.raises(NotFoundError, match="no conversation"):
        store.add_message("00000000", None, "user", "x")
    with pytest.raises(NotFoundError, match="no message 999") as caught:
        store.message(999)
    assert caught.value.hint == "localspec logs"
    assert store.messages(there) == []


def test_text_that_came_before_a_refused_write_stays(store: Store) -> None:
    home = store.create("p").id
    message = store.add_message(home, None, "assistant")
    store.append_text(message.id, "so far")
    with pytest.raises(NotFoundError):
        store.set_leaf("00000000", None)
    assert store.message(message.id).text == "so far"


def test_the_first_word_of_an_answer_does_not_wait_for_the_disk(store: Store) -> None:
    """SQLite's levels: a question waits until it is on the disk (2), an answer that has no text yet does not (1)."""
    home = store.create("p").id
    for role, level in (("user", 2), ("assistant", 1), ("user", 2)):
        store.add_message(home, None, role, "")
        assert store._file._db.execute("PRAGMA synchronous").fetchone()[0] == level
    store.append_text(store.add_message(home, None, "assistant").id, "")
    assert not store._file._stream._pieces, "a piece without text is none"
    store.rename(home, "t")
    assert store._file._db.execute("PRAGMA synchronous").fetchone()[0] == 2


def test_what_is_coming_is_read_too(store: Store) -> None:
    home = store.create("p").id
    message = store.add_message(home, None, "assistant")
    store.append_text(message.id, "so far")
    assert store.message(message.id).text == "so far"
    assert store.message(message.id).finish is None


def test_text_reaches_the_file_without_another_call(store: Store, path: Path) -> None:
    """Whatever comes after the last piece, and if nothing does, the piece is written."""
    home = store.create("p").id
    message = store.add_message(home, None, "assistant")
    store.append_text(message.id, "so far")
    with Store.open(path) as other:
        wait_for(lambda: other.message(message.id).text)
        seen = other.message(message.id)
        assert seen.text == "so far"
        assert seen.finish is None, "its writer lives: it is not interrupted"
        assert seen.writer == os.getpid()
        assert store.finish(message.id, "stop").writer is None


def test_names_and_titles(store: Store) -> None:
    home = store.create("p").id
    say(store, home, None, "word " * 100)
    assert len(store.get(home).title) <= 60
    assert store.get(home).title.endswith("…")
    with pytest.raises(NotFoundError, match="there is no conversation 00000000"):
        store.rename("00000000", "t")
    begun = store.create("p").id
    store.add_message(begun, None, "assistant", "no question")
    assert store.get(begun).title == ""
    store.rename(home, "A \n better one")
    assert store.get(home).title == "A better one"
    store.set_system(home, "S")
    store.set_pair(home, "q")
    assert (store.get(home).system, store.get(home).pair) == ("S", "q")
    store.set_system(home, None)
    assert store.get(home).system is None


def test_texts_that_are_no_unicode_are_kept_as_far_as_possible(store: Store) -> None:
    home = store.create("p\ud800", system="\udcff").id
    (message,) = say(store, home, None, "a\0b\ud800c")
    assert store.message(message.id).text == "a\ufffdb?c"
    assert store.search("b?c\udc00") == []


def test_a_files_name_is_kept_byte_by_byte(store: Store) -> None:
    """One that is no UTF-8 must be found again; what only looks like the spelling of a byte is no byte."""
    for pair in ("/m/a\udcff\udc80.gguf+none", "/m/b.gguf", "C:\\models\\udder.gguf", "/m/\\udg0.gguf"):
        home = store.create(pair).id
        assert store.get(home).pair == pair
        store.set_pair(home, f"{pair}+x\udcfe")
        assert store.get(home).pair == f"{pair}+x\udcfe"


def test_the_last_used_is_the_first(store: Store) -> None:
    one, two = store.create("p").id, store.create("p").id
    assert [each.id for each in store.conversations()] == [two, one]
    say(store, one, None, "again")
    assert [each.id for each in store.conversations()] == [one, two]
    assert [each.id for each in store.conversations(1)] == [one]
    assert [each.id for each in store.conversations(10**30)] == [one, two]


@pytest.mark.parametrize("back", [1.0, 7200.0])
def test_the_last_used_is_the_first_though_the_clock_is_set_back(back: float) -> None:
    """As where the firmware has local time, until the network tells: `-c` went on with another conversation."""
    now = [1.8e9]
    with Store.open(None, clock=lambda: now[0]) as store:
        one = store.create("p").id
        say(store, one, None, "before", "an answer")
        now[0] -= back
        two = store.create("p").id
        assert [each.id for each in store.conversations()] == [two, one]
        (asked,) = say(store, one, None, "again")
        assert [each.id for each in store.conversations()] == [one, two]
        say(store, two, None, "a short one")
        store.finish(store.add_message(one, asked.id, "assistant").id, "stop")
        assert [each.id for each in store.conversations()] == [one, two]
        assert store.get(one).updated - 1.8e9 < 1e-3
        assert asked.created == now[0], "only the order of uses goes on"


def test_a_clock_that_was_days_ahead_is_forgotten() -> None:
    """Else each use had its date until then."""
    now = [1.8e9 + 3e7]
    with Store.open(None, clock=lambda: now[0]) as store:
        store.create("p")
        now[0] = 1.8e9
        home = store.create("p")
        assert home.updated == 1.8e9
        now[0] += 1.0
        say(store, home.id, None, "a message")
        assert store.get(home.id).updated == 1.8e9 + 1.0


def test_deleting_and_bringing_back(store: Store, path: Path) -> None:
    one, two = store.create("p").id, store.create("p").id
    say(store, one, None, "needle", "hay")
    assert len(store.search("needle")) == 1
    store.delete(one)
    store.delete(two)
    assert store.conversations() == []
    assert store.search("needle") == []
    with pytest.raises(NotFoundError):
        store.find(one)
    assert store.find(one, is_deleted=True).id == one
    assert store.undelete().id == two
    with pytest.raises(NotFoundError, match=f"there is no deleted conversation '{two}'"):
        store.find(two, is_deleted=True)
    assert store.undelete(one).id == one
    with pytest.raises(NotFoundError, match="was deleted") as caught:
        store.undelete()
    assert caught.value.hint == "localspec logs"
    assert len(store.search("needle")) == 1
    store.delete(one)
    store.close()
    later = Clock()
    deleted = store._clock() - 1
    for now, n in ((deleted + 7 * 86400, 2), (deleted + 7 * 86400 + 1, 1)):
        with Store.open(path, clock=iter([now]).__next__) as again:
            assert len(again._file.read(lambda db: db.execute("SELECT id FROM conversation").fetchall())) == n
    later.now += KEPT_DELETED + 1000
    with Store.open(path, clock=later) as again:
        with pytest.raises(NotFoundError):
            again.get(one)
        assert again.get(two).id == two
        assert again.messages(one) == []


def test_who_talks_on_in_what_another_process_deleted_brings_it_back(store: Store, path: Path) -> None:
    home = store.create("p").id
    last = say(store, home, None, "one", "1")[-1]
    with Store.open(path) as other:
        other.delete(home)
    say(store, home, last.id, "two", "2")
    assert [each.id for each in store.conversations()] == [home]
    store.close()
    later = Clock()
    later.now += KEPT_DELETED + 1000
    with Store.open(path, clock=later) as again:
        assert texts(again.messages(home)) == ["one", "1", "two", "2"]


def test_what_is_deleted_now_leaves_no_trace(store: Store, path: Path) -> None:
    home = store.create("p").id
    say(store, home, None, "needle in a haystack", "found")
    store.search("needle")
    store.delete(home, now=True)
    assert store._file._db.execute("SELECT count(*) FROM words_docsize").fetchone()[0] == 0, "nor in the index of words"
    store.close()
    assert b"haystack" not in path.read_bytes()


def test_what_is_deleted_is_in_no_saved_state(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    states_folder().mkdir(parents=True)
    state = states_folder() / "a.state"
    state.write_bytes(b"haystack")
    with Store.open(None) as unsaved:
        unsaved.delete(unsaved.create("p").id)
    assert state.exists()
    store.delete(store.create("p").id)
    assert not state.exists()


def test_a_long_conversation() -> None:
    """Deeper than SQLite lets triggers call each other."""
    with Store.open(None, clock=Clock()) as store:
        home = store.create("p").id
        parent = None
        for i in range(1200):
            parent = store.add_message(home, parent, "user", f"{i}").id
        assert texts(store.path(parent)) == [f"{i}" for i in range(1200)]
        assert store.fork(parent or 0).n_messages == 1200
        store.delete(home, now=True)
        assert len(store.conversations()) == 1


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("tower", ["The TOWER of stone", "a tower"]),
        ("tow stone", ["The TOWER of stone"]),
        ("of", ["The TOWER of stone"]),
        ("of tower", ["The TOWER of stone"]),
        ("100%", ["100% _sure_"]),
        ("_", ["100% _sure_"]),
        ('"', ['say "when"']),
        ("when AND", []),
        ("NOT tower", []),
        ("天空", ["为什么天空是蓝色的"]),
        ("天空是", ["为什么天空是蓝色的"]),
        ("* OR 1=1; --", []),
        ("nothing", []),
    ],
)
def test_search(
    store: Store, monkeypatch: pytest.MonkeyPatch, has_index: bool, query: str, expected: list[str]
) -> None:
    home = store.create("p").id
    say(store, home, None, "a tower", "no", "The TOWER of stone", "100% _sure_", 'say "when"', "为什么天空是蓝色的")
    if not has_index:
        monkeypatch.setattr(search, "_index", lambda db: False)
    assert [hit.message.text for hit in store.search(query)] == expected
    say(store, home, None, query)
    assert store.search(query)[0].message.text == query, "what came since is found too"


def test_a_word_of_three_letters_is_found_in_either_case_in_every_script(store: Store) -> None:
    """By the index: without it only letters of ASCII match so."""
    say(store, store.create("p").id, None, "ein Öl-Übel")
    for query, n in (("ÖL-", 1), ("öl-", 1), ("öl", 0), ("Öl", 1)):
        assert len(store.search(query)) == n


def test_search_wants_words_and_shows_where_they_stand(store: Store) -> None:
    home = store.create("p").id
    say(store, home, None, "x " * 500 + "the needle \n here" + " y" * 500)
    (hit,) = store.search("NEEDLE")
    assert hit.excerpt.startswith("…")
    assert hit.excerpt.endswith("…")
    assert "the needle here" in hit.excerpt
    assert hit.conversation.id == home
    with pytest.raises(UsageError, match="name the words to search for") as caught:
        store.search(" ")
    assert caught.value.hint == "localspec logs search WORDS"
    say(store, home, None, *["a pin"] * 41)
    assert [len(store.search("pin", *limit)) for limit in ((), (10**30,))] == [20, 41]


@pytest.mark.parametrize("has_index", [True, False])
def test_a_search_for_a_whole_page_is_refused_in_words(
    store: Store, monkeypatch: pytest.MonkeyPatch, has_index: bool
) -> None:
    if not has_index:
        monkeypatch.setattr(search, "_index", lambda db: False)
    home = store.create("p").id
    say(store, home, None, "ab cd")
    assert len(store.search("ab cd " * 1200)) == 1, "a word that is there twice is looked for once"
    for page in (" ".join(chr(0x4E00 + n) for n in range(1200)), "a" * 60_000):
        with pytest.raises(UsageError, match="too much to search for"):
            store.search(page)


@pytest.mark.parametrize("before", ["ß", "ﬃ", "İ", "x"])
def test_an_excerpt_is_where_the_word_is_whatever_capitals_do_before_it(before: str) -> None:
    assert "the Needle here" in search.excerpt(before * 500 + " the Needle here" + " y" * 500, "nEEDLE")
    assert search.excerpt(before * 500, "needle [") == before * 60 + "…", "what is not found is shown from its start"


@pytest.mark.parametrize(
    ("query", "is_taken"),
    [
        (" ".join(map(str, range(100))), True),
        (" ".join(map(str, range(101))), False),
        ("a" * 10_000, True),
        ("a" * 10_001, False),
    ],
)
def test_how_much_is_searched_for(query: str, is_taken: bool) -> None:
    if is_taken:
        assert search._words(query) == query.split()
    else:
        with pytest.raises(UsageError, match="at most 100 words and 10000 characters") as caught:
            search._words(query)
        assert caught.value.hint == "fewer words"


@pytest.mark.parametrize(("n", "title"), [(60, "x" * 60), (61, "x" * 59 + "…")])
def test_a_title_has_sixty_characters(n: int, title: str) -> None:
    assert rows.title_of(f"\n {'x' * n} ") == title


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("@a.py @notes/b.md What is b?", "What is b?"),
        ('\n@"my file.py"\nAdd types', "Add types"),
        ("@a.py", "@a.py"),
        ("Compare @a.py and @b.py", "Compare @a.py and @b.py"),
    ],
)
def test_a_title_leaves_out_files_in_front_of_the_question(message: str, title: str) -> None:
    assert rows.title_of_message(message) == title


def test_a_title_is_looked_for_in_six_thousand_characters() -> None:
    assert [rows.title_of(" " * n + "x") for n in (5999, 6000)] == ["x", ""]


def test_ids_are_short_in_order_and_forgiving(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [new_id(1.8e9 + second) for second in range(0, 10**8, 10**6)]
    assert ids == sorted(ids)
    assert [new_id(second)[:6] for second in (0, 1577836800, 1577836801, 1577836832)] == ["000000"] * 2 + [
        "000001",
        "000010",
    ]
    assert {len(each) for each in ids} == {LENGTH}
    with monkeypatch.context() as patch:
        patch.setattr("os.urandom", lambda n: b"\xff" * n)
        assert [new_id(second) for second in (1577836800, 1577836800 + 32**6)] == ["000000zz"] * 2
    assert as_typed(" 1O0IL ") == "10011"
    assert [as_typed(text) for text in ("", "u", "%", "123456789", "ü")] == [""] * 5


def test_ids_may_be_abbreviated(store: Store) -> None:
    ids = [store.create("p").id for _ in range(20)]
    assert store.find(ids[3]).id == ids[3]
    assert store.find(ids[3].upper()).id == ids[3]
    assert store.find(ids[3][-6:]).id == ids[3]
    same_second = Store.open(None, clock=lambda: 1.8e9)
    begun = [same_second.create("p").id for _ in range(2)]
    two = " and ".join(sorted(begun, reverse=True))
    with pytest.raises(UsageError, match=f"'{begun[0][:6]}' is not one conversation: {two} are both meant") as caught:
        same_second.find(begun[0][:6])
    assert caught.value.hint == "all 8 characters of one of them"
    with pytest.raises(UsageError, match="too short") as caught:
        store.find(ids[3][-5:])
    assert caught.value.hint == "6 characters or more of the ID that begins its line in localspec logs"
    for text in ("zzzzzzzz", "", "%", "_", "no such thing"):
        with pytest.raises(NotFoundError, match="no conversation") as caught:
            store.find(text)
        assert caught.value.hint == "localspec logs"


def test_a_name_that_is_taken_is_not_given_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["0000000a", "0000000a", "0000000b"])
    monkeypatch.setattr("localspec.conversations.store.new_id", lambda _now: next(drawn))
    assert [store.create("p").id for _ in range(2)] == ["0000000a", "0000000b"]


def test_a_copy_is_read_and_the_file_stays(store: Store, path: Path) -> None:
    home = store.create("p").id
    say(store, home, None, "one", "1")
    with Store.copied(path) as copy:
        assert not copy.is_saved
        say(copy, home, copy.get(home).leaf, "two")
        assert texts(copy.messages(home)) == ["one", "1", "two"]
    assert texts(store.messages(home)) == ["one", "1"]
    path.with_name("damaged.db").write_bytes(b"no database" * 100)
    for name in ("damaged.db", "missing.db"):
        with Store.copied(path.with_name(name)) as copy:
            assert copy.conversations() == []
            assert copy.trouble() is None
    assert not path.with_name("missing.db").exists()


def test_memory_keeps_everything_but_no_file(tmp_path: Path) -> None:
    with Store.open(None) as store:
        home = store.create("p").id
        say(store, home, None, "needle", "1")
        assert not store.is_saved
        assert store.trouble() is None
        assert len(store.search("needle")) == 1
    assert os.listdir(tmp_path) == []


def test_an_answer_that_ends_makes_its_conversation_the_last_used(store: Store) -> None:
    one, two = store.create("p").id, store.create("p").id
    (asked,) = say(store, one, None, "a long question")
    answer = store.add_message(one, asked.id, "assistant")
    say(store, two, None, "a short one")
    assert [each.id for each in store.conversations()] == [two, one]
    store.finish(answer.id, "stop")
    assert [each.id for each in store.conversations()] == [one, two]


test_what_is_recorded = recorded_expressions(__file__, search)
