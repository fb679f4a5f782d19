"""No text of a message becomes a control token, by a tokeniser that reads text as llama.cpp does."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.prompt.chat_template import render
from localspec.prompt.markers import Segment
from localspec.settings.request import Message

PIECES = ["<", "x", "y", ">", "<x>", "<x>y", "|", "a", " ", "yes"]
TEXT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)
SPECIALS = st.lists(TEXT.filter(lambda text: len(text.strip()) > 1), min_size=1, max_size=4, unique=True)


def read(text: str, specials: Sequence[str]) -> list[str]:
    """Return the control tokens in a text: the longest are looked for first, of equal ones the first given."""
    for special in sorted(specials, key=len, reverse=True):
        before, found, after = text.partition(special)
        if found:
            return [*read(before, specials), special, *read(after, specials)]
    return []


def tokens(segments: Sequence[Segment], specials: Sequence[str]) -> list[str]:
    return [token for segment in segments if segment.is_trusted for token in read(segment.text, specials)]


def written(pieces: Sequence[str], contents: Sequence[str]) -> str:
    """Return a template that writes the messages between `pieces`."""
    parts = [f"{{{{ messages[{i}].content }}}}{piece}" for i, piece in enumerate(pieces[: len(contents)])]
    return "^" + "".join(parts)


def test_a_message_does_not_lengthen_the_token_before_it() -> None:
    """`<x>` stands before the message, and `<x>y` is a token too."""
    message = [Message("user", "yes please")]
    template = "<x>{{ messages[0].content }}"
    rendered = render(message, template, bos="", eos="", specials=("<x>", "<x>y"), is_explicit=True)
    assert rendered.segments == (Segment("<x>", is_trusted=True), Segment("yes please", is_trusted=False))


@pytest.mark.parametrize("specials", [("x>a", "<x>"), ("<x>", "x>a")])
def test_of_two_tokens_that_overlap_none_is_a_message_s(specials: tuple[str, str]) -> None:
    """Both are as long, and which one llama.cpp takes depends on their ids."""
    template = "<x>{{ messages[0].content }}"
    rendered = render([Message("user", "a")], template, bos="", eos="", specials=specials, is_explicit=True)
    assert [segment.is_trusted for segment in rendered.segments] == [True, False]


@given(SPECIALS, st.lists(TEXT, min_size=3, max_size=3), st.lists(TEXT, min_size=1, max_size=3))
@example(["<x>", "<x>y"], ["<x>", "<x>", "<x>"], ["yes", "yes"])
@example(["<x>", "x>a"], ["<x>", "<x>", "<x>"], ["a", "a"])
def test_a_chat_has_the_control_tokens_of_its_template(specials: list[str], pieces: list[str], said: list[str]) -> None:
    """Whatever is said, the tokens are those of the same chat with letters that no token has."""
    contents = [text if text.strip() else "a" for text in said]
    template = written(pieces, contents)
    roles = ["user", "assistant", "user"]

    def rendered(texts: Sequence[str]) -> tuple[Segment, ...]:
        messages = [Message(role, text) for role, text in zip(roles, texts, strict=False)]
        return render(messages, template, bos="", eos="", specials=specials, is_explicit=True).segments

    blank = [re.sub(r"\S", "Q", text) for text in contents]
    whole = "".join(segment.text for segment in rendered(blank))
    cut = [piece for piece in re.split("Q[Q ]*", whole) if piece]
    expected = [token for piece in cut for token in read(piece, specials)]
    assert tokens(rendered(contents), specials) == expected


@given(SPECIALS, TEXT, TEXT)
def test_a_thought_that_goes_back_is_text(specials: list[str], thought: str, before: str) -> None:
    template = (
        f"{before}{{{{ messages[1].reasoning_content }}}}|{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}"
    )
    said = [Message("user", "Q"), Message("assistant", "Q", reasoning=thought), Message("user", "Q")]
    rendered = render(said, template, bos="", eos="", specials=specials, is_explicit=True)
    harmless = [said[0], Message("assistant", "Q", reasoning=re.sub(r"\S", "Q", thought)), said[2]]
    expected = render(harmless, template, bos="", eos="", specials=specials, is_explicit=True)
    assert tokens(rendered.segments, specials) == tokens(expected.segments, specials)
