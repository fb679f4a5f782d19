"""Exports: titles and endings, hostile answers, texts that are too much for Markdown."""

import json
import re
from dataclasses import replace
from pathlib import Path

from localspec.conversations.export import is_plain, markdown, page, parser, to_wire, without_folders
from localspec.conversations.records import Attachment
from localspec.conversations.store import Store


def exported(tmp_path: Path, answer: str, title: str) -> tuple[str, str]:
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
    for n, is_text in ((7_995, False), (7_996, True)):
        _, html = exported(tmp_path, "**b**" + "x" * n, "t")
        assert ("**b**" in html) is is_text


def test_what_is_too_much_for_markdown() -> None:
    lines = "x\n" * 24_000
    assert [is_plain(text) for text in (lines, lines + "x")] == [False, True]
    assert [is_plain("a\n" + ">" * n) for n in (12, 13)] == [False, True]
    assert [is_plain(" " * n + ">" * 13) for n in (187, 188)] == [True, False]
    assert not is_plain(" " * 200 + ">" * 100), "arrows in the midst of a line are no quotes"


def test_an_answer_is_markdown_that_cannot_do_harm(tmp_path: Path) -> None:
    answer = "**b** <b>h</b> ![p](https://x.example/p.png) [w](https://x.example) [j](javascript:x) a&#8238;b"
    text, html = exported(tmp_path, answer, "t")
    assert f"\n\n{answer}" in text
    assert '<div class="markdown">\n<p><strong>b</strong> &lt;b&gt;h&lt;/b&gt;' in html
    assert "<img" not in html
    assert 'href="https://x.example"' in html
    assert 'href="javascript' not in html
    assert "\u202e" not in html


def test_questions_stand_as_they_are_and_broken_answers_say_so(tmp_path: Path) -> None:
    with Store.open(tmp_path / "conversations.db") as store:
        home = store.create("/models/a.gguf+none")
        asked = store.add_message(home.id, None, "user", "*Q* \x1b[31m", attachments=[Attachment("a.txt", "text\n")])
        said = store.add_message(home.id, asked.id, "assistant")
        store.append_text(said.id, " so far")
        store.finish(said.id, "length", {"ids": [1]})
        home, path = store.get(home.id), store.messages(home.id)
    text, html = markdown(home, path), page(home, path)
    about = f" · {home.id}"
    assert text.startswith("# *Q*")
    assert f"{about}*\n\n## You\n\n```a.txt\ntext\n```\n\n*Q* " in text
    assert text.endswith("## Assistant\n\nso far\n\n*(cut off by max-tokens)*\n")
    assert "*a · " in text
    assert '<section class="user">\n<h2>You</h2>\n<div class="text">```a.txt\ntext\n```\n\n*Q* ' in html
    assert '<p>so far</p>\n</div>\n<p class="about">(cut off by max-tokens)</p>\n</section>' in html
    assert f"<title>{home.title.replace(chr(27), '').strip()[:3]}" in html
    assert "\x1b" not in text + html
    whole = replace(path[1], finish="stop")
    assert not {"cut off", "()"} & set(re.findall(r"cut off|\(\)", markdown(home, [whole]) + page(home, [whole])))
    assert page(home, [whole]).count('class="about"') == 1
    assert re.search(rf"\n\*a · \d{{4}}-\d\d-\d\d \d\d:\d\d[+-]\d\d:\d\d · {home.id}\*\n", text)


def test_the_parser_reads_no_html() -> None:
    assert parser().render("<b>h</b>") == "<p>&lt;b&gt;h&lt;/b&gt;</p>\n"


def test_json_holds_every_field(tmp_path: Path) -> None:
    with Store.open(tmp_path / "conversations.db") as store:
        home = store.create("p", system="S")
        store.add_message(home.id, None, "user", "Q", attachments=[Attachment("a.txt", "text")])
        home, path = store.get(home.id), store.messages(home.id)
    told = json.loads(json.dumps(to_wire(home, path)))
    assert told["schema"] == "localspec.conversation/1"
    assert (told["id"], told["system"], told["n_messages"]) == (home.id, "S", 1)
    (message,) = told["messages"]
    assert (message["text"], message["parent"], message["finish"]) == ("Q", None, "sent")
    assert message["attachments"] == [{"name": "a.txt", "text": "text"}]


def test_markdown_of_a_message_stays_within_its_part(tmp_path: Path) -> None:
    """An open fence would take all later turns for code, and a heading would begin a turn of its own."""
    cut = "Here:\n```python\n# a comment\nclass A:"
    text, _ = exported(tmp_path, cut, "t")
    assert f"## Assistant\n\n{cut}\n```\n" in text
    for answer, shown in (
        ("## You\n### so\n####### no", "#### You\n##### so\n####### no"),
        ("~~~~\n# x\n~~~\n~~~~\n# y", "~~~~\n# x\n~~~\n~~~~\n### y"),
        ("```a`b``` c\n# y", "```a`b``` c\n### y"),
        ("````\n```\n````\n#no", "````\n```\n````\n#no"),
    ):
        text, _ = exported(tmp_path, answer, "t")
        assert text.endswith(f"\n\n{shown}\n")


def test_json_for_others_has_names_of_files_alone() -> None:
    made = {
        "pair": "/models/of/me/big.gguf+/models/of/me/small.gguf", "system": "in /models/of/me",
        "title": "say @/m/a.txt",
        "messages": [{"text": "see /etc/x in @/models/of/me/a.txt", "role": "user",
                      "attachments": [{"name": "/models/of/me/a.txt", "text": "@/b"}],
                      "stats": {"target": {"path": "/m/big.gguf"}, "params": {"lora": [["/m/l.gguf", 0.5]]}}}],
    }  # fmt: skip
    assert without_folders(made) == {
        "pair": "big.gguf+small.gguf", "system": "in /models/of/me",
        "title": "say @a.txt",
        "messages": [{"text": "see /etc/x in @a.txt", "role": "user",
                      "attachments": [{"name": "a.txt", "text": "@/b"}],
                      "stats": {"target": {"path": "big.gguf"}, "params": {"lora": [["l.gguf", 0.5]]}}}],
    }  # fmt: skip
    assert without_folders({"pair": "hf:a/b:Q8+none", "n": 1}) == {"pair": "hf:a/b:Q8+none", "n": 1}
