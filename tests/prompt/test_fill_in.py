"""Where an answer that fills in the middle ends: it begins to repeat the suffix."""

from __future__ import annotations

import pytest

from localspec.engine.text import TextStream
from localspec.prompt.prompt import repetition

MEAN = ("def mean(xs):\n    total = 0\n", "    return total / len(xs)\n\n\nprint(mean([1, 2, 3]))")


def filled(before: str, after: str, answer: str) -> str:
    """Return what is shown of `answer`, which comes in pieces of three bytes."""
    text, shown = TextStream(repetition(before, after)), ""
    for at in range(0, len(answer.encode()), 3):
        shown += text.feed(answer.encode()[at : at + 3])
        if text.stopping_word:
            return shown
    return shown + text.finish()


@pytest.mark.parametrize(
    ("before", "after", "answer", "shown"),
    [
        (  # as Qwen2.5-Coder 0.5B wrote it
            *MEAN,
            "    for x in xs:\n        total += x\n    return total / len(xs)\n\n\nprint(mean([1, 2, 3, 4, 5]))\n",
            "    for x in xs:\n        total += x\n",
        ),
        (  # this, too: the first line alone says nothing
            "def area(",
            "):\n    return width * height\n",
            "width, height):\n    return width * height\n\n# Example usage\nwidth = 5\n",
            "width, height",
        ),
        ("int f() {\n    int n = 1;\n    ", "\n    return 2 * n;\n}", "n++;\n    return 2 * n;\n}\nint g() {", "n++;"),
        (MEAN[0], MEAN[1], MEAN[1], ""),
    ],
)
def test_an_answer_ends_where_it_repeats_the_suffix(before: str, after: str, answer: str, shown: str) -> None:
    assert filled(before, after, answer) == shown


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [
        ("if (a) {\n", "}\n", "  b();\n}\nif (c) {\n  d();\n"),  # a lone bracket is no repetition
        ("def f(a):\n", "    return\n", "    if a:\n    return\n"),
        ("", "", "anything"),
        (*MEAN, "    return total / len(xs) if xs else 0\n"),  # begins like the suffix, and is another line
        (*MEAN, "    return total / len(xs)"),  # the answer ends by itself in the middle of it
        (  # the file repeats this line anyway: another call before those that follow is no repetition
            "    def test(self):\n        self.check(1, 1)\n",
            "        self.check(1, 1)\n        self.check(3, 9)\n",
            "        self.check(1, 1)\n        self.check(2, 4)\n",
        ),
    ],
)
def test_code_that_looks_like_the_suffix_is_kept(before: str, after: str, answer: str) -> None:
    assert filled(before, after, answer) == answer


def test_a_repeated_line_asks_for_more_of_the_suffix() -> None:
    """Whole lines are added until their text stands in the file once."""
    before, after = "call(first, 1)\n", "call(first, 1)\ncall(second, 2)\n"
    assert repetition(before, after) == (after,)
    assert repetition(before, "call(first, 1)\n") == ()
