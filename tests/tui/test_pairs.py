"""The pair picker: filtering, switching without leaving the chat, and downloads against a real hub on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input

from localspec.cli.settings_table import described
from localspec.control.prices import Prices
from localspec.control.profile import Profile
from localspec.control.trial import Kind, Trial
from localspec.errors import ResourceError, WorkerDiedError
from localspec.models.available import AvailablePair
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.hub.cache import Cache
from localspec.models.names import parse
from localspec.models.recent import remember_pair
from localspec.models.store import PairRef, parse_pair
from localspec.models.user_catalog import add
from localspec.settings.folders import cache_folder
from localspec.settings.request import LoadSettings
from localspec.tui.app import LocalspecApp
from localspec.tui.pair_rows import FreeMemory, cells, columns_of, compared, fit
from localspec.tui.screens.pairs import PairsScreen
from localspec.tui.widgets.card import ErrorCard, Note
from localspec.worker.client import Worker
from tests.cli.harness import PAIR as STORYTELLER
from tests.cli.harness import needs_pair
from tests.hub.models import DRAFT, TARGET, of_other_tokens, whole
from tests.hub.server import Server, serving
from tests.tui.chats import ScriptedEngine, app_of, opened, shown, until

TALES = "hf:tales/storyteller-GGUF:Q8_0+hf:tales/draft-GGUF:Q8_0"
MEMORY = FreeMemory(16_000_000_000, (8_000_000_000,))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it, and a pair of its own in the catalogue."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    point_at("http://127.0.0.1:9", monkeypatch)  # where nobody listens
    monkeypatch.setenv("HF_TOKEN", "")
    add("tales", parse(TALES))
    return tmp_path


def point_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the hub's library, which read its settings when it was imported, talk to another server."""
    template = endpoint + constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(whole()) as server:
        point_at(server.endpoint, monkeypatch)
        yield server


def app_with(engine: Any, *, is_dark: bool = True) -> LocalspecApp:
    return app_of(engine, is_dark=is_dark, form=described(("chat",)))


async def picker(pilot: Pilot[Any], folder: Path | None = None) -> PairsScreen:
    """Open the picker of a machine whose memory is known."""
    app = pilot.app
    assert isinstance(app, LocalspecApp)
    await until(pilot, lambda: app.screen is app.chat and app.chat_state.loaded is not None)
    screen = PairsScreen(app, lambda: MEMORY, folder)
    app.push_screen(screen)
    await until(pilot, lambda: screen.is_mounted and screen.chosen is not None)
    return screen


def is_named(app: LocalspecApp, name: str) -> bool:
    return bool(app.chat_state.settings.name == name)


def names(screen: PairsScreen) -> list[str]:
    return [offer.name for offer in screen._seen]


def headings(screen: PairsScreen) -> list[str]:
    return [str(column.label) for column in screen.table.columns.values()]


def drawer(app: LocalspecApp) -> str:
    return " ".join(shown(app).split())


async def wait_for(pilot: Pilot[Any], *phases: str) -> None:
    app = pilot.app
    assert isinstance(app, LocalspecApp)

    await until(pilot, lambda: app.download is not None and app.download.phase in (*phases, "failed"))
    assert app.download is not None
    assert app.download.phase in phases, app.download.error
    if isinstance(app.screen, PairsScreen):
        app.screen._draw_download()  # which it does five times a second
    await pilot.pause()


async def test_typing_filters() -> None:
    app = app_with(ScriptedEngine())
    async with opened(app) as pilot:
        screen = await picker(pilot)
        everything, columns = names(screen), headings(screen)
        await pilot.press(*"QWEN3 8b")
        await pilot.pause()
        found, picture = names(screen), shown(app)
        assert headings(screen) == columns
    assert everything[:2] == ["tales", "storyteller"]
    assert len(set(columns)) == len(columns) > 2
    assert found[0] == "qwen3-8b"
    assert len(found) < len(everything) / 4
    assert "to be downloaded · fits on a GPU" in picture


async def test_ctrl_o_opens_it_with_the_files_of_the_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "here").mkdir()
    (home / "here" / "mine-Q8_0.gguf").symlink_to(STORYTELLER / "target-q8_0.gguf")
    monkeypatch.chdir(home / "here")
    app = app_with(ScriptedEngine())
    async with opened(app) as pilot:
        await until(pilot, lambda: app.chat_state.loaded is not None)
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(app.screen, PairsScreen) and bool(names(app.screen)))
        assert isinstance(app.screen, PairsScreen)
        found = names(app.screen)
    assert "mine-Q8_0.gguf" in found


