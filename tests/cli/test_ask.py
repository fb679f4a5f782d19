"""Asking llama.cpp in another process: values, our own errors, and whatever else can come back."""

from __future__ import annotations

import pytest

from localspec.errors import UsageError
from localspec.ui.ask import Unanswered, ask, ask_lines

NOISE = "import sys\nprint('a library says hello')\nprint('{\"json\": 1}')\nsys.stderr.write('and more\\n')"


def test_values_come_back_whatever_is_printed_beside_them() -> None:
    assert ask("{'a': [1, None, 'ü']}", NOISE) == {"a": [1, None, "ü"]}
    assert list(ask_lines("(n * n for n in range(4))", NOISE)) == [0, 1, 4, 9]


def test_an_error_of_ours_is_raised_here() -> None:
    """Also after some values."""
    source = "from localspec.errors import UsageError\ndef some():\n yield 1\n raise UsageError('no', hint='do')"
    lines = ask_lines("some()", source)
    assert next(lines) == 1
    with pytest.raises(UsageError, match="no") as caught:
        next(lines)
    assert caught.value.hint == "do"
    with pytest.raises(UsageError):
        ask("list(some())", source)


@pytest.mark.parametrize(
    ("imports", "reason"),
    [
        ("import nothing_of_that_name", "No module named"),
        ("import os; os.abort()", "status -6"),
        ("import os; os._exit(0)", "status 0"),
        ("raise OSError('libcudart.so.12: cannot open')", "libcudart"),
    ],
)
def test_a_process_that_fails_is_told_in_its_own_words(imports: str, reason: str) -> None:
    with pytest.raises(Unanswered) as caught:
        ask("1", imports)
    assert reason in caught.value.reason
    assert caught.value.exit_code == 3
    assert caught.value.hint == "localspec doctor"


def test_one_that_hangs_is_ended() -> None:
    with pytest.raises(Unanswered, match="TimeoutExpired"):
        ask("1", "import time; time.sleep(60)", timeout=1)


def test_much_on_stderr_does_not_block() -> None:
    assert list(ask_lines("[1]", "import sys; sys.stderr.write('x' * 10**6)")) == [1]
