"""Random sequences of keys, in every screen that holds something to lose: nothing goes that was not named.

Each batch of sequences has its seed. A deletion is named in a notice or a note before or as it is done, and brought
back by Ctrl+Y.
"""

import asyncio
import hashlib
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from textual.events import Key

from localspec.conversations.store import Store
from localspec.tui.app import LocalspecApp
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, opened, settled

BATCHES, SEQUENCES = 20, 5  # 100 sequences
WORDS = (
    "dragon",
    "wolf",
    "delete",
    "/delete",
    "/delete 2",
    "/list 9",
    "/title other",
    "/undo",
    "/new",
    "/fork",
    "ndux",
)
COMMANDS = (
    "/undelete",
    "/resume 1",
    "/search fox",
    "/branch 1",
    "/save kept.json",
    "/export note.md",
    "/regen",
    "/edit",
    "/save mine.txt",
    "/export mine.txt",
    "/read mine.txt",
)
PLACES = ("f8", "ctrl+r", "ctrl+o", "ctrl+p", "f9", "f12", "f1", "escape", "escape", "tab")
EDITS = ("enter", "enter", "backspace", "delete", "up", "down", "left", "home", "end", "pageup", "ctrl+k", "ctrl+w")
ACTS = ("ctrl+x", "ctrl+x", "f2", "f5", "f6", "f7", "ctrl+n", "ctrl+d", "ctrl+y", "left_square_bracket")
LETTERS = "dnuxefrykjGgcti/[]"
STEPS = (  # what chance would hardly put together: places with what is done there, and commands that are sent
    *((command, "enter") for command in (*COMMANDS, "/delete", "/title other", "/undo", "/new", "/fork")),
    ("/list 9", "enter", "/delete 2", "enter"),
    ("/list 9", "enter", "/delete 1", "enter"),
    *(
        (place, *words, "ctrl+x")
        for place in ("f8", "ctrl+r")
        for words in ((), ("down",), ("wolf",), ("wo", "delete"))
    ),
    ("f8", "ctrl+e", "x", "enter"),
    ("f8", "fox", "enter"),
    *(("ctrl+o", *words, "enter") for words in ((), ("down",), ("tell",), ("delete", "backspace"))),
    *(("tab", key) for key in ("left_square_bracket", "right_square_bracket", "e", "r", "d", "x", "delete")),
    ("tab", "e", "!", "enter"),
    ("ctrl+p", "delete", "enter"),
    ("dragon", "enter"),
)
KEYS = st.lists(
    st.one_of(st.sampled_from([(key,) for key in (*WORDS, *PLACES, *EDITS, *ACTS, *LETTERS)]), st.sampled_from(STEPS)),
    min_size=8,
    max_size=16,
).map(lambda steps: [key for step in steps for key in step])
N_GONE = SEQUENCES * BATCHES // 10  # deletions that all sequences together make at least