@needs_pair
async def test_choosing_switches_and_the_conversation_stays() -> None:
    engine = ScriptedEngine()
    app = app_with(engine)
    async with opened(app) as pilot:
        app.chat.composer.fill("Tell me")
        await pilot.press("enter")
        await until(pilot, lambda: not app.engine.worker_thread.is_busy)
        screen = await picker(pilot)
        screen.query_one(Input).value = str(STORYTELLER / "draft-q8_0.gguf")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.chat and app.chat_state.loaded is not None)
        name, messages = app.chat_state.settings.name, len(app.chat_state.messages.path())
    assert name == "draft-q8_0.gguf"
    assert messages == 2
    assert [Path(each.target).name for each in engine.loads] == ["target-q8_0.gguf", "draft-q8_0.gguf"]
    assert engine.loads[1].ctx == 512


@needs_pair
async def test_in_an_edge_a_draft_is_chosen() -> None:
    """The target is its verifier's. A pair has two models, and only one is wanted."""
    engine, far = ScriptedEngine(), "ws://tower:8080"
    app = app_with(engine)
    app.chat_state.settings = replace(app.chat_state.settings, draft=None, name="q at tower:8080", verifier=far)
    async with opened(app) as pilot:
        screen = await picker(pilot)
        screen.query_one(Input).value = "storyteller+storyteller"
        await pilot.press("enter")
        await until(pilot, lambda: "names no draft alone" in shown(app))
        screen.query_one(Input).value = str(STORYTELLER / "draft-q8_0.gguf")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.chat and len(engine.loads) == 2)
        app.chat.composer.fill("/draft none")
        await pilot.press("enter")
        await until(pilot, lambda: len(engine.loads) == 3)
    assert [each.name for each in engine.loads] == ["q at tower:8080", "q at tower:8080+draft-q8_0", "q at tower:8080"]
    assert [each.draft for each in engine.loads] == [None, str(STORYTELLER / "draft-q8_0.gguf"), None]
    assert {(Path(each.target).name, each.verifier) for each in engine.loads} == {("target-q8_0.gguf", far)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no-such-pair", "there is no pair called 'no-such-pair'"),
        ("./no.gguf", "./no.gguf does not exist"),
        ("hf:org", "hf:org"),
        ("[/INST]", "[/INST]"),
    ],
)
async def test_what_cannot_be_used_is_said(text: str, said: str) -> None:
    app = app_with(ScriptedEngine())
    async with opened(app) as pilot:
        screen = await picker(pilot)
        await pilot.press(*text, "enter")
        await until(pilot, lambda: screen._error is not None)
        assert app.screen is screen
        picture = shown(app)
    assert said in picture


async def test_a_download_is_asked_about_carried_out_and_used(hub: Server) -> None:
    engine = ScriptedEngine()
    app = app_with(engine)
    async with opened(app) as pilot:
        screen = await picker(pilot)
        await pilot.press(*"tales", "enter")
        await wait_for(pilot, "planned")
        asked = drawer(app)
        assert not list(Cache().all())
        await pilot.press("enter")
        await wait_for(pilot, "done")
        done = drawer(app)
        assert screen.chosen is not None
        assert screen.chosen.where == "here"
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.chat)
        await until(pilot, lambda: app.chat_state.loaded is not None)
        name = app.chat_state.settings.name
    assert "tales: 6.5 MB to download in 2 files" in asked
    assert "Enter downloads · Esc cancels" in asked
    assert "tales: on this machine, hashes correct" in done
    assert sorted(file.link.read_bytes() == TARGET for file in Cache().all()) == [False, True]
    assert name.startswith("hf:tales/storyteller-GGUF@")
    assert Path(engine.loads[-1].target).read_bytes() == TARGET
    assert Path(str(engine.loads[-1].draft)).read_bytes() == DRAFT


async def test_enter_at_another_row_agrees_to_no_download(hub: Server) -> None:
    """The question was of the row before: that one is declined, and this one is used."""
    engine = ScriptedEngine()
    app = app_with(engine)
    async with opened(app) as pilot:
        screen = await picker(pilot)
        await pilot.press(*"tales", "enter")
        await wait_for(pilot, "planned")
        screen.query_one("#filter", Input).value = "storyteller"
        await until(pilot, lambda: screen.chosen is not None and screen.chosen.where == "here")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.chat)
        assert app.download is not None
        assert app.download.phase == "cancelled"
    assert hub.sent == 0


