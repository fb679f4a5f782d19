"""Writing a message: newlines, history, and what is pasted."""

import time

import pytest
from textual import events
from textual.binding import Binding
from textual.widgets import TextArea

from localspec.tui.app import LocalspecApp
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.widgets.composer import Composer
from localspec.tui.widgets.message import UserMessage
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, ask, opened, plain, shown


async def paste(composer: Composer, text: str) -> None:
    await composer._on_paste(events.Paste(text))


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j", "alt+enter"])
async def test_keys_for_a_newline(key: str) -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await pilot.press("a", key, "b")
        assert app.chat.composer.text == "a\nb"
        assert not worker.requests


async def test_a_backslash_before_enter_goes_on_in_the_next_line() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await pilot.press("a", "backslash", "enter", "b")
        await pilot.pause()
        assert app.chat.composer.text == "a\nb"
        assert not worker.requests


async def test_blank_messages_are_not_sent() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await pilot.press("enter", "space", "enter")
        assert not worker.requests
        assert shown(app) == []


async def test_history_keeps_what_was_being_written() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "first")
        await ask(pilot, "second\nof two lines")
        app.chat.composer.fill("draft")
        seen = []
        for key in ("up", "up", "up", "up", "down", "down", "down", "down"):
            await pilot.press(key)
            seen.append(app.chat.composer.text)
        assert seen[0] == "second\nof two lines"
        assert seen[2] == "first"
        assert seen[-1] == "draft"


async def test_a_short_paste_is_text_and_sends_nothing() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (_pilot, app):
        await paste(app.chat.composer, "two\r\nlines\n")
        assert app.chat.composer.text == "two\nlines\n"
        assert not worker.requests


async def test_a_paste_cannot_steer_the_terminal() -> None:
    async with opened() as (_pilot, app):
        await paste(app.chat.composer, "a\x1b]52;c;AAAA\x07b\u202ec")
        assert app.chat.composer.text == "a␛]52;c;AAAA␇b\\u{202e}c"


async def test_long_pastes_become_chips_that_are_sent_whole() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        text = "\n".join(f"line {n}" for n in range(143)) + "\n"  # a last line end begins no line
        await paste(app.chat.composer, text)
        assert app.chat.composer.text == "[Pasted 143 lines]"
        await paste(app.chat.composer, text[:-1] + "!")
        assert app.chat.composer.text == "[Pasted 143 lines][Pasted 143 lines #2]"
        await pilot.press("enter")
        await until(pilot, lambda: bool(worker.requests) and app.chat_state.answering is None)
        assert worker.requests[0].messages[0].content == text + text[:-1] + "!"
        assert "more lines" in plain(app.chat.query(UserMessage).first(), "note")


@pytest.mark.parametrize("paste_of", ["\n".join(f"line {n}" for n in range(300)), "x" * 9000])
@pytest.mark.parametrize("typed", [("Before: ", ""), ("", " And after?"), ("", "\nAnd after?")])
async def test_the_question_beside_a_long_paste_stays_in_sight(typed: tuple[str, str], paste_of: str) -> None:
    async with opened() as (pilot, app):
        composer = app.chat.composer
        composer.insert(typed[0])
        await paste(composer, paste_of)
        composer.insert(typed[1])
        await pilot.press("enter")
        await until(pilot, lambda: len(shown(app)) == 2 and app.chat_state.answering is None)
        seen = "\n".join(str(part.render()) for part in app.chat.query(UserMessage).first().query(".text"))
        assert (typed[0] + typed[1]).strip() in seen
        assert len(seen) < 2500


async def test_what_was_pasted_may_hold_the_name_of_a_chip() -> None:
    async with opened() as (_pilot, app):
        log, other = "see [Pasted 13 lines]\n" * 13, "\n".join("B" * 13)
        for text in ("see [Pasted 13 lines #2]: ", log, " and ", other, "[Pasted 13 lines]"):
            await paste(app.chat.composer, text)
        assert app.chat.composer.message == f"see [Pasted 13 lines #2]: {log} and {other}[Pasted 13 lines]"


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        ("backspace", "a b"),
        ("left left backspace", "a b"),
        ("left delete", "a b"),
        ("left x", "a CHIPx b"),
        ("left ctrl+j", "a CHIP\n b"),
        ("home right right delete", "a b"),
        ("ctrl+w", "a b"),
        ("x", "a CHIPx b"),
        ("backspace ctrl+underscore", "a CHIP b"),
    ],
)
async def test_a_chip_is_deleted_as_a_whole_and_nothing_is_written_into_it(keys: str, left: str) -> None:
    async with opened() as (pilot, app):
        text = "\n".join(f"line {n}" for n in range(13))
        app.chat.composer.fill("a  b")
        app.chat.composer.move_cursor((0, 2))
        await paste(app.chat.composer, text)
        app.chat.composer.move_cursor((0, 2 + len("[Pasted 13 lines]")))
        await pilot.press(*keys.split())
        if "CHIP" not in left:
            assert app.chat.composer.message.replace("  ", " ") == left
        else:
            assert app.chat.composer.message == left.replace("CHIP", text)


