"""`localspec logs`: what is kept, listed, shown, searched, exported, deleted and brought back."""

import json
import os
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.app import call
from localspec.cli.console import Console
from localspec.conversations.records import Attachment
from localspec.conversations.store import Store
from localspec.errors import DeclinedError, LocalspecError, NotFoundError
from localspec.settings.folders import conversations_file
from tests.cli.harness import REAL, Terminal, run

# What a model may say to the terminal or the browser of whoever reads it later.
HOSTILE = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\u202eevil\u200b</div><script>alert(1)</script>[x](javascript:alert(1))&lt;"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e]")

Logs = Callable[..., str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(conversations_file()) as store:
        yield store


@pytest.fixture
def logs(capsys: pytest.CaptureFixture[str]) -> Logs:
    """Run a command as it is typed; return what it printed."""

    def run(*args: str) -> str:
        assert call(["logs", *args], Console()) == 0
        return capsys.readouterr().out

    return run


def keep(store: Store, *texts: str, title: str = "", pair: str = "big+small") -> str:
    """Keep a conversation of turns; return its id."""
    home, parent = store.create(pair, title=title).id, None
    for i, text in enumerate(texts):
        message = store.add_message(home, parent, "assistant" if i % 2 else "user", text)
        parent = message.id
        if i % 2:
            store.finish(message.id, "stop")
    return home


def test_the_list(store: Store, logs: Logs) -> None:
    ids = [keep(store, f"question {i}", "answer") for i in range(25)]
    lines = logs().splitlines()
    assert len(lines) == 20
    assert lines[0].startswith(ids[-1])
    assert "  2 messages  question 24" in lines[0]
    assert len(logs("-n", "0").splitlines()) == 25
    assert logs("-n", "99999999999999999999") == logs("-n", "0")
    assert logs("list", "-n", "3") == logs("-n", "3")
    listed = json.loads(logs("--json", "-n", "2"))
    assert [each["id"] for each in listed["conversations"]] == ids[:-3:-1]
    assert listed["path"] == str(conversations_file())
    assert logs("path").strip() == listed["path"]


def test_one_is_shown(store: Store, logs: Logs) -> None:
    older = keep(store, "one", "1")
    latest = keep(store, "two", "2", "three", "3", title="Numbers")
    store.set_system(latest, "Count")
    store.add_message(latest, store.messages(latest)[2].id, "assistant", "3, again")
    shown = logs("show").splitlines()
    assert shown[0].startswith(latest)
    assert shown[0].endswith("Numbers")
    assert shown[1:6] == ["System: Count", "You: two", "Assistant: 2", "You: three", "Assistant: 3, again"]
    assert shown[6:] == ["(still being written)", "(1 message on other branches: --json shows them)"]
    assert logs("-c") == logs("show", latest) == logs("--session", latest) == logs(f"--session={latest}")
    assert logs("--json", "-c") == logs("show", "--json")
    assert logs("-c", "-n", "2") == logs("show", "-n", "2")
    assert logs("show", "-n", "2").splitlines()[2:] == ["You: three", "Assistant: 3, again", "(still being written)"]
    assert [each["text"] for each in json.loads(logs("-c", "-n", "1", "--json"))["messages"]] == ["3, again"]
    assert "You: one" in logs("show", older[-6:])
    whole = json.loads(logs("show", "--json"))
    assert whole["schema"] == "localspec.conversation/1"
    assert [message["text"] for message in whole["messages"]] == ["two", "2", "three", "3", "3, again"]


def test_a_title_that_was_given_is_searched_too(store: Store, logs: Logs) -> None:
    """Words of it in any case; a conversation with a message that has them is listed once, by the message."""
    home = keep(store, "Why is the sky blue", "It scatters")
    logs("rename", home, "Weather Notes about the sky")
    (line,) = logs("search", "weather", "NOT").splitlines()
    assert (line[:8], line[-27:]) == (home, "Weather Notes about the sky")
    found = json.loads(logs("search", "weather", "--json"))
    assert found == {"search": "weather", "hits": [], "titles": [{"conversation": home, "title": line[-27:]}]}
    (line,) = logs("search", "sky").splitlines()
    assert line.endswith("You: Why is the sky blue")
    with pytest.raises(NotFoundError):
        logs("search", "weather", "scatters")


@pytest.mark.parametrize("args", [["-y"], ["--now", "-y"], ["--json", "-y"]])
def test_what_goes_is_named_first(args: list[str], store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (keep(store, f"tell {i}", "x") for i in range(2))
    assert call(["logs", "rm", *args, one, two], Console()) == 0
    told = f"to be deleted: {one} “tell 0”, 2 messages\nto be deleted: {two} “tell 1”, 2 messages\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("args", [[], ["--now"], ["--json"]])
def test_without_a_terminal_nothing_goes_unasked(args: list[str], store: Store, logs: Logs) -> None:
    one = keep(store, "one", "1")
    with pytest.raises(DeclinedError, match=f"{one} would be deleted{' for good' * ('--now' in args)}$") as caught:
        logs("rm", *args, one)
    assert caught.value.hint == "-y deletes without asking"
    assert store.get(one).deleted_at is None


@pytest.mark.parametrize("answer", ["", "n", "y"])
def test_on_a_terminal_it_asks_and_names_what_goes(answer: str, store: Store, home: Path) -> None:
    one = keep(store, "one", "1")
    terminal = Terminal(["logs", "rm", one], program=REAL, env={"LOCALSPEC_HOME": str(home / "home")})
    terminal.wait_for(lambda: f"Delete {one}? [y/N]" in terminal.text)
    assert f"to be deleted: {one} “one”, 2 messages" in terminal.text
    terminal.type(f"{answer}\n")
    assert terminal.wait() == (0 if answer == "y" else 11)
    assert (store.get(one).deleted_at is not None) == (answer == "y")


def test_deleting_and_bringing_back(store: Store, logs: Logs) -> None:
    one, two, three = (keep(store, f"{i}", "x") for i in range(3))
    assert logs("rm", "-y", one, two[-6:], one) == f"deleted {one} and {two}; localspec logs undo ID restores one\n"
    assert [line[:8] for line in logs().splitlines()] == [three]
    assert logs("undo").startswith(two)
    assert json.loads(logs("undo", one[2:], "--json")) == {"restored": one}
    for args in (["undo", one], ["undo", "zzzzzzzz"]):
        with pytest.raises(NotFoundError, match="there is no deleted conversation"):
            logs(*args)
    assert len(logs().splitlines()) == 3
    with pytest.raises(NotFoundError):
        logs("rm", three, "zzzzzzzz")
    assert len(logs().splitlines()) == 3, "all of them, or none"
    assert json.loads(logs("rm", "--now", "-y", "--json", three)) == {"deleted": [three], "for_good": True}
    with pytest.raises(NotFoundError):
        logs("undo", three)


class Page(HTMLParser):
    """What a browser would make of a page: its tags, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_holds_hostile_text_as_text(store: Store, logs: Logs) -> None:
    home = keep(store, HOSTILE, HOSTILE, title=HOSTILE, pair=HOSTILE)
    store.set_system(home, HOSTILE)
    message = store.messages(home)[1].id
    store.add_message(home, message, "user", "see", attachments=[Attachment(f"{HOSTILE}.txt", HOSTILE)])
    text = logs("export", "--format", "html")
    page = Page(text)
    assert {"script", "a", "img", "iframe", "link", "form", "object", "base"}.isdisjoint(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("href", "src", "style")]
    assert page.text.count("</div><script>alert(1)</script>[x](javascript:alert(1))&lt;") >= 5
    assert not CONTROLS.search(text)
    assert "default-src 'none'" in text


def test_html_shows_an_answers_markdown(store: Store, logs: Logs) -> None:
    """HTML in it stays text, and only addresses of the web are links. What a person wrote is shown as it is."""
    answer = "# Head\n\n**bold** <b>no</b> &#8238;[a](https://a.example) ![p](https://p.example/p.png) [f](file:///f)\n"
    keep(store, "**mine**\n", f"{answer}\n```py\nx < 1\n```\n")
    page = Page(text := logs("export", "--format", "html"))
    assert {"h1", "strong", "pre", "code"} <= set(page.tags)
    assert {"b", "img", "script"}.isdisjoint(page.tags)
    assert [value for name, value in page.attributes if name == "href"] == [
        "https://a.example",
        "https://p.example/p.png",
    ]
    assert "**mine**" in page.text
    assert "x < 1" in page.text
    assert "<b>no</b> \\u{202e}" in page.text
    assert not CONTROLS.search(text)


@pytest.mark.parametrize("much", ["word " * 20_000, "x" * 10_000, ">" * 50 + " deep"])
def test_html_shows_what_is_too_much_for_markdown_as_it_is(store: Store, logs: Logs, much: str) -> None:
    keep(store, "one", f"**two** {much}" if much[0] != ">" else f"{much} **two**")
    page = Page(logs("export", "--format", "html"))
    assert "strong" not in page.tags
    assert "**two**" in page.text


@pytest.mark.parametrize(
    ("pair", "shown"),
    [
        ("/models/qwen.gguf+none", "qwen"),
        ("/m/big-q4.GGUF+/m/small.gguf", "big-q4+small"),
        ("/m/a+b.gguf", "a+b"),
        ("storyteller", "storyteller"),
        ("hf:org/big-GGUF:Q4_K_M+eagle3", "hf:org/big-GGUF:Q4_K_M+eagle3"),
    ],
)
def test_models_are_named_for_people(store: Store, logs: Logs, pair: str, shown: str) -> None:
    """Without folders, endings and a draft that there is not; JSON has what finds them again where paths are asked."""
    keep(store, "one", "1", pair=pair)
    assert f"*{shown} · " in logs("export")
    assert f">{shown} · " in logs("export", "--format", "html")
    assert f" · {shown}" in logs("show").splitlines()[0]
    assert json.loads(logs("export", "--format", "json", "--paths"))["pair"] == pair


def test_a_file_behind_an_at_is_named_without_its_folder(store: Store, logs: Logs) -> None:
    typed, files = "what is @/srv/texts/a.txt?", (Attachment("/srv/texts/a.txt", "1"),)
    home = store.create("p", title=typed).id
    store.add_message(home, None, "user", typed, attachments=files)
    for form in ("md", "html", "json"):
        made = logs("export", "--format", form)
        assert ("/srv/texts" in made, made.count("what is @a.txt?") >= 2) == (False, True)
    assert json.loads(logs("export", "--format", "json", "--paths"))["messages"][0]["text"] == typed
    later = store.create("p").id
    store.add_message(later, None, "user", typed, attachments=files)
    assert store.get(later).title == "what is @a.txt?"


@pytest.mark.parametrize("args", [[], ["show"], ["search", "evil"], ["export"], ["list", "--json"], ["show", "--json"]])
def test_nothing_that_is_printed_controls_a_terminal(store: Store, logs: Logs, args: list[str]) -> None:
    home = keep(store, HOSTILE, HOSTILE, title=HOSTILE, pair=HOSTILE)
    store.set_system(home, HOSTILE)
    shown = logs(*args)
    assert "evil" in shown
    assert not CONTROLS.search(shown)


def test_what_cannot_be_changed_is_an_error(store: Store, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep(store, "one", "1")

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("localspec.conversations.database._prepare", refuse)
    with pytest.raises(LocalspecError, match="not saved"):
        logs("rm", "-y", kept)
    assert kept in logs(), "it can still be looked at"
    monkeypatch.undo()
    assert store.get(kept).deleted_at is None


def test_a_conversation_is_renamed(store: Store, logs: Logs) -> None:
    one = keep(store, "hi", "ho", title="before")
    assert logs("rename", one, "a", "better title") == f"{one} “a better title”, 2 messages; it was “before”\n"
    assert store.get(one).title == "a better title"
    told = json.loads(logs("rename", one[-6:], "again", "--json"))
    assert told == {"renamed": one, "title": "again", "before": "a better title"}


def test_a_number_is_that_of_the_list_that_was_seen(logs: Logs) -> None:
    """Also once another conversation was used; before a list nothing has a number."""
    with Store.open(conversations_file()) as store:
        one, two = (keep(store, "hi", "ho", title=title, pair="storyteller") for title in ("one", "two"))
    for _ in range(2):
        with pytest.raises(NotFoundError, match="no list has shown a conversation 2"):
            logs("show", "2")
        assert logs().startswith(two), "in a pipe the ID begins the line, and nothing has a number"
    terminal = Terminal(["logs"], program=REAL, env={"LOCALSPEC_HOME": os.environ["LOCALSPEC_HOME"]})
    assert terminal.wait() == 0
    assert [line.split()[:2] for line in terminal.lines] == [["1.", two], ["2.", one]]
    with Store.open(conversations_file()) as store:
        keep(store, "later", "ho", title="three")
    assert one in logs("show", "2")
    assert logs("rename", "1", "deux").startswith(f"{two} “deux”")
    assert run("run", "--session", "2", "on", env={"LOCALSPEC_HOME": os.environ["LOCALSPEC_HOME"]}).returncode == 0
    assert json.loads(logs("show", "2", "--json"))["messages"][2]["text"] == "on"
    logs("rm", "2", "-y")
    assert logs("undo", "2").startswith(one)
    for typed in ("0", "3"):
        with pytest.raises(NotFoundError, match=f"no list has shown a conversation {typed}"):
            logs("rm", typed, "-y")