async def test_enter_uses_what_was_typed_before_it_in_one_burst(hub: Server) -> None:
    app = app_with(ScriptedEngine())
    async with opened(app) as pilot:
        await picker(pilot)
        for key in "tales":
            app.post_message(Key(key, key))
        app.post_message(Key("enter", "\r"))
        await wait_for(pilot, "planned")
        assert app.download is not None
        assert app.download.ref.startswith("tales")


async def test_a_download_can_be_declined(hub: Server) -> None:
    app = app_with(ScriptedEngine())
    async with opened(app) as pilot:
        screen = await picker(pilot)
        await pilot.press(*"tales", "enter")
        await wait_for(pilot, "planned")
        await pilot.press("escape")
        await wait_for(pilot, "cancelled")
        said, is_open = drawer(app), app.screen is screen
    assert "cancelled" in said
    assert is_open
    assert hub.sent == 0


async def test_a_download_goes_on_in_the_chat_and_is_cancelled_later(hub: Server) -> None:
    hub.faults.rate = 1_000_000  # bytes a second
    app = app_with(ScriptedEngine())
    async with opened(app) as pilot:
        await picker(pilot)
        await pilot.press(*"tales", "enter")
        await wait_for(pilot, "planned")
        await pilot.press("enter")
        await wait_for(pilot, "running")
        download = app.download
        assert download is not None
        await until(pilot, lambda: "MB of 6.5 MB" in drawer(app))
        going = drawer(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.chat)
        before = download.bytes
        await until(pilot, lambda: download.bytes > before)
        await picker(pilot)
        await pilot.press("ctrl+x")
        await wait_for(pilot, "cancelled")
        given_up, kept = drawer(app), sum(path.stat().st_size for path in Cache().partials())
    assert "tales: " in going
    assert "storyteller-Q8_0.gguf" in going
    assert "the downloaded part is kept" in given_up
    assert kept > 200_000


async def test_a_hub_that_fails_is_told_in_the_drawer_and_in_the_chat(hub: Server) -> None:
    del hub.repos["tales/storyteller-GGUF"]
    app = app_with(ScriptedEngine())
    async with opened(app) as pilot:
        await picker(pilot)
        await pilot.press(*"tales", "enter")
        await wait_for(pilot, "failed")
        said = drawer(app)
        await until(pilot, lambda: bool(app.notices.text))
        told = app.notices.text
    assert "tales: the hub has no" in said
    assert "Try:" in said
    assert told.startswith("tales: ")


@needs_pair
def test_a_draft_of_another_vocabulary_says_what_it_drafts(tmp_path: Path) -> None:
    target, other, far = STORYTELLER / "target-q8_0.gguf", tmp_path / "other.gguf", tmp_path / "far.gguf"
    assert compared(PairRef(target, STORYTELLER / "draft-q8_0.gguf", "x")) == "the draft fits"
    other.write_bytes(DRAFT.replace(b"\xc4\xa0the", b"\xc4\xa0thx", 1))
    assert compared(PairRef(target, other, "x")).startswith("the draft has another vocabulary: 100 % of the target's")
    far.write_bytes(of_other_tokens())
    assert compared(PairRef(target, far, "x")).startswith("the draft does not fit: they share")


def test_what_fits() -> None:
    told = [fit(size, MEMORY) for size in (0, 10**9, 10**10, 2 * 10**10, 10**11)]
    assert told == [
        ("", ""),
        ("✓", "fits on a GPU"),
        ("✓", "fits in main memory"),
        ("!", "fits on GPU and main memory together"),
        ("✗", "does not fit in the memory that is free"),
    ]
    assert fit(10**9, FreeMemory()) == ("", "")


@needs_pair
async def test_the_real_engine_changes_its_pair(hub: Server) -> None:
    """Asked, downloaded, loaded by llama.cpp and answered, without leaving the app."""
    with Worker() as worker:
        app = app_with(worker)
        async with opened(app, (100, 30)) as pilot:
            await picker(pilot)
            await pilot.press(*"tales", "enter")
            await wait_for(pilot, "planned")
            await pilot.press("enter")
            await wait_for(pilot, "done")
            await pilot.press("enter")
            await until(pilot, lambda: app.screen is app.chat)
            await until(pilot, lambda: app.chat_state.loaded is not None or bool(app.chat.query(ErrorCard)))
            app.chat.composer.fill("Once upon a time")
            await pilot.press("enter")
            await until(pilot, lambda: app.chat_state.answering is None and not app.engine.worker_thread.is_busy)
            assert app.chat_state.loaded is not None
            answer = app.chat_state.last_answer
            assert answer is not None
            name, text = app.chat_state.loaded.name, answer.text
    assert name.startswith("hf:tales/storyteller-GGUF@")
    assert text.strip()


