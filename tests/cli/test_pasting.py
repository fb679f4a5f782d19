"""What is pasted into the line chat is one message; what is typed ahead, and commands in one go, are lines."""

import pytest

from tests.cli.harness import Terminal

PASTED = ["first line", "\tsecond line", "third line"]


def chat(**env: str) -> Terminal:
    terminal = Terminal(["chat", "--plain", "--no-stats"], env=env)
    terminal.wait_for(lambda: terminal.lines[-1:] == ["You:"])
    return terminal


def leave(terminal: Terminal) -> None:
    terminal.type("\x04")
    assert terminal.wait() == 0


def history(terminal: Terminal) -> str:
    n = terminal.text.count("You:")
    terminal.type("/history\r")
    terminal.wait_for(lambda: terminal.text.count("You:") > n + 1 and terminal.lines[-1:] == ["You:"])
    return terminal.text.partition("/history")[2]


@pytest.mark.parametrize("brackets", [("\x1b[200~", "\x1b[201~"), ("", "")], ids=["brackets", "none"])
@pytest.mark.parametrize("newline", ["\r", "\n"])
def test_a_paste_is_one_message(brackets: tuple[str, str], newline: str) -> None:
    terminal = chat()
    before, after = brackets
    terminal.type(before + newline.join(PASTED) + after)
    terminal.wait_for(lambda: "third line" in terminal.text)
    assert "Assistant:" not in terminal.text, "nothing was sent yet"
    terminal.type("\r")
    terminal.wait_for(lambda: "a king." in terminal.text and terminal.lines[-1:] == ["You:"])
    assert terminal.text.count("Assistant:") == 1
    shown = history(terminal)
    assert "You: first line\n        second line\nthird line\nAssistant:" in shown
    leave(terminal)


def test_commands_in_one_go_are_run_one_by_one() -> None:
    terminal = chat()
    terminal.type("/temp 0.7\r/k 4\r/seed 5\rhello\r")
    terminal.wait_for(lambda: "a king." in terminal.text and terminal.lines[-1:] == ["You:"])
    for said in ("temp 0.7", "k 4", "seed 5"):
        assert f"  {said}\n" in terminal.text
    assert "You: hello\nAssistant:" in history(terminal)
    leave(terminal)


def test_lines_that_are_typed_while_an_answer_comes_stay_lines() -> None:
    terminal = chat(FAKE_PAUSE="0.3")
    terminal.type("one\r")
    terminal.wait_for(lambda: "Once upon" in terminal.text)
    terminal.type("two\rthree\r")
    terminal.wait_for(lambda: terminal.text.count("a king.") == 3 and terminal.lines[-1:] == ["You:"])
    shown = history(terminal)
    assert [line for line in shown.split("\n") if line.startswith("You: ")] == ["You: one", "You: two", "You: three"]
    leave(terminal)


def test_tab_completes_commands_and_their_values() -> None:
    terminal = chat()
    terminal.type("/set verify bl\t")
    terminal.wait_for(lambda: terminal.lines[-1] == "You: /set verify block")
    terminal.type("\r")
    terminal.wait_for(lambda: "  verify block\n" in terminal.text and terminal.lines[-1:] == ["You:"])
    terminal.type("/re\t\t")
    terminal.wait_for(lambda: "/resume" in terminal.text and "/regen" in terminal.text)
    terminal.type("gen")
    terminal.wait_for(lambda: terminal.lines[-1] == "You: /regen")
    terminal.type("\x15\x04")
    assert terminal.wait() == 0
