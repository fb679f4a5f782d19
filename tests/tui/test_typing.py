"""Tab completes commands, letters typed at a message are written, and a paste without brackets is one message."""

import time
from pathlib import Path

import pytest
from textual._xterm_parser import XTermParser
from textual.events import Event, Key, Paste
from textual.widgets import Input, TextArea

from localspec.chat.commands import TABLE
from localspec.tui.app import LocalspecApp
from localspec.tui.keyboard import HANDS, HELD, SLOW, Burst, Reader
from localspec.tui.widgets.composer import Composer
from localspec.tui.widgets.message import Spoken
from tests.recorded import recorded_expressions
from tests.tui.chats import until
from tests.tui.scripted import ScriptedWorker, ask, made, opened, settled, shown

SPEED = HANDS / 10  # seconds between two keys of a paste, also where a machine is slow
HAND = 2 * HANDS


async def keys(app: LocalspecApp, text: str, gap: float | None) -> None:
    """Send text as a terminal does, a character every `gap` seconds, with None all of it in one read."""
    reader, at = Reader(XTermParser()), 10.0
    for data in [text] if gap is None else text:
        at += gap or 0.0
        for event in reader.read(data.replace("\n", "\r"), at):
            app.post_message(event)
    for event in reader.quiet():
        app.post_message(event)


GAPS = [None, 0.0, SPEED]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("end", ["", "\n"])
async def test_a_paste_without_brackets_is_one_message(end: str, gap: float | None) -> None:
    worker = ScriptedWorker()
    async with opened(worker) as (pilot, app):
        await keys(app, f"def f(x):\n\treturn x\n\nprint(f(1)){end}", gap)
        await settled(pilot)
        assert app.chat.composer.text == f"def f(x):\n\treturn x\n\nprint(f(1)){end}", "and nothing is sent"
        await pilot.press("enter")
        await until(pilot, lambda: len(shown(app)) == 2 and app.chat_state.answering is None)
        sent = [request.messages[-1].content for request in worker.requests]
        assert sent == [f"def f(x):\n\treturn x\n\nprint(f(1)){end}"]


async def test_messages_typed_ahead_by_hand_are_sent_one_by_one() -> None:
    """However late the screen gets to them: what counts is when the terminal was read."""
    async with opened() as (pilot, app):
        await keys(app, "one\ntwo", HAND)
        await until(pilot, lambda: len(shown(app)) == 2 and app.chat_state.answering is None)
        assert (shown(app)[0], app.chat.composer.text) == ("one", "two")


@pytest.mark.parametrize("gap", [*GAPS, HAND])
async def test_commands_sent_in_one_burst_are_run_one_by_one(gap: float | None) -> None:
    async with opened() as (pilot, app):
        await keys(app, "/temp 0.7\n/k 4\n/seed 5\nhello\n", gap)
        await until(pilot, lambda: len(shown(app)) == 2 and app.chat_state.answering is None)
        request = app.chat_state.request
        assert (request.sampling.temperature, request.speculation.k, request.sampling.seed) == (0.7, 4, 5)
        assert shown(app)[0] == "hello"


@pytest.mark.parametrize("gap", GAPS)
async def test_one_line_and_enter_in_a_burst_is_sent(gap: float | None) -> None:
    async with opened() as (pilot, app):
        await keys(app, "hello\n", gap)
        await until(pilot, lambda: len(shown(app)) == 2)
        assert shown(app)[0] == "hello"


async def test_tab_completes_a_command_and_its_values() -> None:
    async with opened() as (pilot, app):
        composer = app.chat.composer
        for typed, completed in (
            ("/sta", "/stats"),
            ("/re", "/re"),
            ("/res", "/res"),
            ("/resu", "/resume "),
            ("/set verify bl", "/set verify block"),
            ("/set tem", "/set temp"),  # or template-arg
            ("/set min", "/set min-p "),
            ("/copy co", "/copy code"),
            ("/nothing", "/nothing"),
            ("/temp ", "/temp "),
        ):
            composer.fill(typed)
            await pilot.press("tab")
            await settled(pilot)
            assert (composer.text, composer.has_focus) == (completed, True)
        composer.fill("/re")
        await pilot.press("tab")
        await settled(pilot)
        assert app.notices.text.split() == ["/resume", "/read", "/regen", "/restart"]
        composer.fill("/set verify t")
        await pilot.press("tab")
        await settled(pilot)
        assert sorted(app.notices.text.split()) == ["token", "traversal", "tree", "typical"]


