"""The live status on a real terminal: it is there while text comes, never in the text, and gone at the end."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
from pathlib import Path

import pytest

from localspec.cli.console import Console
from localspec.cli.live import Live
from tests.cli.harness import FAKE, REAL, Terminal, children, needs_pair, wait_for

WORDS = ["the", "king", "and", "his", "daughter", "went", "into", "a", "forest", "where", "nobody", "had", "been"]


def passes(n: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    made = [" ".join(chance.choices(WORDS, k=chance.randint(1, 4))) for _ in range(n)]
    return [made[0], *(f" {text}" for text in made[1:])]


def wrapped(text: str, columns: int) -> list[str]:
    """Return `text` as a terminal breaks it: at the edge, whatever stands there."""
    lines = []
    for line in text.split("\n"):
        lines += [line[i : i + columns].rstrip() for i in range(0, max(1, len(line)), columns)]
    return lines


def by_words(text: str, columns: int) -> list[str]:
    """Return `text` with as many words a line as leave the last column free; the terminal breaks longer words."""
    lines = []
    for paragraph in text.split("\n"):
        lines.append("")
        for word in paragraph.split(" "):
            is_room = len(lines[-1]) + 1 + len(word) < columns
            if lines[-1] and is_room:
                lines[-1] += f" {word}"
            elif lines[-1]:
                lines.append(word)
            else:
                lines[-1] = word
            lines[-1:] = wrapped(lines[-1], columns)
    return lines


def fake(
    texts: list[str], *args: str, pause: float = 0.02, columns: int = 80, rows: int = 24, keeps_frames: bool = False
) -> Terminal:
    env = {"FAKE_PASSES": json.dumps(texts), "FAKE_PAUSE": str(pause)}
    return Terminal(["run", *args, "a story"], env=env, columns=columns, rows=rows, keeps_frames=keeps_frames)


def body(terminal: Terminal) -> list[str]:
    """Return the lines of the answer: all but the stats line, which may be wrapped."""
    lines = terminal.lines
    start = next(i for i, line in enumerate(lines) if " tok" in line and "·" in "".join(lines[i : i + 2]))
    return lines[:start]


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (80, 6), (33, 10), (12, 5), (5, 4), (200, 50)])
def test_text_is_whole_and_the_status_gone(columns: int, rows: int) -> None:
    texts = passes(60)
    terminal = fake(texts, "--no-stats", columns=columns, rows=rows)
    assert terminal.wait() == 0
    assert terminal.lines == by_words("".join(texts), columns)
    terminal.assert_clean()


def test_the_status_is_below_the_text_while_it_comes() -> None:
    terminal = fake(passes(60), pause=0.03, keeps_frames=True)
    assert terminal.wait() == 0
    seen = [frame for frame in terminal.frames if any("tok/s" in line for line in frame)]
    assert len(seen) > 10
    with_status = [line for frame in seen[:-2] for line in frame if "tok/s" in line]
    assert all(line.lstrip()[0].isdigit() and "·" in line for line in with_status)  # on a line of its own
    assert sum("tok/s" in line for line in terminal.lines) == 1


def test_the_stats_line_follows_the_text() -> None:
    texts = passes(10)
    terminal = fake(texts)
    assert terminal.wait() == 0
    assert body(terminal) == by_words("".join(texts), 80)
    (line,) = (line for line in terminal.lines if "tok/s" in line)
    assert "of guesses right" in line
    assert " s (" in line, "where the seconds went goes before a speedup that is not known"
    assert terminal.text.count("words: localspec explain") == 1
    assert "(plain 100.0 tok/s" not in terminal.text
    every = fake(texts, "--stats")
    assert every.wait() == 0
    assert "too few plain passes" in " ".join(every.text.split())
    assert "(plain 100.0 tok/s" not in every.text, "of two passes no rate is told"


def test_exact_right_edge_and_newlines() -> None:
    texts = ["x" * 20, "y" * 20, "z" * 19, "!", "\n", "a" * 20 + "\n", "\n\n", "b" * 41, "c\n"]
    terminal = fake(texts, "--no-stats", pause=0.12, columns=20, rows=8)
    assert terminal.wait() == 0
    expected = ["x" * 20, "y" * 20, "z" * 19 + "!", "a" * 20, "", "", "b" * 20, "b" * 20, "bc"]
    assert terminal.lines == expected


def test_wide_and_odd_characters_lose_no_text() -> None:
    texts = ["漢字" * 9, " — “quoted”… ", "👩‍👩‍👧", "日本語" * 5, "\n", "e\u0301" * 10, " fin"]
    terminal = fake(texts, "--no-stats", pause=0.12, columns=24, rows=12)
    assert terminal.wait() == 0
    assert "fin" in terminal.lines[-1]
    shown = "".join(terminal.lines).replace(" ", "")
    for part in ("漢字" * 9, "“quoted”…", "日本語" * 5):
        assert part.replace(" ", "") in shown


def test_resizing_while_text_comes_leaves_no_status() -> None:
    terminal = fake(passes(60), "--no-stats", pause=0.03, columns=80, rows=20)
    for i in range(20):
        terminal.read(0.05)
        terminal.resize(*((50, 12) if i % 2 else (90, 20)))
    assert terminal.wait() == 0
    assert "tok/s" not in terminal.text


def test_the_status_of_the_prompt_is_gone_once_text_comes() -> None:
    terminal = fake(["Once", " upon a", " time there"], pause=0.5, keeps_frames=True)
    assert terminal.wait() == 0
    seen = ["\n".join(frame) for frame in terminal.frames]
    assert not [frame for frame in seen if "Once" in frame and "reading the prompt" in frame]
    assert any("Once upon a" in frame and "4 tokens ·" in frame and "there" not in frame for frame in seen)


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"ACCESSIBLE": "1"}])
def test_no_status_where_nothing_may_be_redrawn(env: dict[str, str]) -> None:
    texts = passes(20)
    terminal = Terminal(["run", "--no-stats", "a story"], env={**env, "FAKE_PASSES": json.dumps(texts)})
    assert terminal.wait() == 0
    assert b"\x1b" not in terminal.output
    shape = wrapped if "ACCESSIBLE" in env else by_words  # a screen reader is given whole sentences
    assert terminal.lines == shape("".join(texts), 80)


def test_quiet_is_the_text_alone() -> None:
    terminal = fake(["hello ", "world"], "-q")
    assert terminal.wait() == 0
    assert terminal.output == b"hello world\r\n"


def test_no_color_keeps_the_status() -> None:
    terminal = Terminal(["run", "a"], env={"NO_COLOR": "1", "FAKE_PAUSE": "0.1"})
    assert terminal.wait() == 0
    assert b" tokens " in terminal.output
    assert not re.search(rb"\x1b\[[0-9;]*m", terminal.output)


def test_status_on_the_terminal_text_in_a_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f'exec "$0" "$@" > {out}'
    texts = passes(20)
    terminal = Terminal(
        ["run", "a story"],
        program=["bash", "-c", script, *FAKE],
        env={"FAKE_PASSES": json.dumps(texts), "FAKE_PAUSE": "0.03"},
    )
    assert terminal.wait() == 0
    assert out.read_text() == "".join(texts) + "\n"
    assert b"tok/s" in terminal.output
    assert terminal.text.count("tok/s") == 1  # of the stats line alone


@pytest.mark.parametrize("when", ["loading", "generating"])
def test_control_c_keeps_the_text_and_exits_130(when: str) -> None:
    env = {"FAKE_PAUSE": "300", "FAKE_LOAD_PAUSE": "3" if when == "loading" else "0"}
    terminal = Terminal(["run", "a"], env=env)
    terminal.wait_for(lambda: ("loading" if when == "loading" else "Once") in terminal.text)
    terminal.type("\x03")
    assert terminal.wait() == 130
    assert "stopped" in terminal.lines[-1]
    if when == "generating":
        assert terminal.lines[0].startswith("Once upon")
    terminal.assert_clean()


def test_second_control_c_leaves_at_once(tmp_path: Path) -> None:
    is_heard = tmp_path / "heard"
    deaf = {"FAKE_DEAF": "1", "FAKE_PAUSE": "60", "FAKE_CANCELS": str(is_heard)}
    terminal = Terminal(["run", "a"], env=deaf)
    terminal.wait_for(lambda: "Once" in terminal.text)
    terminal.type("\x03")
    terminal.wait_for(lambda: "^C" in terminal.text)
    wait_for(is_heard.exists)
    assert terminal.process.poll() is None
    terminal.type("\x03")
    assert terminal.wait() == 130
    assert "tok/s" not in terminal.text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_termination_leaves_the_terminal_clean(number: signal.Signals, code: int) -> None:
    terminal = Terminal(["run", "--no-stats", "a"], env={"FAKE_PAUSE": "5"})
    terminal.wait_for(lambda: "Once" in terminal.text)
    terminal.signal(number)
    assert terminal.wait() == code
    assert terminal.lines == ["Once upon"]
    terminal.assert_clean()


def test_a_second_termination_ends_a_deaf_engine(tmp_path: Path) -> None:
    is_heard = tmp_path / "heard"
    terminal = Terminal(["run", "a"], env={"FAKE_PAUSE": "60", "FAKE_DEAF": "1", "FAKE_CANCELS": str(is_heard)})
    terminal.wait_for(lambda: "Once" in terminal.text)
    terminal.signal(signal.SIGTERM)
    wait_for(is_heard.exists)
    assert terminal.process.poll() is None
    terminal.signal(signal.SIGTERM)
    assert terminal.wait() == 143
    assert terminal.lines == ["Once upon"]
    terminal.assert_clean()


def test_a_dead_worker_keeps_the_text() -> None:
    terminal = Terminal(["run", "a"], env={"FAKE_DIES": "2", "FAKE_PAUSE": "0.2"})
    assert terminal.wait() == 9
    assert terminal.lines[0] == "Once upon a time there"
    assert terminal.text.count("localspec:") == 1
    assert "SIGKILL" in terminal.text
    terminal.assert_clean()


def test_timeout_ends_with_124() -> None:
    terminal = Terminal(["run", "--timeout", "0.4", "a"], env={"FAKE_PAUSE": "0.3"})
    assert terminal.wait() == 124
    assert "stopped by --timeout" in terminal.lines[-1]


def test_control_characters_are_shown() -> None:
    terminal = fake(["a\x1b]0;title\x07b", "\x9b2Jc", "d\u202ee"], "--no-stats")
    assert terminal.wait() == 0
    assert "␛]0;title␇" in terminal.text
    assert b"\x1b]0;" not in terminal.output
    assert "\x9b".encode() not in terminal.output


@needs_pair
def test_the_real_pair_on_a_narrow_terminal() -> None:
    args = ["run", "--temp", "0", "-n", "60", "--no-stats", "Once upon a time"]
    plain = subprocess.run([*REAL, *args], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    terminal = Terminal(args, program=REAL, columns=30, rows=8)
    assert terminal.wait() == 0
    assert terminal.lines == by_words(plain.stdout.removesuffix("\n").removeprefix(" "), 30)
    terminal.assert_clean()


@needs_pair
@pytest.mark.parametrize("when", ["starting", "answering"])
def test_control_c_with_the_real_pair(when: str) -> None:
    terminal = Terminal(["run", "--ctx", "100000", "--seed", "1", "--raw", "Once upon a time"], program=REAL)
    terminal.wait_for(lambda: ("starting" if when == "starting" else "tok/s") in terminal.text)
    terminal.type("\x03")
    assert terminal.wait() == 130, terminal.text
    assert "stopped" in "".join(terminal.lines[-8:]), "a narrow terminal wraps the line, and the verdict follows"
    terminal.assert_clean()


@needs_pair
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_the_real_engine_dies_while_it_answers(number: signal.Signals) -> None:
    terminal = Terminal(["run", "--ctx", "100000", "--raw", "Once upon a time"], program=REAL)
    terminal.wait_for(lambda: "tok/s" in terminal.text)
    (engine,) = children(terminal.process.pid)
    os.kill(engine, number)
    assert terminal.wait() == 9
    assert "localspec: The engine" in terminal.text
    assert number.name in terminal.text
    assert "tok/s" not in terminal.text
    terminal.assert_clean()


def test_a_long_task_tells_now_and_then_where_no_line_can_be_redrawn(capsys: pytest.CaptureFixture[str]) -> None:
    """A bench whose stderr is a log: a line a minute, none of a task that is short or quiet."""
    now = 0.0
    lives = [
        Live(console, lambda: now, is_long=is_long)
        for console, is_long in ((Console(), True), (Console(), False), (Console(quiet=True), True))
    ]
    for now in range(0, 150, 10):
        for live in lives:
            live.status(f"after {now} s")
    assert capsys.readouterr().err == "after 60 s\nafter 120 s\n"