Messages = dict[str, list[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a person has: the messages and the titles of the conversations that are listed, and hashes of files."""

    messages: Messages
    titles: dict[str, str]
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Played:
    """What keys did. `gone` are conversations that the keys deleted, `named` those that were named as they went.

    `deleted` are those that the chat can bring back; `after` is what there is when it has.
    """

    keys: list[str]
    before: Kept
    gone: set[str]
    named: set[str]
    deleted: set[str]
    after: Kept

    @property
    def losses(self) -> list[str]:
        renames = "f2" in self.keys or any(word.startswith("/title") for word in self.keys)
        after, before = self.after, self.before
        found = [f"{key} went without being named" for key in self.gone - self.named]
        found += [f"{key} cannot be brought back" for key in self.gone - self.deleted]
        found += [f"{key}, which was new, went without being named" for key in self.deleted - self.gone - self.named]
        for key, messages in before.messages.items():
            if after.messages.get(key, [])[: len(messages)] != messages:
                found.append(f"messages of {key} are lost or changed")
            if after.titles.get(key) != before.titles[key] and not renames:
                found.append(f"the title of {key} has changed")
        found += [f"the file {name} is lost or changed" for name in before.files.items() - after.files.items()]
        return found


def kept(store: Store, folder: Path) -> Kept:
    """Return what is listed, by ID, and the files of a folder, by name."""
    listed = store.conversations()
    return Kept(
        {each.id: [(one.id, one.text) for one in store.messages(each.id)] for each in listed},
        {each.id: each.title for each in listed},
        {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.is_file()},
    )


def filled(path: Path) -> Store:
    """Return a store with three conversations, one with branches."""
    store = Store.open(path)
    for animal in ("fox", "wolf", "dragon"):
        home = store.create("storyteller").id
        asked = store.add_message(home, None, "user", f"Tell of the {animal}")
        for n in range(2 if animal == "wolf" else 1):
            answer = store.add_message(home, asked.id, "assistant")
            store.append_text(answer.id, f"The {animal} ran, {n}.")
            store.finish(answer.id, "stop")
    return store


async def press(app: LocalspecApp, name: str) -> None:
    """Press a key as the driver hands it over, or write a word, without waiting for what it does."""
    for key in [name] if name in (*PLACES, *EDITS, *ACTS) else name:
        char = key if len(key) == 1 else {"enter": "\r"}.get(key)
        names = {"/": "slash", " ": "space", ".": "full_stop", "[": "left_square_bracket", "]": "right_square_bracket"}
        app.post_message(Key(names.get(key, key), char))


async def play(keys: list[str], folder: Path) -> Played:
    store, named = filled(folder / "of ours" / "kept.db"), set[str]()
    (folder / "mine.txt").write_text("mine")
    before = kept(store, folder)
    async with opened(ScriptedWorker(), store=store) as (pilot, app):
        say = app.say
        app.say = lambda text, *, is_wrong=False: (
            named.update(re.findall("Deleted (.{8}) ", text)),
            say(text, is_wrong=is_wrong),
        )[1]
        tell = app.chat.tell

        async def told(text: str) -> None:
            named.update(re.findall("deleting (.{8}) ", text))
            await tell(text)

        app.chat.tell = told
        for name in keys:
            await press(app, name)
            await settled(pilot)
        for _ in range(6):  # back to the chat, from wherever the keys have led
            await pilot.press("escape")
            await settled(pilot)
        await until(pilot, lambda: app.screen is app.chat and app.chat_state.answering is None)
        look, deleted = partial(kept, folder=folder), set(app.chat_state.deleted)
        left = app.chat_state.writer.ask(look).result()
        for _ in deleted:
            await pilot.press("ctrl+y")
            await settled(pilot)
        await until(pilot, lambda: not app.chat_state.deleted)
        after = app.chat_state.writer.ask(look).result()
    return Played(keys, before, set(before.messages) - set(left.messages), named, deleted, after)


def test_no_keys_lose_what_they_did_not_name(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Two batches of sequences run by default, all of them with --exhaustive; a batch is known by its seed."""
    monkeypatch.setattr(LocalspecApp, "exit", lambda *_args, **_options: None)  # keys that quit end the proof too early
    batches = range(BATCHES) if request.config.getoption("--exhaustive") else range(2)
    n_gone = 0
    for batch in batches:
        played = play_batch(batch, tmp_path_factory, monkeypatch)
        n_gone += sum(len(one.gone) for one in played)
        lost = [(one.keys, one.losses) for one in played if one.losses]
        assert not lost, f"seed {batch}"
        assert len(played) == SEQUENCES
    assert len(batches) < BATCHES or n_gone >= N_GONE


def play_batch(batch: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> list[Played]:
    played: list[Played] = []

    @seed(batch)
    @settings(
        max_examples=SEQUENCES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(KEYS)
    def run(keys: list[str]) -> None:
        folder = tmp_path_factory.mktemp("keys")
        monkeypatch.chdir(folder)
        played.append(asyncio.run(play(keys, folder)))

    run()
    return played


def test_a_deletion_is_among_the_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof would notice one: these keys delete two conversations, by a key and by a command."""
    monkeypatch.chdir(tmp_path)
    keys = ["f8", "wolf", "ctrl+x", "escape", "/list 9", "enter", "/delete 2", "enter"]
    played = asyncio.run(play(keys, tmp_path))
    assert played.losses == []
    assert len(played.gone) == 2
    assert played.gone == played.named == played.deleted


def test_each_kind_of_loss_is_noticed() -> None:
    """What the proof looks for, made by hand."""
    before = Kept({"a": [(1, "x")], "b": [(2, "y")]}, {"a": "A", "b": "B"}, {"mine.txt": "1"})
    after = Kept({"b": [(2, "other")]}, {"b": "C"}, {})
    played = Played(["x"], before, {"a"}, set(), set(), after)
    assert len(played.losses) == 7
    assert Played(["x"], before, {"a"}, {"a"}, {"a"}, before).losses == []
