"""What a screen reader is given: sentences, in order, and nothing lost."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.cli.output import MAX_HELD, Sentences
from tests.cli.harness import Terminal


@pytest.mark.parametrize(
    ("pieces", "spoken"),
    [
        (["Once", " upon a time. The", " king"], ["Once upon a time. ", "The king"]),
        (['He said "no!" and', " left."], ['He said "no!" ', "and left."]),
        (["It costs 3.5", "0 now"], ["It costs 3.50 now"]),
        (["a line\nand", " another"], ["a line\n", "and another"]),
        (["天空。", "海"], ["天空。", "海"]),
        (["x" * (MAX_HELD + 1), "y"], ["x" * (MAX_HELD + 1), "y"]),
    ],
)
def test_sentences_come_whole(pieces: list[str], spoken: list[str]) -> None:
    sentences = Sentences()
    given = [*map(sentences.feed, pieces), sentences.finish()]
    assert [text for text in given if text] == spoken


@given(st.lists(st.text(alphabet='ab. \n!"')))
def test_nothing_is_lost(pieces: list[str]) -> None:
    sentences = Sentences()
    assert "".join(map(sentences.feed, pieces)) + sentences.finish() == "".join(pieces)


@pytest.mark.parametrize("name", ["run", "chat"])
def test_an_accessible_terminal_only_grows(tmp_path: Path, name: str) -> None:
    """No escape sequence at all, and the text in pieces of a sentence."""
    passes = list("One king. Two kings! And then") if name == "run" else ["One king.", " Two", " kings! And then"]
    env = {"ACCESSIBLE": "1", "NO_COLOR": "1", "FAKE_PASSES": json.dumps(passes), "LOCALSPEC_HOME": str(tmp_path)}
    terminal = Terminal(["run", "hi"] if name == "run" else ["chat", "--no-stats"], env=env)
    if name == "chat":
        terminal.wait_for(lambda: terminal.lines[-1:] == ["You:"])
        terminal.type("hi\n")
        terminal.wait_for(lambda: terminal.text.count("You:") == 2)
        terminal.type("\x04")
    assert terminal.wait() == 0
    assert "One king. Two kings! And then" in terminal.text
    assert b"\x1b" not in terminal.output.replace(b"\x1b[?2004h", b"").replace(b"\x1b[?2004l", b"")
