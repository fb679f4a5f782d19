"""Records: what stands around an attached text, why an answer is not whole, the names of a pair."""

from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from localspec.conversations.records import (
    Attachment,
    Conversation,
    Hit,
    StoredMessage,
    ending,
    fenced,
    model_names,
    spoken,
    with_attachments,
)
from localspec.conversations.sending import KeptSettings


@pytest.mark.parametrize(
    ("name", "shown"),
    [("", ""), ("src/a.py", "src/a.py"), ("/srv/me/a.py", "a.py"), ("../other/a.py", "a.py"), ("a..py", "a..py")],
)
def test_a_fence_names_the_file_and_no_folder_of_others(name: str, shown: str) -> None:
    assert fenced(Attachment(name, "x = 1\n")) == f"```{shown}\nx = 1\n```"
    assert fenced(Attachment(name, "x = 1")) == f"```{shown}\nx = 1\n```"


@pytest.mark.parametrize(
    ("text", "fence"),
    [("``", "```"), ("```", "````"), ("a\n   `````\n```", "``````"), ("    ````", "```"), ("a ````", "```")],
)
def test_no_text_closes_its_fence(text: str, fence: str) -> None:
    """Four blanks before it, or words, make it none."""
    assert fenced(Attachment("", text)) == f"{fence}\n{text}\n{fence}"


def test_words_come_after_what_is_attached() -> None:
    files = (Attachment("a", "1\n"), Attachment("b", "2\n"))
    blocks = "```a\n1\n```\n\n```b\n2\n```"
    assert with_attachments("Why?", files) == f"{blocks}\n\nWhy?"
    assert with_attachments("", files) == blocks
    assert with_attachments("", ()) == ""
    assert StoredMessage(1, "c", None, "user", "Why?", 0.0, "sent", attachments=files).content == f"{blocks}\n\nWhy?"


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ("@/tmp/a.txt, why?", "@a.txt, why?"),
        ("see @/tmp/deep/er/, and @../up/b.txt @../../c", "see @er/, and @b.txt @c"),
        ('@"/tmp/my own/a b.txt" and @"../x y/z/"', '@"a b.txt" and @"z/"'),
        ("@/tmp/*.txt\n@/a", "@*.txt\n@a"),
        ('@ @/ @near/a.txt @"my/b c" x@/tmp/a', '@ @/ @near/a.txt @"my/b c" x@/tmp/a'),
    ],
)
def test_a_file_that_lies_elsewhere_is_named_without_its_folder(words: str, sent: str) -> None:
    """Without an attachment an `@` names none."""
    assert with_attachments(words, [Attachment("/tmp/a.txt", "1")]) == f"```a.txt\n1\n```\n\n{sent}"
    assert with_attachments(words, ()) == words


def test_why_an_answer_is_not_whole() -> None:
    assert [ending(finish) for finish in ("sent", "stop")] == ["", ""]
    assert ending(None) == "still being written"
    assert ending("of a later version") == "of a later version"


@pytest.mark.parametrize(
    "record",
    [
        Attachment("a", "b"),
        StoredMessage(1, "c", None, "user", "x", 0.0, None),
        Conversation("c", "t", "p", None, 0.0, 0.0, None, None, 0),
        Hit(*[None] * 3),  # type: ignore[arg-type] - its values do not count
        KeptSettings(None, (), "", ()),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_do_not_change(record: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(record, fields(record)[0].name, "other")
    assert not hasattr(record, "__dict__"), "there are many of them"


def test_an_answer_is_shown_without_one_blank_before_it() -> None:
    assert spoken("assistant", "  Once ") == " Once "
    assert spoken("user", " Once") == " Once"


def test_a_pair_is_named_by_its_models() -> None:
    assert model_names("/models/big.GGUF+hf:a/b/c.gguf") == "big+hf:a/b/c"
    assert model_names("big+none") == "big"
    assert model_names(f"{Path('/a/b.gguf.bak')}+x") == "b.gguf.bak+x"
