"""Exports: a conversation without a title, and texts that are too much for Markdown."""

from __future__ import annotations

from pathlib import Path

from localspec.conversations.export import markdown, page
from localspec.conversations.markdown import MAX_LINE
from localspec.conversations.store import Store


def exported(tmp_path: Path, answer: str, title: str) -> tuple[str, str]:
    """Return a conversation with one answer as Markdown and as HTML."""
    with Store.open(tmp_path / "conversations.db") as store:
        home = store.create("p").id
        asked = store.add_message(home, None, "user", "Q")
        said = store.add_message(home, asked.id, "assistant")
        store.append_text(said.id, answer)
        store.finish(said.id, "stop", {})
        store.rename(home, title)
        conversation, path = store.get(home), store.messages(home)
    return markdown(conversation, path), page(conversation, path)


def test_a_title_and_none(tmp_path: Path) -> None:
    for title, shown in (("", "Conversation"), ("The *king*", "The *king*")):
        text, html = exported(tmp_path, "A", title)
        assert text.startswith(f"# {shown}\n")
        assert f"<h1>{shown}</h1>" in html


def test_the_system_message_stands_first(tmp_path: Path) -> None:
    with Store.open(tmp_path / "conversations.db") as store:
        home = store.create("p", system="Be <brief>.")
        store.add_message(home.id, None, "user", "Q")
        text, html = markdown(home, store.messages(home.id)), page(home, store.messages(home.id))
    assert text.index("## System") < text.index("Be <brief>.") < text.index("## You")
    assert html.index("<h2>System</h2>") < html.index("Be &lt;brief&gt;.") < html.index("<h2>You</h2>")


def test_a_line_that_is_too_long_for_markdown_stands_as_it_is(tmp_path: Path) -> None:
    for n, is_plain in ((MAX_LINE - 5, False), (MAX_LINE - 4, True)):
        _, html = exported(tmp_path, "**b**" + "x" * n, "t")
        assert ("**b**" in html) is is_plain