async def test_tab_completes_names_of_files_with_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is typed stays, and the choices are shown whole."""
    monkeypatch.chdir(tmp_path)
    for name in ("b file.py", "b.py", "bin.dat"):
        (tmp_path / name).write_text("x")
    async with opened() as (pilot, app):
        composer = app.chat.composer
        for typed, completed, choices in (
            ("see @b", "see @b", "b file.py  b.py  bin.dat"),
            ("see @b f", 'see @"b file.py"', ""),
            ("/read b", "/read b", "b file.py  b.py  bin.dat"),
            ("/read b ", "/read b file.py", ""),
        ):
            composer.fill(typed)
            await pilot.press("tab")
            await settled(pilot)
            assert (composer.text, app.notices.text.rstrip()) == (completed, choices)


async def test_tab_completes_a_command_that_comes_in_one_burst() -> None:
    async with opened() as (pilot, app):
        await keys(app, "/sta\t", 0.0)
        await until(pilot, lambda: app.chat.composer.text == "/stats")


async def test_tab_at_anything_else_goes_to_the_messages() -> None:
    async with opened() as (pilot, app):
        await ask(pilot, "go")
        app.chat.composer.fill("half a message")
        await pilot.press("tab")
        await until(pilot, lambda: isinstance(app.focused, Spoken))


def test_every_command_is_completed_and_every_value_is_one() -> None:
    for command in TABLE.commands:
        assert TABLE.completions(f"/{command.name}")[0].rstrip() == f"/{command.name}"
        for line in TABLE.completions(f"/{command.name} "):
            assert line.startswith(f"/{command.name} ")
    assert TABLE.completions("/") == [f"/{each.name}{' ' if each.argument else ''}" for each in TABLE.commands]
    assert TABLE.completions("no command") == []
    assert TABLE.completions("/two\nlines") == []


async def test_a_letter_typed_at_a_message_is_written() -> None:
    """Unless it is one of the keys of a message."""
    async with opened() as (pilot, app):
        answer = await ask(pilot, "go")
        answer.focus()
        await settled(pilot)
        await pilot.press("H")
        await until(pilot, lambda: isinstance(app.focused, Composer))
        await pilot.press("i", "space", "y", "o", "u")
        assert app.chat.composer.text == "Hi you"
        assert len(shown(app)) == 2, "and nothing was regenerated"


@pytest.mark.parametrize("gap", [*GAPS, HAND])
async def test_a_command_typed_at_a_message_is_written_whole(gap: float | None) -> None:
    """However fast: its other letters are keys of a message, as c and y are."""
    async with opened() as (pilot, app):
        answer = await ask(pilot, "go")
        answer.focus()
        await settled(pilot)
        await keys(app, "/copy", gap)
        await settled(pilot)
        assert (app.chat.composer.text, app.notices.text) == ("/copy", "")


@pytest.mark.parametrize(
    ("typed", "written", "sent"), [("early", "early!?", 0), ("a\x1b[Db", "b!?a", 0), ("one\r", "!?", 1), ("", "!?", 0)]
)
async def test_what_is_typed_before_the_first_picture_is_written(typed: str, written: str, sent: int) -> None:
    """By the shell's reader or by hand, in the order in which it came: no field had the keyboard yet."""
    app = made(ScriptedWorker())
    begin, reader = app._begin, Reader(XTermParser())

    async def begin_late() -> None:
        for event in (*reader.read(typed, 10.0), *reader.quiet()) if typed else ():
            assert isinstance(event, Event)
            await app.on_event(event)
        await app.on_event(Key("exclamation_mark", "!"))
        await app.on_event(Paste("?"))
        await begin()

    app._begin = begin_late  # type: ignore[method-assign]
    async with opened(app=app) as (pilot, _):
        await settled(pilot)
        assert app.chat.composer.text == written
        assert len(shown(app)) == 2 * sent


ANSWER, ATTRIBUTES = "\x1b]11;rgb:ffff/ffff/ffff{}", "\x1b[?62;4c"


def seen_of(*reads: str) -> list[str]:
    """Return the text or the key of each event that these reads of a terminal give; "" is a silence."""
    reader, seen = Reader(XTermParser()), []
    for data in reads:
        seen += reader.read(data, 10.0) if data else reader.quiet()
    seen += reader.quiet()
    return [event.text if isinstance(event, Burst) else event.key for event in seen if isinstance(event, Burst | Key)]