async def test_what_shows_nothing_is_seen_and_sent_as_it_was_pasted() -> None:
    worker, text = ScriptedWorker(), "\u05e9\u05dc\u05d5\u05dd\u200f (a) soft\u00adhyphen \u200b!"
    async with opened(worker) as (pilot, app):
        await paste(app.chat.composer, text)
        assert app.chat.composer.text == "שלום\\u{200f} (a) soft\\u{ad}hyphen \\u{200b}!"
        await pilot.press("backspace", "!", "enter")
        await until(pilot, lambda: bool(worker.requests) and app.chat_state.answering is None)
        assert worker.requests[0].messages[0].content == text
        await pilot.press("up", "backspace", "backspace", "enter")
        await until(pilot, lambda: len(worker.requests) == 2 and app.chat_state.answering is None)
        assert worker.requests[1].messages[-1].content == text[:-2]


async def test_200_kb_in_one_line_leave_the_keyboard_quick() -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        began = time.monotonic()
        await paste(app.chat.composer, "x" * 200_000)
        await pilot.press(*"abcdefgh")
        assert app.chat.composer.text == "[Pasted 200000 characters]abcdefgh"
        assert len(app.chat.composer.message) == 200_008
        assert time.monotonic() - began < 60  # a text area that held it all would take as long for a few keys
        await pilot.press("enter")
        await until(pilot, lambda: bool(worker.requests) and app.chat_state.answering is None)
        assert len(worker.requests[0].messages[0].content) == 200_008


async def test_control_d_leaves_only_where_nothing_is_written() -> None:
    async with opened() as (pilot, app):
        await pilot.press("a", "left", "ctrl+d")
        await pilot.pause()
        assert app.is_running
        assert app.chat.composer.text == ""
        await pilot.press("ctrl+d")
        await pilot.pause()
        assert app.return_value == 0


async def test_control_c_copies_what_is_selected_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr("textual.app.App.copy_to_clipboard", lambda self, text: copied.append(text))
    async with opened() as (pilot, app):
        await pilot.press(*"a word", "shift+left", "shift+left", "ctrl+c")
        assert copied == ["rd"]
        assert app.chat.composer.text == "a word"
        await pilot.press("ctrl+c")
        assert app.chat.composer.text == ""
        await pilot.press("up")
        assert app.chat.composer.text == "a word"
        await pilot.press("ctrl+f", *"name", "shift+left", "ctrl+c")
        assert copied == ["rd", "e"]


@pytest.mark.parametrize("keys", ["f1", "f4", "f8", "f9", "f12", "ctrl+f", "ctrl+o", "ctrl+p", "ctrl+s"])
async def test_control_c_elsewhere_leaves_what_is_written_alone(keys: str) -> None:
    async with opened() as (pilot, app):
        app.chat.composer.fill("a message")
        await pilot.press(keys)
        await until(pilot, lambda: app.screen is not app.chat)
        for _ in range(4):  # a race is stopped first
            if app.screen is not app.chat:
                await pilot.press("ctrl+c")
                await until(pilot, lambda: not app.engine.worker_thread.is_busy)
        assert app.screen is app.chat
        assert app.chat.composer.text == "a message"


async def test_control_c_clears_then_leaves() -> None:
    async with opened() as (pilot, app):
        await pilot.press("a", "ctrl+c")
        assert app.chat.composer.text == ""
        await pilot.press("ctrl+c")
        assert app.return_value is None
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app.return_value == 0


async def test_what_is_typed_right_after_enter_is_neither_lost_nor_glued() -> None:
    """Nothing waits between the keys, as where a slow machine reads several at once."""
    worker = ScriptedWorker(hold_at=1)
    async with opened(worker) as (pilot, app):
        composer = app.chat.composer
        for text in ("/temp 0.25", "/k 4", "go", "more"):
            composer.insert(text)
            composer.action_send()
        composer.insert("half")
        await until(pilot, lambda: app.chat_state.answering is not None and composer.text == "half")
        assert app.chat.turns.waiting == "more"
        assert (app.chat_state.request.sampling.temperature, app.chat_state.request.speculation.k) == (0.25, 4)
        assert shown(app)[0] == "go"
        worker.go.set()
        await until(pilot, lambda: app.chat_state.answering is None)


def keys_of(*classes: type) -> set[str]:
    """Return the keys that act after those of the widget with the keyboard."""
    bindings = [each for cls in classes for each in Binding.make_bindings(cls.__dict__["BINDINGS"])]
    return {each.key for each in bindings if not each.priority}


def test_a_text_area_takes_no_key_of_the_chat() -> None:
    """The help lists them, and the composer has the keyboard most of the time."""
    own = {each.key for each in Binding.make_bindings(Composer.__dict__["BINDINGS"])}
    assert keys_of(TextArea) & keys_of(ChatScreen, LocalspecApp) - own == set()


async def test_home_and_end_go_through_the_line_or_the_chat() -> None:
    async with opened(ScriptedWorker(passes=["one\n\n"] * 40), size=(80, 24)) as (pilot, app):
        await ask(pilot, "go")
        await pilot.press("home")
        await until(pilot, lambda: app.chat.transcript.scroll_offset.y == 0)
        await pilot.press("end")
        await until(pilot, lambda: app.chat.transcript.scroll_offset.y > 0)
        await pilot.press("a", "b", "home", "c", "end", "d")
        assert app.chat.composer.text == "cabd"
