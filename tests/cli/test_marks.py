"""Every released character gets the mark of the token it came from, however text and tokens are held back."""

from hypothesis import given
from hypothesis import strategies as st

from localspec.cli.output import marked
from localspec.engine.events import Committed, Piece, StepMs
from localspec.ui.sources import SourceSpans, Span
from tests.recorded import recorded_expressions


def event(text: str, *pieces: tuple[str, str]) -> Committed:
    out = tuple(Piece(i, word, source) for i, (word, source) in enumerate(pieces))
    return Committed(1, 0, 4, 4, 0, out, text, StepMs(0, 0, 0, 0), False, "")


def test_tokens_in_step_with_the_text() -> None:
    spans = SourceSpans().feed(event(" the sun", (" the", "accepted"), (" sun", "corrected")))
    assert spans == [Span(" the", "accepted"), Span(" sun", "corrected")]


def test_text_held_back_for_a_stop_string() -> None:
    sources = SourceSpans()
    assert sources.feed(event("a", ("ab", "accepted"), ("c", "bonus"))) == [Span("a", "accepted")]
    assert sources.feed(event("bcd", ("d", "plain"))) == [
        Span("b", "accepted"),
        Span("c", "bonus"),
        Span("d", "plain"),
    ]


def test_a_character_in_three_tokens() -> None:
    bad = "\ufffd"
    pieces = ((" é", "accepted"), (bad, "accepted"), (bad, "corrected"), ("x", "bonus"))
    spans = SourceSpans().feed(event(" é€x", *pieces))
    assert spans == [Span(" é", "accepted"), Span("€", "accepted"), Span("x", "bonus")], "its first token has it"


@given(st.lists(st.binary(min_size=1, max_size=3), max_size=12), st.lists(st.integers(0, 5), max_size=20))
def test_no_character_is_lost_or_added(tokens: list[bytes], cuts: list[int]) -> None:
    text = b"".join(tokens).decode("utf-8", "replace")
    pieces = [(token.decode("utf-8", "replace"), "accepted") for token in tokens]
    sources = SourceSpans()
    spans = sources.feed(event("", *pieces))
    rest = text
    for n in cuts:
        spans += sources.release(rest[:n])
        rest = rest[n:]
    spans += sources.release(rest)
    assert "".join(span.text for span in spans) == text


test_what_is_recorded = recorded_expressions(__file__, Span, marked)