@pytest.mark.parametrize("end", ["\x07", "\x1b\\"])
def test_an_answer_of_the_terminal_that_comes_late_is_not_written(end: str) -> None:
    """Over a slow line it comes once the chat has the keyboard. Its colour was typed into the composer."""
    assert seen_of(f"a{ANSWER.format(end)}{ATTRIBUTES}b") == ["ab"]


@pytest.mark.parametrize("end", ["\x07", "\x1b\\"])
def test_an_answer_that_comes_in_several_reads_is_not_written(end: str) -> None:
    """Wherever it is cut, and in single characters. The part behind the cut was typed into the composer."""
    answer = ANSWER.format(end) + ATTRIBUTES
    for cut in range(1, len(answer)):
        assert "".join(seen_of("left", answer[:cut], answer[cut:], "right")) == "leftright", repr(answer[:cut])
    assert seen_of(*answer, "right") == ["right"]


@pytest.mark.parametrize("cut", range(6, len(ANSWER)))
def test_a_terminal_may_take_its_time_within_an_answer(cut: int) -> None:
    answer = ANSWER.format("\x07")
    assert seen_of(answer[:cut], "", answer[cut:], "right") == ["right"]
    assert seen_of(ATTRIBUTES[:3], "", ATTRIBUTES[3:], "right") == ["right"]


@pytest.mark.parametrize("answer", ["\x1b[>0;10;1c", "\x1bP>|tmux 3.4\x1b\\", "\x1b[?1u"])
def test_an_answer_to_another_program_is_not_written(answer: str) -> None:
    """Of a multiplexer or a shell that asked before: wherever it is cut."""
    assert seen_of(answer, "right") == ["right"]
    for cut in range(2, len(answer)):
        assert "".join(seen_of("left", answer[:cut], answer[cut:], "right")) == "leftright", repr(answer[:cut])


def test_an_answer_without_an_end_takes_no_text_with_it() -> None:
    assert seen_of("\x1b]11;rgb:ffff/ff", "", "hello") == ["hello"]


@pytest.mark.parametrize("cut", range(1, len("\x1b[201~")))
def test_a_paste_may_end_late(cut: int) -> None:
    """On a slow line its end comes in two parts. All that was typed behind it went into the paste, for good."""
    reader, end, seen = Reader(XTermParser()), "\x1b[201~", []
    for data in (f"\x1b[200~hello{end[:cut]}", "", f"{end[cut:]}q"):
        seen += reader.read(data, 10.0) if data else reader.quiet()
        reader._parser._timeout_time = reader._parser._timeout_time and 0.0  # a silence longer than its patience
    assert [each.text if isinstance(each, Paste) else each.key for each in seen if isinstance(each, Paste | Key)] == [
        "hello",
        "q",
    ]


def test_what_may_be_a_key_waits_for_its_rest_and_an_answer_for_its_end() -> None:
    reader = Reader(XTermParser())
    later = time.monotonic() + 1000.0
    assert not [*reader.read("\x1b", later), *reader.quiet()], "its time is not over"
    assert reader.patience is not None
    assert reader.patience > 0.0
    assert [event.key for event in reader.read("[A", later) if isinstance(event, Key)] == ["up"]
    assert not [*reader.read("\x1b]11;", later), *reader.quiet()]
    assert reader.patience is None, "the thread sleeps until the answer goes on"


async def test_undo_has_the_key_of_a_shell() -> None:
    async with opened() as (pilot, app):
        await pilot.press(*"words")
        await pilot.press("ctrl+underscore")
        assert app.chat.composer.text == ""


@pytest.mark.parametrize(
    ("read", "left"),
    [
        ("hello\x7f\x7fX", "helX"),
        ("hello\x1b[D\x1b[DX", "helXlo"),
        ("hello\x01X", "Xhello"),
        ("one two\x17X", "one X"),
        ("ab\x1b[D\nc", "a\ncb"),
        ("hello\x1b[D\x1b[D\x1b[3~X", "helXo"),
    ],
)
@pytest.mark.parametrize("field", ["composer", "line", "area"])
async def test_keys_of_one_burst_keep_their_order(read: str, left: str, field: str) -> None:
    async with opened() as (pilot, app):
        if field != "composer":
            await pilot.press({"line": "f8", "area": "ctrl+s"}[field])
            await until(pilot, lambda: app.screen is not app.chat and app.focused is not None)
        reader = Reader(XTermParser())
        for event in (*reader.read(read, 10.0), *reader.quiet()):
            app.post_message(event)
        await settled(pilot)
        written = app.focused
        if field == "line":
            assert isinstance(written, Input)
            assert written.value == (left if "\n" not in left else "acb")
        elif field == "composer" or "\n" not in left:  # Ctrl+J is the composer's own
            assert isinstance(written, TextArea)
            assert written.text == left


