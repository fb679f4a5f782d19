"""The line chat with a scripted worker: turns, commands, interruptions, a dead engine."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from localspec.errors import WorkerDiedError
from localspec.settings.request import Message, Request, Sampling
from tests.cli.harness import (
    FAKE,
    REAL,
    Terminal,
    is_running,
    localspec,
    needs_pair,
    run_engine,
    wait_for,
    wait_until_idle,
)
from tests.cli.talking import ANSWER, Talk


@pytest.fixture
def talk(capsys: pytest.CaptureFixture[str]) -> Talk:
    return Talk(capsys)


def test_a_turn(talk: Talk) -> None:
    assert talk.say("Tell me") == f"You: Tell me\nAssistant: {ANSWER}\n"
    assert talk.errors == ""


def test_turns_are_sent_again_and_the_pair_loaded_once(talk: Talk) -> None:
    talk.say("one", "two")
    assert talk.sent == [("user", "one"), ("assistant", ANSWER), ("user", "two")]
    assert len(talk.worker.loads) == 1


def test_lines_are_joined(talk: Talk) -> None:
    talk.say("one\\", "two\\", "three", '"""four', "", 'five"""', '"""six"""')
    asked = [content for role, content in talk.sent if role == "user"]
    assert asked == ["one\ntwo\nthree", "four\n\nfive", "six"]


def test_empty_lines_say_nothing(talk: Talk) -> None:
    assert talk.say("", "   ") == ""
    assert not talk.worker.requests


def test_two_slashes_send_one(talk: Talk) -> None:
    talk.say("//etc/passwd is a file")
    assert talk.sent == [("user", "/etc/passwd is a file")]


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("// main.c\nint main() {}", "// main.c\nint main() {}"),
        ("/* main.c */\nint main() {}", "/* main.c */\nint main() {}"),
        ("//system is no command\nhere", "/system is no command\nhere"),
        ("///doc", "//doc"),
    ],
)
def test_source_code_keeps_its_slashes(talk: Talk, typed: str, sent: str) -> None:
    talk.say(typed)
    assert talk.sent == [("user", sent)]


def test_a_command_may_have_lines(talk: Talk) -> None:
    talk.say("/system be\nbrief", "hi")
    assert talk.sent == [("system", "be\nbrief"), ("user", "hi")]


def test_unknown_command(talk: Talk) -> None:
    talk.say("/hlep")
    assert talk.errors.splitlines() == [
        "localspec: there is no command /hlep. Did you mean /help? /help lists all; // sends a slash."
    ]


@pytest.mark.parametrize("word", ["/bye", "/exit", "/quit"])
def test_leaving(talk: Talk, word: str) -> None:
    talk.say(word, "not said")
    assert not talk.worker.requests


def test_settings_change_the_next_answer(talk: Talk) -> None:
    talk.say("/temp 0", "/seed 42", "/k 8", "/set top-k 5", "/set stop \\n\\n", "/set max-tokens 9", "go")
    request = talk.worker.requests[-1]
    assert (request.sampling.temperature, request.sampling.seed, request.sampling.top_k) == (0.0, 42, 5)
    assert (request.speculation.k, request.stop, request.max_tokens) == (8, ("\n\n",), 9)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("/temp nan", "temp nan is out of range"),
        ("/temp warm", "temp 'warm' is not a number — try: /set temp"),
        ("/set top-p 2", "top-p 2 is out of range"),
        ("/set tmep 1", "there is no setting 'tmep' — try: /set temp"),
        ("/set template chatml", "that a chat begins with — try: localspec chat -c --template NAME"),
        ("/template chatml", "that a chat begins with — try: localspec chat -c --template NAME"),
        ("/set method magic", "method 'magic' does not exist"),
        ("/k -1", "k -1 is out of range"),
        ("/set stop", None),
    ],
)
def test_bad_values_are_refused_and_change_nothing(talk: Talk, line: str, complaint: str | None) -> None:
    talk.say(line)
    assert talk.chat.state.request == Request()
    if complaint is None:
        assert talk.errors == ""
    else:
        assert complaint in talk.errors
        assert talk.errors.count("\n") == 1


def test_set_lists_everything(talk: Talk) -> None:
    listed = talk.say("/set")
    for name in ("temp", "top-k", "method", "verify", "max-tokens"):
        assert f"  {name} " in listed


def test_stats(talk: Talk) -> None:
    assert "there is no answer yet" in talk.say("/stats")
    shown = talk.say("go", "/stats")
    assert "guesses      6 of 8 right\n" in shown, "of two passes with a draft no share is shown"
    assert "by place" not in shown
    talk.worker.passes *= 5
    assert "by place" in talk.say("go", "/stats")


def test_regenerate_replaces_the_answer(talk: Talk) -> None:
    talk.say("one", "two")
    talk.worker.passes = ["Other"]
    talk.say("/regen")
    assert talk.sent[-1] == ("user", "two")
    assert talk.said == ["one", ANSWER, "two", "Other"]


def test_regenerate_moves_a_fixed_seed_on(talk: Talk) -> None:
    talk.chat.state.request = Request(sampling=Sampling(seed=5))
    talk.say("one", "/regen")
    assert [request.sampling.seed for request in talk.worker.requests] == [5, 6]


def test_regenerate_and_undo_without_a_turn(talk: Talk) -> None:
    assert "nothing to undo" in talk.say("/regen", "/undo")
    assert "there is no answer to regenerate" in talk.errors


def test_undo_and_clear(talk: Talk) -> None:
    talk.say("one", "two", "/undo", "three")
    assert talk.sent == [("user", "one"), ("assistant", ANSWER), ("user", "three")]
    talk.say("/clear", "four")
    assert talk.sent == [("user", "four")]


def test_system_message(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("from a file")
    talk.say("/system Be brief", "one", f"/system @{tmp_path}/s", "two", "/system none", "three")
    systems = [request.messages[0] for request in talk.worker.requests]
    assert systems[:2] == [Message("system", "Be brief"), Message("system", "from a file")]
    assert systems[2].role == "user"


def test_save_and_load(talk: Talk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chat.json"
    assert "saved 2 messages to" in talk.say("/system S", "one", f"/save {path}")
    again = Talk(capsys)
    assert "loaded 2 messages from" in again.say(f"/load {path}", "two")
    assert again.sent == [("system", "S"), ("user", "one"), ("assistant", ANSWER), ("user", "two")]
    again.say(f"/save {path}")
    assert again.errors == ""
    assert [turn["user"] for turn in json.loads(path.read_text())["turns"]] == ["one", "two"]
    assert list(tmp_path.iterdir()) == [path]


def test_save_keeps_other_peoples_files(talk: Talk, tmp_path: Path) -> None:
    path = tmp_path / "thesis.tex"
    path.write_text("years of work")
    talk.say("one", f"/save {path}")
    assert path.read_text() == "years of work"
    assert "is not a localspec chat" in talk.errors


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "null", "[" * 100_000, '{"schema":"localspec.chat/1","system":1,"turns":[]}', "\xff"]
)
def test_load_refuses_what_is_no_chat(talk: Talk, tmp_path: Path, content: str) -> None:
    path = tmp_path / "x"
    path.write_text(content, "latin-1")
    talk.say("one", f"/load {path}", "/load", f"/load {tmp_path}", f"/load {tmp_path}/none", "two")
    assert talk.errors.count("localspec: ") == 4
    assert talk.sent[0] == ("user", "one")


def test_read_attaches_a_file_to_the_next_message(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a\nb\n")
    assert "took notes.txt: 4 B, about 2 tokens; for your next message" in talk.say(f"/read {tmp_path}/notes.txt")
    talk.say("explain", "more")
    assert talk.sent[0] == ("user", "```notes.txt\na\nb\n```\n\nexplain")
    assert talk.sent[-1] == ("user", "more")
    assert " · 4 messages · attached: notes.txt (2 lines)\n" in talk.say("/new", "/list", "/resume 1")


@pytest.mark.parametrize("line", ["/read none", "/new", "/resume 1"])
def test_what_was_attached_is_taken_back(talk: Talk, tmp_path: Path, line: str) -> None:
    (tmp_path / "n.txt").write_text("A note.")
    talk.say("one", "/list", f"/read {tmp_path}/n.txt", line, "two")
    assert talk.sent[-1] == ("user", "two")


def test_history_is_safe_to_show(talk: Talk) -> None:
    talk.worker.passes = ["\x1b[2Jgone"]
    shown = talk.say("on\x9be", "/history").split("Assistant:", 1)[1]
    assert "\x1b" not in shown.split("You: /history")[1]
    assert "\x9b" not in shown


def test_marks(talk: Talk) -> None:
    assert "⟦time⟧" not in talk.say("one")
    assert "⟦there⟧" in talk.say("/tokens", "one")


def test_a_dead_engine_loads_again(talk: Talk) -> None:
    talk.worker.fails[2] = WorkerDiedError("the engine was killed (SIGKILL)", hint="--ctx 512")
    shown = talk.say("one")
    assert "Assistant: Once upon a time there\n" in shown
    assert talk.errors.count("\n") == 1
    talk.say("two")
    assert len(talk.worker.loads) == 2
    assert talk.sent == [("user", "one"), ("assistant", "Once upon a time there"), ("user", "two")]


def test_an_engine_that_died_idle_loads_again_and_answers(talk: Talk) -> None:
    talk.say("one")
    talk.worker.died_idle = WorkerDiedError("The engine was ended by SIGKILL while idle")
    assert talk.say("two") == f"You: two\nAssistant: {ANSWER}\n"
    assert talk.errors == "localspec: warning: The engine was ended by SIGKILL while idle; the engine starts again\n"
    assert talk.code == 0
    assert len(talk.worker.loads) == 2
    assert talk.sent == [("user", "one"), ("assistant", ANSWER), ("user", "two")]


def test_a_script_ends_with_the_code_of_its_last_error(talk: Talk) -> None:
    talk.worker.fails[0] = WorkerDiedError("the engine was killed (SIGKILL)")
    talk.say("one", "two")
    assert talk.code == 9
    talk.say("/hlep", "three")
    assert talk.code == 2
    talk.say("four")
    assert talk.code == 0


def test_a_full_context_is_said(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_REASON", "context")
    talk.say("one", "two")
    assert talk.errors.count("the context is full: 1024 tokens with the prompt; /ctx 2048 for more") == 2


def test_stats_name_the_seed_and_who_chose_it(talk: Talk) -> None:
    assert re.search(r"\n  seed         \d+, drawn\n", talk.say("one", "/stats"))
    assert "\n  seed         42\n" in talk.say("/seed 42", "two", "/stats")


def test_a_message_without_an_answer_is_not_sent_again(talk: Talk) -> None:
    talk.worker.fails[0] = WorkerDiedError("the engine was killed (SIGKILL)")
    talk.say("one", "two")
    assert talk.sent == [("user", "two")]


def test_one_message_that_is_too_long_costs_the_next_one_nothing(talk: Talk) -> None:
    talk.say("one", "two")
    talk.worker.max_messages = 0
    talk.say("too long")
    assert "the context holds 1024" in talk.errors
    assert len(talk.worker.requests) == 3
    assert talk.worker.requests[-1].shorten
    talk.worker.max_messages = 9
    talk.say("three")
    assert [content for _, content in talk.sent] == ["one", ANSWER, "two", ANSWER, "three"]


def chat_terminal(**env: str) -> Terminal:
    terminal = Terminal(["chat", "--plain", "--no-stats"], env=env)
    terminal.wait_for(lambda: terminal.lines[-1:] == ["You:"])
    return terminal


def ready(terminal: Terminal, n: int) -> bool:
    """Whether the prompt for message `n` stands there, waiting."""
    return terminal.text.count("You:") == n and terminal.lines[-1] == "You:"


@pytest.mark.parametrize("env", [{"ACCESSIBLE": "1"}, {"TERM": "dumb"}, {"LOCALSPEC_PLAIN": "1"}])
def test_bare_on_a_terminal_that_is_not_to_be_filled_is_the_line_chat(env: dict[str, str]) -> None:
    terminal = Terminal([], env=env)
    terminal.wait_for(lambda: terminal.lines[-1:] == ["You:"])
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_on_a_terminal() -> None:
    terminal = chat_terminal()
    terminal.type("Hello\n")
    terminal.wait_for(lambda: ready(terminal, 2))
    talk = terminal.lines[terminal.lines.index("You: Hello") :]
    assert talk == ["You: Hello", f"Assistant: {ANSWER}", "You:"]
    terminal.type("\x04")
    assert terminal.wait() == 0
    terminal.assert_clean()


def test_control_c_stops_the_answer_and_not_the_chat() -> None:
    terminal = chat_terminal(FAKE_PAUSE="30")
    terminal.type("Hello\n")
    terminal.wait_for(lambda: "Once" in terminal.text)
    terminal.type("\x03")
    terminal.wait_for(lambda: ready(terminal, 2))
    assert ANSWER not in terminal.text
    terminal.type("/bye\n")
    assert terminal.wait() == 0


def test_a_second_control_c_ends_a_deaf_engine_and_not_the_chat(tmp_path: Path) -> None:
    is_heard = tmp_path / "heard"
    terminal = chat_terminal(FAKE_PAUSE="30", FAKE_DEAF="1", FAKE_CANCELS=str(is_heard))
    terminal.type("Hello\n")
    terminal.wait_for(lambda: "Once" in terminal.text)
    terminal.type("\x03")
    wait_for(is_heard.exists)  # two signals at once are one
    terminal.type("\x03")
    terminal.wait_for(lambda: ready(terminal, 2))
    assert "the engine was ended" in terminal.text
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_control_c_at_the_prompt() -> None:
    terminal = chat_terminal()
    wait_until_idle(terminal.process)  # CPython's input() notices a signal only once it waits for a key
    terminal.type("\x03")
    terminal.wait_for(lambda: ready(terminal, 2))
    assert "again or Ctrl-D" in terminal.text
    wait_until_idle(terminal.process)
    terminal.type("\x03")
    assert terminal.wait() == 0
    terminal.assert_clean()


def test_control_c_ends_what_a_command_does_and_not_the_chat(tmp_path: Path) -> None:
    program = tmp_path / "xclip"
    program.write_text("#!/bin/sh\necho COPYING >/dev/tty\nexec sleep 60\n")
    program.chmod(0o755)
    env = {"DISPLAY": ":9", "WAYLAND_DISPLAY": "", "SSH_CONNECTION": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    terminal = chat_terminal(**env)
    terminal.type("Hello\n")
    terminal.wait_for(lambda: ready(terminal, 2))
    terminal.type("/copy\n")
    terminal.wait_for(lambda: "COPYING" in terminal.text)
    terminal.type("\x03")
    terminal.wait_for(lambda: ready(terminal, 3))
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_control_c_in_an_editor_is_the_editors(tmp_path: Path) -> None:
    editor = tmp_path / "editor.sh"
    wait = 'until [ -e "$0.done" ]; do sleep 0.1; done'
    editor.write_text(f'trap "echo INTERRUPTED" INT; echo EDITING; {wait}; echo changed > "$1"')
    terminal = chat_terminal(EDITOR=f"sh {editor}", VISUAL="")
    terminal.type("Hello\n")
    terminal.wait_for(lambda: ready(terminal, 2))
    terminal.type("/edit\n")
    terminal.wait_for(lambda: "EDITING" in terminal.text)
    terminal.type("\x03")
    terminal.wait_for(lambda: "INTERRUPTED" in terminal.text)
    (tmp_path / "editor.sh.done").touch()
    terminal.wait_for(lambda: ready(terminal, 3))
    terminal.type("/history\n")
    terminal.wait_for(lambda: "changed" in terminal.text)
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_termination_at_the_prompt_restores_the_terminal(tmp_path: Path) -> None:
    terminal = chat_terminal(LOCALSPEC_HOME=str(tmp_path))
    terminal.type("half a mess")
    terminal.wait_for(lambda: "half a mess" in terminal.text)
    terminal.signal(signal.SIGTERM)
    assert terminal.wait() == 143
    assert terminal.after == terminal.before


def test_termination_during_an_answer_ends_the_chat() -> None:
    terminal = chat_terminal(FAKE_PAUSE="5")
    terminal.type("Hello\n")
    terminal.wait_for(lambda: "Once" in terminal.text)
    terminal.signal(signal.SIGTERM)
    assert terminal.wait() == 143
    terminal.assert_clean()


def test_a_script_of_lines() -> None:
    done = localspec("chat", program=FAKE, stdin=b"one\n/temp 0\n\xff\0\ntwo")
    assert done.returncode == 0
    assert done.stdout.decode().count("Assistant: ") == 3
    assert done.stderr == b""


def test_quiet_is_the_answers_alone() -> None:
    assert localspec("chat", "-q", program=FAKE, stdin=b"one\n").stdout.decode() == f"{ANSWER}\n"


def test_an_error_on_a_terminal_is_not_the_chats() -> None:
    terminal = chat_terminal(FAKE_DIES="1")
    terminal.type("Hello\n")
    terminal.wait_for(lambda: ready(terminal, 2))
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_a_script_with_a_broken_model_fails(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    done = run_engine("chat", "-m", str(tmp_path / "broken.gguf"), stdin=b"hi\n")
    assert done.returncode == 5
    assert done.stderr.decode().count("\n") == 1


@needs_pair
def test_the_real_engine_may_die_between_two_messages() -> None:
    terminal = Terminal(["chat", "--plain", "--no-stats", "-n", "8", "--temp", "0"], program=REAL)
    terminal.wait_for(lambda: ready(terminal, 1))
    terminal.type("Hello\n")
    terminal.wait_for(lambda: ready(terminal, 2))
    children = Path(f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    wait_for(lambda: not is_running(int(children[0])))
    terminal.type("Go on\n")
    terminal.wait_for(lambda: ready(terminal, 3))
    assert "SIGKILL" in terminal.text
    assert "while idle; the engine starts again" in "".join(terminal.lines)
    assert terminal.text.count("Assistant: ") == 2
    terminal.type("\x04")
    assert terminal.wait() == 0


@needs_pair
def test_the_real_pair_keeps_the_prefix() -> None:
    done = run_engine("chat", "-n", "12", "--temp", "0", stdin=b"A king\n/stats\nGo on\n/stats\n")
    assert done.returncode == 0, done.stderr
    cached = [line for line in done.stdout.decode().splitlines() if "prompt tokens from the cache" in line]
    assert " 0 of " in cached[0]
    assert " 0 of " not in cached[1]


@needs_pair
def test_the_real_pair_leaves_out_what_has_no_room() -> None:
    story = "Tell me of the king who lived in the forest with his three brothers and the old woman by the fire.\n"
    options = ("-n", "60", "--ctx", "256", "--template", "none", "--temp", "0")
    done = run_engine("chat", *options, stdin=5 * story.encode())
    assert done.returncode == 0, done.stderr
    assert b"the context of 256 tokens is full: " in done.stderr
    assert b"no longer sent; --ctx 512 sends more" in done.stderr
    assert b"tokens with the prompt" not in done.stderr, "no answer was cut short"