async def test_an_engine_that_dies_while_it_loads_leaves_the_chat_open() -> None:
    class Dying(ScriptedEngine):
        def load(self, settings: Any) -> Iterator[Any]:
            if self.loads:
                raise WorkerDiedError("the engine was killed (SIGKILL)", hint="--ctx 512")
            yield from super().load(settings)

    app = app_with(Dying())
    async with opened(app) as pilot:
        await picker(pilot)
        await pilot.press(*"storyteller", "enter")
        await until(pilot, lambda: app.screen is app.chat and bool(app.chat.query(ErrorCard)))
        picture = shown(app)
    assert "the engine was killed (SIGKILL)" in picture


@pytest.fixture
def models(home: Path) -> Path:
    """A folder with a model, the beginning of one, and something else under the name of one."""
    folder = home / "files" / "models"
    folder.mkdir(parents=True)
    whole_file = (STORYTELLER / "target-q8_0.gguf").read_bytes()
    (folder / "good.gguf").write_bytes(whole_file)
    (folder / "cut.gguf").write_bytes(whole_file[: len(whole_file) // 2])
    (folder / "text.gguf").write_text("not a model", "utf-8")
    return folder


@needs_pair
async def test_broken_files_carry_no_tick(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_with(ScriptedEngine())
    async with opened(app) as pilot:
        screen = PairsScreen(app, lambda: MEMORY, models)
        await app.push_screen(screen)
        await until(pilot, lambda: len(screen._broken) == 2)
        lines = {
            name: line for line in shown(app).split("\n") for name in ("good", "cut", "text") if f"{name}.gg" in line
        }
        await pilot.press(*"text.gguf")
        await until(pilot, lambda: "it is a text file" in drawer(app))
    assert "✓" in lines["good"]
    assert "here" in lines["good"]
    for name in ("cut", "text"):
        assert "✓" not in lines[name]
        assert "✗" in lines[name]
        assert "bad" in lines[name]


@needs_pair
@pytest.mark.parametrize("name", ["text.gguf", "cut.gguf", "good.gguf+text.gguf"])
async def test_a_pick_that_cannot_load_keeps_the_pair_and_is_told_in_the_picker(models: Path, name: str) -> None:
    engine = ScriptedEngine()
    app = app_with(engine)
    pair = "+".join(str(models / each) for each in name.split("+"))
    async with opened(app) as pilot:
        screen = await picker(pilot)
        screen.query_one(Input).value = pair
        await pilot.press("enter")
        await until(pilot, lambda: screen._error is not None)
        assert app.screen is screen
        assert app.chat_state.loaded is not None
        assert app.chat_state.settings.name == "storyteller"
        assert len(engine.loads) == 1


@needs_pair
async def test_after_a_load_that_fails_the_pair_before_loads_again(models: Path) -> None:
    """A whole file may still be too large for the memory. The card stays; the next pair that loads takes it away."""

    class Picky(ScriptedEngine):
        def load(self, settings: Any) -> Iterator[Any]:
            if settings.target.endswith("good.gguf") and len(self.loads) == 1:
                self.loads.append(settings)
                raise ResourceError("not enough memory for good.gguf", hint="a smaller one")
            yield from super().load(settings)

    engine = Picky()
    app = app_with(engine)
    async with opened(app) as pilot:
        for expected in ("storyteller", "good.gguf"):
            screen = await picker(pilot)
            screen.query_one(Input).value = str(models / "good.gguf")
            await pilot.press("enter")
            await until(pilot, lambda: app.screen is app.chat and app.chat_state.loaded is not None)
            await until(pilot, lambda: not app.engine.worker_thread.is_busy)
            await until(pilot, partial(is_named, app, expected))
            has_card = expected == "storyteller"
            assert bool(app.chat.query(ErrorCard)) == has_card
            assert ("not enough memory for good.gguf" in shown(app)) == has_card
    assert [Path(each.target).name for each in engine.loads] == [
        "target-q8_0.gguf", "good.gguf", "target-q8_0.gguf", "good.gguf",
    ]  # fmt: skip


@needs_pair
async def test_recent_pairs_are_on_top_and_found_from_any_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember_pair(LoadSettings(str(models / "gone.gguf"), name="gone.gguf"))
    remember_pair(LoadSettings(str(models / "good.gguf"), name="good.gguf"))
    bundled = parse_pair("storyteller")
    remember_pair(LoadSettings(str(bundled.target), str(bundled.draft), name="storyteller"))
    engine = ScriptedEngine()
    app = app_with(engine)
    async with opened(app) as pilot:
        screen = await picker(pilot)
        assert names(screen)[:3] == ["storyteller", "good.gguf", "tales"]
        assert names(screen).count("storyteller") == 1
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.screen is app.chat and len(engine.loads) == 2)
    assert engine.loads[1].target == str(models / "good.gguf")


@needs_pair
async def test_a_path_is_completed_and_its_models_are_offered(models: Path) -> None:
    app = app_with(ScriptedEngine())
    async with opened(app) as pilot:
        screen = await picker(pilot)
        line = screen.query_one(Input)
        line.value = str(models.parent / "mo")
        await pilot.press("tab")
        assert line.value == f"{models}/"
        await until(pilot, lambda: {"good.gguf", "cut.gguf"} <= set(names(screen)))
        line.value = f"{models}/go"
        await pilot.press("tab")
        assert line.value == f"{models}/good.gguf"
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.chat)
        assert app.chat_state.settings.target == str(models / "good.gguf")


@needs_pair
async def test_model_keeps_the_pair_as_the_picker_does(models: Path) -> None:
    engine = ScriptedEngine()
    app = app_with(engine)
    async with opened(app) as pilot:
        await app.chat.turns.run(f"/model {models / 'text.gguf'}")
        await until(pilot, lambda: bool(app.chat.query(ErrorCard)))
        assert (app.chat_state.settings.name, len(engine.loads)) == ("storyteller", 1)
        await app.chat.turns.run(f"/model {models / 'good.gguf'}")
        await until(pilot, lambda: len(engine.loads) == 2 and app.chat_state.loaded is not None)
    assert engine.loads[1].target == str(models / "good.gguf")


@needs_pair
async def test_why_no_draft_is_loaded_is_told_in_the_chat(models: Path) -> None:
    """By /model and by the picker: the draft beside the target was measured to lose."""
    good, small = models / "good.gguf", models / "small.gguf"
    small.write_bytes((STORYTELLER / "draft-q8_0.gguf").read_bytes())
    profile = Profile.of(cache_folder("profiles"), [file_fingerprint(one) for one in (good, small)], [])
    profile.trial, profile.prices = Trial({"code": Kind(10.0, 8.0, 6.0)}), Prices({1: 0.1, 2: 0.18, 8: 0.9}, 0.09)
    assert profile.save()
    engine = ScriptedEngine()
    app = app_with(engine)

    def n_told() -> int:
        return sum(
            f"nodraftisloaded:{small}doesnotpayhere" in "".join(str(note.render()).split())
            for note in app.chat.query(Note)
        )

    async with opened(app) as pilot:
        await app.chat.turns.run(f"/model {good}+auto")
        await until(pilot, lambda: n_told() == 1)
        await until(pilot, lambda: len(engine.loads) == 2 and app.chat_state.loaded is not None)
        await app.chat.turns.run("/model storyteller")
        await until(pilot, lambda: len(engine.loads) == 3 and app.chat_state.loaded is not None)
        screen = await picker(pilot)
        screen.query_one(Input).value = str(good)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.chat and n_told() == 2)
    assert [each.draft for each in engine.loads[1::2]] == [None, None]


def test_the_names_of_pairs_take_the_room_that_is_left() -> None:
    name = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
    for width, least in ((60, 30), (80, 26), (120, len(name)), (200, len(name))):
        columns = columns_of(width, len(name))
        assert columns["pair"] >= least
        assert columns["pair"] <= max(26, len(name))
        assert sum(cells + 2 for cells in columns.values()) + 3 <= width
    assert columns_of(200, 5)["pair"] == 26
    assert columns_of(160, len(name), 40)["draft"] == 40
    assert columns_of(60, 80, 40).get("draft") is None


def test_a_name_without_room_keeps_both_its_ends() -> None:
    offer = AvailablePair(
        name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        ref="x",
        origin="file",
        target_bytes=1,
        draft_bytes=1,
        draft="d" * 40,
    )
    row = cells(offer, FreeMemory(), {"pair": 26, "draft": 20})
    assert row["pair"].plain == "qwen2.5-coder…-q4_k_m.gguf"
    assert row["draft"].plain == f"{'d' * 10}…{'d' * 9}"