@pytest.mark.parametrize("n", [700, 5000])
async def test_a_paste_without_brackets_is_one_edit(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it comes in many reads; and it is sent as it was."""
    worker, text = ScriptedWorker(), "".join(f"line {i} of a text\r" for i in range(n))
    edits: list[str] = []
    edit = Composer.edit
    monkeypatch.setattr(Composer, "edit", lambda self, change: (edits.append(change.text), edit(self, change))[1])
    async with opened(worker) as (pilot, app):
        reader = Reader(XTermParser())
        for at in range(0, len(text), 4096):
            for event in reader.read(text[at : at + 4096], 10.0 + at):
                app.post_message(event)
        for event in reader.quiet():
            app.post_message(event)
        await settled(pilot)
        assert edits == [f"[Pasted {n} lines]"]
        await pilot.press("enter")
        await until(pilot, lambda: bool(worker.requests) and app.chat_state.answering is None)
        assert worker.requests[0].messages[-1].content == text.replace("\r", "\n")


@pytest.mark.parametrize("last", ["}\r", "\r", "the last of it\r"])
async def test_a_paste_in_pieces_is_one_message_whatever_its_last_piece(last: str) -> None:
    """Without brackets, over a slow line: each piece is waited for, and no newline in it sends."""
    async with opened() as (pilot, app):
        reader, text = Reader(XTermParser()), "".join(f"    line {i} {{\r" for i in range(9))
        for at in range(0, len(text), 90):
            assert [*reader.read(text[at : at + 90], 10.0 + at)] == []
            assert reader.patience == SLOW
        for event in (*reader.read(last, 9000.0), *reader.quiet()):
            app.post_message(event)
        await settled(pilot)
        assert app.chat.composer.message == (text + last).replace("\r", "\n")
        assert shown(app) == [], "and nothing is sent"


@pytest.mark.parametrize(("read", "patience"), [("ab", HELD), ("x" * 15, HELD), ("x" * 16, SLOW), ("a\r", SLOW)])
def test_how_long_more_of_a_burst_is_waited_for(read: str, patience: float) -> None:
    """Two keys that are pressed together are shown at once."""
    reader = Reader(XTermParser())
    assert [*reader.read(read, 10.0)] == []
    assert reader.patience == patience


def test_what_is_pasted_between_brackets_is_no_burst() -> None:
    """In however many reads: also one that holds nothing but text, and marks cut in two."""
    data = "\x1b[200~" + "words " * 30 + "\x1b[201~"
    for size in (1, 4, 7, 50, 500):
        reader, seen = Reader(XTermParser()), []
        for at in range(0, len(data), size):
            seen += reader.read(data[at : at + size], 10.0)
        seen += reader.read("typed", 20.0)
        seen += reader.quiet()
        assert [(type(each).__name__, each.text) for each in seen] == [("Paste", "words " * 30), ("Burst", "typed")]


def test_a_key_that_is_held_down_is_no_burst() -> None:
    reader, seen = Reader(XTermParser()), []
    for at in range(5):
        seen += reader.read("x", 10.0 + at * SPEED)
    assert [type(each).__name__ for each in seen] == ["Key"] * 5
    assert reader.patience is None, "the thread sleeps until the next key"


async def test_what_is_typed_before_ctrl_s_is_saved_with_it() -> None:
    """All in one burst: the text of a dialog, and a field of the settings."""
    async with opened() as (pilot, app):
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.screen is not app.chat and isinstance(app.focused, TextArea))
        reader = Reader(XTermParser())
        for event in (*reader.read("Be brief.\x13", 10.0), *reader.quiet()):
            app.post_message(event)
        await until(pilot, lambda: app.chat_state.messages.system == "Be brief.")


test_what_is_recorded = recorded_expressions(__file__, seen_of)
