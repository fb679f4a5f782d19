"""Questions on the terminal: which answers are a yes, and where the cursor is afterwards."""

import io
import sys

import pytest

from localspec.cli import fetch


@pytest.mark.parametrize(
    ("typed", "default", "is_yes", "told"),
    [("y\n", False, True, "Go? "), (" YES \n", False, True, "Go? "), ("\n", True, True, "Go? "),
     ("\n", False, False, "Go? "), ("n\n", True, False, "Go? "), ("what\n", True, False, "Go? "),
     ("", True, False, "Go? \n"), ("y", False, True, "Go? \n")],
)  # fmt: skip
def test_an_answer(
    typed: str, default: bool, is_yes: bool, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Ctrl-D is no yes, and what follows begins on a line of its own."""
    monkeypatch.setattr(fetch, "is_attended", lambda: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert fetch.confirmed("Go? ", default=default) == is_yes
    assert capsys.readouterr().err == told
