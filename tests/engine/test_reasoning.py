"""Reasoning is told from the answer, however the text is cut into tokens, and never found in ordinary text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.context import Context, Vocabulary
from localspec.engine.event_stream import stream_events
from localspec.engine.events import Committed, Finished
from localspec.engine.loop import Engine
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.engine.text import Marks, ReasoningStream
from localspec.methods.plain import Plain
from localspec.settings.request import Sampling, Speculation
from localspec.speculation.resolve import resolve_axes
from localspec.testing.contract import TableBackend
from tests.exact.harness import one_hot_table

THINK = Marks("<think>", "</think>")
GEMMA = Marks("<|channel>thought", "<channel|>")
OPENED = Marks("<think>", "</think>", is_open=True)
HARMONY = Marks(
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
    skip="<|channel|>final<|message|>",
    calls=("<|end|><|start|>assistant<|channel|>commentary to=",),
)
CASES = [
    (THINK, "plain", "", "plain"),
    (THINK, "  indented", "", "  indented"),
    (THINK, "<think>\nhm\n</think>\n\nYes.", "hm", "Yes."),
    (THINK, "\n<think>hm, a </thin line\n\n  and more </think>  Yes.\n", "hm, a </thin line\n\n  and more", "  Yes.\n"),
    (THINK, "<think>\n\n</think>\n\nYes.", "", "Yes."),
    (THINK, "<think>hm", "hm", ""),
    (THINK, "<think>hm </thi", "hm </thi", ""),
    (THINK, "<thi", "", "<thi"),
    (THINK, "a < b", "", "a < b"),
    (THINK, "I say <think> is a tag</think>", "", "I say <think> is a tag</think>"),
    (THINK, "hm</think>Yes.", "", "hm</think>Yes."),
    (THINK, "<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    (OPENED, "hm\n</think>\n\nYes.", "hm", "Yes."),
    (OPENED, "\n<think>\nhm</think>Yes.", "hm", "Yes."),
    (OPENED, "hm", "hm", ""),
    (OPENED, "<thi", "<thi", ""),
    (OPENED, "</think>Yes.", "", "Yes."),
    (
        HARMONY,
        "<|channel|>analysis<|message|>Greet.<|end|><|start|>assistant<|channel|>final<|message|>Hi.",
        "Greet.",
        "Hi.",
    ),
    (HARMONY, "<|channel|>final<|message|>Hi.", "", "Hi."),
    (
        HARMONY,
        "<|channel|>analysis<|message|>Ask.<|end|><|start|>assistant<|channel|>commentary to=functions.f",
        "Ask.",
        "<|end|><|start|>assistant<|channel|>commentary to=functions.f",
    ),
    (GEMMA, "<|channel>thought\nGreet.\n<channel|>Hi.", "Greet.", "Hi."),
    (GEMMA, "<|channel>thought\n<channel|>Hi.", "", "Hi."),
    (None, "<think>hm</think>Yes.", "", "<think>hm</think>Yes."),
]


def split(marks: Marks | None, pieces: list[str]) -> tuple[str, str]:
    stream = ReasoningStream(marks)
    parts = [*map(stream.feed, pieces[:-1]), stream.finish(pieces[-1])]
    return "".join(part.reasoning for part in parts), "".join(part.answer for part in parts)


@pytest.mark.parametrize(("marks", "text", "reasoning", "answer"), CASES)
def test_every_way_to_cut_a_text_gives_the_same_parts(
    marks: Marks | None, text: str, reasoning: str, answer: str
) -> None:
    assert split(marks, [text]) == (reasoning, answer)
    assert split(marks, [*text, ""]) == (reasoning, answer)
    for at in range(len(text)):
        assert split(marks, [text[:at], text[at:]]) == (reasoning, answer)


@given(st.text("<>/think ab\n", max_size=40), st.sampled_from([THINK, OPENED, HARMONY]), st.data())
def test_no_cut_matters(text: str, marks: Marks, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(marks, pieces) == split(marks, [text])


def test_text_is_shown_as_soon_as_it_is_certain() -> None:
    stream = ReasoningStream(THINK)
    assert [stream.feed(piece).reasoning for piece in ("<thi", "nk>", "Let", " me", "\n", "see", "</")] == [
        "", "", "Let", " me", "", "\nsee", "",
    ]  # fmt: skip
    assert [stream.feed(piece).answer for piece in ("think>", "\n", "Yes", ", <", "think>")] == [
        "",
        "",
        "Yes",
        ", <",
        "think>",
    ]


def test_the_events_of_an_answer_keep_them_apart() -> None:
    """Through the engine, with a mark that three tokens share."""
    pieces = [b"go", b"<thi", b"nk", b">Hm", b".", b"</", b"think>\n", b"\nYe", b"s.", b""]
    axes = resolve_axes(Speculation(method="plain"), has_draft=False, is_seeded=False)
    target = TableBackend(one_hot_table(len(pieces), len), len(pieces))
    engine = Engine.local(
        target, {"plain": Plain()}, axes.verifier,
        axes.length_rule(axes.shape), Sampler(Sampling(temperature=0.0)), SeededRandom(1), lambda: 0.0, lambda: False,
    )  # fmt: skip
    vocabulary = Vocabulary(lambda token: token == len(pieces) - 1, pieces.__getitem__)
    context = Context([0], vocabulary, n_ctx=64)
    told = list(stream_events(engine, context, vocabulary, details=False, began=0.0, marks=THINK))
    passes = [event for event in told if isinstance(event, Committed)]
    (end,) = [event for event in told if isinstance(event, Finished)]
    assert "".join(event.reasoning for event in passes) + end.reasoning == "Hm."
    assert "".join(event.text for event in passes) + end.tail == "Yes."
