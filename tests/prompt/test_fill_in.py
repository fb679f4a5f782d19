"""Where an answer that fills in the middle ends: it begins to repeat the suffix."""

from localspec.engine.text import TextStream
from localspec.prompt.prompt import repetition
from tests.recorded import recorded_expressions


def filled(before: str, after: str, answer: str) -> str:
    """Return what is shown of `answer`, which comes in pieces of three bytes."""
    text, shown = TextStream(repetition(before, after)), ""
    for at in range(0, len(answer.encode()), 3):
        shown += text.feed(answer.encode()[at : at + 3])
        if text.stopping_word:
            return shown
    return shown + text.finish()


def test_a_repeated_line_asks_for_more_of_the_suffix() -> None:
    """Whole lines are added until their text stands in the file once."""
    before, after = "call(first, 1)\n", "call(first, 1)\ncall(second, 2)\n"
    assert repetition(before, after) == (after,)
    assert repetition(before, "call(first, 1)\n") == ()


test_what_is_recorded = recorded_expressions(__file__, filled)
