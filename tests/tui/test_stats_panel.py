"""The figures beside the chat are those of `Stats`, and what was not measured is said to be so."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest
from textual.events import Resize
from textual.geometry import Size

from localspec.chat.message_tree import MessageTree
from localspec.conversations.store import Store
from localspec.engine.events import Committed, Finished, Loaded, Probed, Started, StepMs
from localspec.settings.request import Speculation
from localspec.tui.app import LocalspecApp
from localspec.tui.meter import Meter
from localspec.tui.stats_panel import PANE, cell, pane, strip, verdict
from localspec.tui.trace import Trace
from localspec.tui.widgets.top_bar import Top, TopBar
from localspec.ui.speedup import FEWEST
from localspec.ui.stats import Stats
from localspec.ui.summary import kept_line, live_line, seconds, stats_line, table
from tests.cli.fakes import committed, facts
from tests.tui.chats import shown, until
from tests.tui.scripted import SETTINGS, ScriptedWorker, answers, ask, opened, settled


def trace(*, probes: float | None = 30.0, drafting: bool = True) -> Trace:
    """Return an answer of forty passes of two tokens, 11 ms each; with two plain ones of `probes` ms in each ten."""
    made = Trace(Stats(clock=lambda: 100.0))
    made.observe(0.0, Started("draft-model", "chain", "fixed", 4 if drafting else 0, "block", 1, False, 16))
    for index in range(40):
        k = 4 if drafting and index else 0
        event = replace(committed(index, "one two", k=k, position=2 * index), drafter="draft-model" if k else "")
        made.observe(0.1 * index, event)
        for _ in range(2 if probes and index % 10 == 1 else 0):
            plain = committed(index, "one", k=0, position=2 * index)
            ms = StepMs(0.0, probes or 0.0, 0.0, 0.0)
            made.observe(0.1 * index, replace(plain, plain_ms=probes, ms=ms))
    return made


def test_the_pane_tells_what_stats_counted() -> None:
    made = trace()
    text = pane(made, None, 36).plain
    stats = made.stats
    assert f"PASSES {stats.passes}" in text
    assert f"{stats.tokens_per_pass:.2f} tokens a pass" in text
    assert f"{stats.accepted} of {stats.drafted} right" in text
    assert f"{stats.speedup:.2f}× plain" in text
    assert "plain 33.3 tok/s\n timed in 8 passes\n" in text
    assert "A PASS" in text
    assert f"accepted {stats.by_source['accepted']}" in text
    assert all(len(line) <= 36 for line in text.split("\n"))


RATE = re.compile(r"\d tok/s|\d tokens a pass|\d %|A PASS \d|ms a pass")


@pytest.mark.parametrize("passes", [2, 5, 8, 9, 30])
def test_a_rate_is_told_from_eight_passes_on_and_by_every_face(passes: int) -> None:
    """The pane told 897 tok/s after three tokens."""
    made = Trace(Stats(clock=lambda: 100.0))
    made.observe(0.0, Started("draft-model", "chain", "fixed", 4, "block", 1, False, 16))
    for index in range(passes):
        k = 4 if index else 0
        made.observe(0.1 * index, replace(committed(index, "one two", k=k, position=2 * index), drafter="draft-model"))
    stats = made.stats
    kept = {
        "timings": {"predicted_n": stats.emitted, "predicted_per_second": 9.0, "draft_n": 4, "draft_n_accepted": 3},
        "spec": {"passes": stats.passes, "drafting_passes": stats.drafting_passes, "tokens_per_pass": 1.5},
    }
    faces = [pane(made, None, 36).plain, strip(made, 100).plain, cell(made).plain, live_line(stats), stats_line(stats)]
    for face in (*faces, table(stats), kept_line(kept)):
        assert bool(RATE.search(face)) == (passes > FEWEST), face


def test_a_speedup_that_was_not_measured_is_not_shown() -> None:
    text = pane(trace(probes=None), None, 36).plain
    assert "×" not in text
    assert "speedup unknown: too few plain\n passes, 0 of 8" in text


def test_what_drafted_nothing_is_not_said_to_lack_a_measurement() -> None:
    made = Trace(Stats(clock=lambda: 100.0))
    made.observe(0.0, Started("suffix", "chain", "fixed", 4, "match", 7, False, 16))
    for index in range(6):
        made.observe(0.1 * index, committed(index, "one", k=0, position=index))
    for _ in range(7):
        made.observe(1.0, Probed(10.0, 18))
    assert "plain 100.0" not in pane(made, None, 36).plain, "of too few passes no rate is told"
    made.observe(1.0, Probed(10.0, 18))
    text = pane(made, None, 36).plain
    assert "plain 100.0 tok/s\n timed in 8 passes\n" in text
    assert "not measured" not in text
    made.observe(2.0, Finished("stop", "", 100.0, 20.0, 0))
    assert verdict(made) == "Nothing was guessed."
    assert "speed        nothing was guessed" in table(made.stats)


def test_plain_decoding_claims_nothing() -> None:
    made = trace(probes=None, drafting=False)
    assert "plain decoding" in pane(made, None, 36).plain
    assert "×" not in strip(made, 80).plain


@pytest.mark.parametrize(
    ("plain_ms", "words"),
    [(30.0, "3.86 times as fast"), (5.5, "about the speed of plain"), (3.0, "slower: 0.57 times"), (3.0, "F6 turns")],
)
def test_the_verdict_in_words(plain_ms: float, words: str) -> None:
    assert words in verdict(trace(probes=plain_ms))


def test_the_controllers_own_verdict_stands_alone_where_no_speedup_was_measured() -> None:
    made = trace(probes=None)
    made.observe(2.0, Finished("stop", "", 100.0, 10.0, 0, verdict="parked: a draft token costs 0.40\x1b"))
    assert verdict(made) == "Parked: a draft token costs 0.40␛."


def test_under_auto_the_pane_names_what_was_asked_and_what_was_done() -> None:
    made = trace()
    assert "asked for: auto · chain · block\n guessed: draft-model 156\n" in pane(made, None, 36).plain
    made.request = replace(made.request, speculation=Speculation(method="draft-model"))
    assert "draft-model k 4 · chain · block" in pane(made, None, 36).plain
    assert "asked" not in pane(made, None, 36).plain


def test_the_strip_has_two_lines_that_fit() -> None:
    for width in (72, 80, 100):
        lines = strip(trace(), width).plain.split("\n")
        assert len(lines) == 2
        assert all(len(line) <= width for line in lines)


def test_the_rate_is_of_the_window_and_a_pause_is_no_decoding() -> None:
    meter = Meter()
    for tick in range(100):
        meter.observe(tick * 0.1, 2)
    assert meter.rate == pytest.approx(20.0, rel=0.1)
    meter.observe(1000.0, 2)
    assert meter.rate is None
    meter.observe(1000.1, 2)
    assert meter.rate == pytest.approx(20.0, rel=0.1)
    assert set(meter.sparkline(8)) <= set("▁▂▃▄▅▆▇█")


def test_tokens_that_were_read_together_make_no_rate_of_their_own() -> None:
    meter = Meter()
    for frame in range(31):
        for nth in range(3):
            meter.observe(frame / 30 + 0.001 * nth, 1)
    assert meter.rate == pytest.approx(90.0)


async def test_the_app_shows_what_the_line_below_an_answer_says() -> None:
    async with opened(ScriptedWorker()) as (pilot, app):
        answer = await ask(pilot, "go")
        stats = app.engine.traces[answer.entry.id].stats
        note = answer.query_one(".note")
        assert str(note.render()) == stats_line(stats, note.size.width)
        figures = str(app.chat.query_one("#figures").render())
        assert f"PASSES {stats.passes}" in figures
        assert "speedup unknown: too few plain" in figures


@pytest.mark.parametrize("columns", [80, 100, 160])
async def test_the_figures_below_an_answer_take_one_line(columns: int) -> None:
    """How an answer ended is always told."""
    async with opened(ScriptedWorker(), size=(columns, 24)) as (pilot, app):
        answer = await ask(pilot, "go")
        note = answer.query_one(".note")
        await until(pilot, lambda: note.size.height == 1)
        stats = app.engine.traces[answer.entry.id].stats
        for part in ("9 tokens", "6 of 8 guesses right", seconds(stats.waited, is_brief=True).partition(" (")[0]):
            assert part in str(note.render())
        assert stats.finished is not None
        stats.finished = replace(stats.finished, reason="length")
        lines = [stats_line(stats, width) for width in range(200)]
        assert all(len(line) <= max(width, 40) for width, line in enumerate(lines))
        assert all(line.endswith("cut off by max-tokens") for line in lines)
        assert lines[-1] == stats_line(stats)


def test_a_long_name_is_shown_whole_and_a_pair_that_loads_is_not_missing() -> None:
    name = "Some-Very-Long-Name-of-a-Model-Instruct-v2.5-UD-Q4_K_M.gguf"
    loaded = Loaded("x", replace(facts("/t.gguf"), path=f"/models/{name}"), None, 8, 1, 1.0, {})
    shown = pane(None, loaded, 35).plain
    assert name in shown.replace("\n ", "")
    assert max(map(len, shown.split("\n"))) <= 35
    assert "no pair" not in pane(None, None, 35, is_loading=True).plain


async def test_the_figures_give_way_to_small_terminals() -> None:
    async with opened(ScriptedWorker()) as (pilot, app):
        await ask(pilot, "go")
        seen = {}
        for size in ((120, 40), (80, 24), (60, 20), (50, 20), (80, 12), (20, 5)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            names = ("top", "figures", "strip", "cell", "composer", "small")
            seen[size] = [name for name in names if app.chat.query_one(f"#{name}").region.area]
        assert seen == {
            (120, 40): ["top", "figures", "composer"],
            (80, 24): ["top", "strip", "composer"],
            (60, 20): ["top", "composer"],
            (50, 20): ["cell", "composer"],
            (80, 12): ["cell", "composer"],
            (20, 5): ["small"],
        }


@pytest.mark.parametrize("small", [(20, 5), (120, 5), (20, 40)])
async def test_a_terminal_that_is_too_small_for_a_while_loses_nothing_that_is_typed(small: tuple[int, int]) -> None:
    """Also where it grows again before the screen has taken the keyboard from what it hides."""
    async with opened(ScriptedWorker()) as (pilot, app):
        await pilot.press(*"abc")
        await pilot.resize_terminal(*small)
        await pilot.pause()
        assert "Ctrl+Q" in str(app.chat.query_one("#small").render())
        await pilot.press(*"de")
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        await pilot.press("f")
        assert app.chat.composer.text == "abcdef"
        for size in (small, (120, 40)):
            app.chat.post_message(Resize(Size(*size), Size(*size)))
        await pilot.pause()
        await pilot.press("g")
        assert app.chat.composer.text == "abcdefg"


async def test_the_keyboard_goes_from_a_hidden_message_to_what_is_being_written() -> None:
    async with opened(ScriptedWorker()) as (pilot, app):
        await ask(pilot, "go")
        answers(app)[-1].focus()
        await pilot.resize_terminal(20, 5)
        await pilot.pause()
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        await pilot.press(*"abc")
        assert app.chat.composer.text == "abc"


async def test_figures_of_another_pair_are_not_shown_as_this_ones() -> None:
    async with opened(ScriptedWorker()) as (pilot, app):
        answer = await ask(pilot, "go")
        used = app.engine.traces[answer.entry.id].stats.context_n
        assert f"ctx {used}/1024" in str(app.chat.query_one("#top").render())
        app.engine.switch_pair(replace(SETTINGS, target="/models/other.gguf", name="other"))
        await until(pilot, lambda: " other" in str(app.chat.query_one("#top").render()))
        await until(
            pilot,
            lambda: not app.engine.worker_thread.is_busy and "ctx 0/" in str(app.chat.query_one("#top").render()),
        )
        assert "SPEED" not in str(app.chat.query_one("#figures").render())
        await ask(pilot, "go on")
        assert "SPEED" in str(app.chat.query_one("#figures").render())


@pytest.mark.parametrize(
    ("size", "places"),
    [
        ((120, 40), [["strip"], [], ["figures"]]),
        ((80, 24), [[], ["strip"], []]),
        ((66, 24), [["strip"], [], ["strip"]]),
        ((40, 12), [[], [], []]),
    ],
)
async def test_each_f2_changes_where_the_figures_are(size: tuple[int, int], places: list[list[str]]) -> None:
    """Or says why it does not; it says where they are now."""
    async with opened(ScriptedWorker(), size=size) as (pilot, app):
        await ask(pilot, "go")
        seen = []
        for _ in range(3):
            await pilot.press("f2")
            await settled(pilot)
            seen.append([name for name in ("figures", "strip") if app.chat.query_one(f"#{name}").region.area])
            assert ("too small" if size[0] < 60 else "F2 changes that") in app.notices.text
        assert seen == places


def is_new(app: LocalspecApp, before: str) -> bool:
    return shown(app) != before


@pytest.mark.parametrize("has_answer", [False, True])
async def test_each_key_of_the_line_below_does_something_that_one_sees(has_answer: bool) -> None:
    """The first time too, on 80 columns and without an answer."""
    keys = [f"f{n}" for n in range(1, 13) if n not in (10, 11)]
    async with opened(ScriptedWorker(), size=(80, 24)) as (pilot, app):
        if has_answer:
            await ask(pilot, "go")
        for key in keys:
            app.say("")
            await settled(pilot)
            before = shown(app)
            await pilot.press(key)
            await until(pilot, partial(is_new, app, before))
            while app.screen is not app.chat:
                await pilot.press("escape")
                await settled(pilot)
            await until(pilot, lambda: not app.engine.worker_thread.is_busy)


async def test_reasoning_is_folded_and_unfolds() -> None:
    passes = ["<think>", "Let me", " think.", "</think>", "\n\nYes", ", it is."]
    async with opened(ScriptedWorker(passes=passes)) as (pilot, app):
        answer = await ask(pilot, "go")
        folded = str(answer.query_one(".thought").render())
        assert "thought, 3 words" in folded
        assert "Let me" not in folded
        answer.focus()
        await pilot.press("t")
        await pilot.pause()
        assert "Let me think." in str(answer.query_one(".thought").render())
        assert app.chat_state.last_answer is not None
        assert app.chat_state.last_answer.text == "Yes, it is."
        assert app.chat_state.last_answer.reasoning == "Let me think."


async def test_ordinary_text_keeps_its_tags() -> None:
    """Only a template makes them marks; here nothing has opened reasoning."""
    async with opened(ScriptedWorker(passes=["I say", " </think> is a tag"])) as (pilot, app):
        answer = await ask(pilot, "go")
        assert not answer.query_one(".thought").display
        assert app.chat_state.last_answer is not None
        assert app.chat_state.last_answer.text == "I say </think> is a tag"


async def test_reasoning_of_a_kept_answer_is_shown_again() -> None:
    with Store.open(None) as store:
        async with opened(ScriptedWorker(passes=["<think>Hm", "</think>", "Yes."]), store=store) as (pilot, _):
            await ask(pilot, "go")
            found = store.conversations()[0]
            restored = MessageTree.restored(found, store.messages(found.id)).path()[-1]
        assert (restored.text, restored.reasoning) == ("Yes.", "Hm")


def test_a_pass_that_only_drafted_is_counted_as_stats_does() -> None:
    event: Committed = replace(committed(1, "a b"), n_accepted=1)
    made = Trace(Stats())
    made.observe(0.0, event)
    assert [origin.source for origin in made.origins] == ["draft", "corrected"]


def test_an_answer_cut_off_by_n_says_so() -> None:
    made = trace()
    made.observe(1.0, Finished("stop", "", 100.0, 20.0, 0))
    assert "cut off" not in stats_line(made.stats)
    made.observe(1.0, Finished("length", "", 100.0, 20.0, 0))
    assert stats_line(made.stats).endswith(" · cut off by max-tokens")


LONG = "/models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"


async def test_the_pane_has_the_width_that_its_lines_are_made_for() -> None:
    async with opened(size=(120, 40)) as (_pilot, app):
        assert app.chat.query_one("#figures").content_size.width == PANE
        loaded = app.chat_state.loaded
        assert loaded is not None
        lines = pane(None, replace(loaded, target=replace(loaded.target, path=LONG)), PANE).plain.split("\n")
        assert " qwen2.5-coder-1.5b-instruct-q4_k_m" in lines
        assert " .gguf" in lines
        assert " none; /draft NAME loads one" in lines
        for file in (f"/models/blobs/sha256-{'a1' * 32}", f"/cache/vocabularies/{'a1' * 32}.gguf"):
            hashed = replace(loaded, name="story:latest+none", target=replace(loaded.target, path=file))
            assert pane(None, hashed, PANE).plain.split("\n")[1] == " story:latest", "a hash says nothing to people"
        assert all(len(line) <= PANE for line in lines)


@pytest.mark.parametrize("width", [80, 120])
async def test_a_long_name_leaves_room_for_the_context_and_what_goes_on(width: int) -> None:
    name = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf+qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    async with opened(size=(width, 24)) as (_pilot, app):
        bar = app.chat.query_one(TopBar)
        bar.show(Top(name, app.chat_state.loaded, 0, 0, "answering", "autosaved"))
        line = str(bar.render())
        assert "ctx 0/1024" in line
        assert line.endswith("answering ● autosaved ")
        assert "qwen2.5-code" in line
        assert len(line) == width
        bar.show(Top(name, app.chat_state.loaded, 0, 0, "reading 1 423 of 2 423 tokens, 16 tok/s", "autosaved"))
        line = str(bar.render())
        assert "qwen2.5-code" in line
        assert "reading 1 423 of 2 423 tokens, 16 tok/s ●" in line, "no figure is cut"
