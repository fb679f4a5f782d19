"""Lines for people: lists of conversations and of hits, attachments, what was said."""

from dataclasses import replace

from localspec.chat.listing import about, attached, came_back, hits, in_columns, named, rows, said, when
from localspec.conversations.records import Attachment, Conversation, Hit, StoredMessage

HOME = Conversation("0000000a", "A king", "/m/a.gguf+none", None, 0.0, 60.0, None, 2, 1)
ASKED = StoredMessage(1, HOME.id, None, "user", "Who?", 0.0, "sent")
SAID = StoredMessage(2, HOME.id, 1, "assistant", " He.\x1b", 0.0, "stop")


def test_conversations_are_counted_from_one_where_they_are_numbered() -> None:
    other = replace(HOME, id="0000000b", title="", n_messages=12)
    assert rows([HOME, other], here=HOME.id) == [
        f"0000000a  {when(60.0)}     1 message  A king (this one)",
        f"0000000b  {when(60.0)}   12 messages  (no title)",
    ]
    assert [line[:14] for line in rows([HOME, other], numbered=True)] == ["  1. 0000000a ", "  2. 0000000b "]


def test_hits_are_counted_from_one_where_they_are_numbered() -> None:
    found = [Hit(HOME, ASKED, "Who\n?"), Hit(HOME, SAID, "He.")]
    plain = [f"0000000a  {when(0.0)}  You: Who ?", f"0000000a  {when(0.0)}  Assistant: He."]
    assert hits(found) == plain
    assert hits(found, numbered=True) == [f"  1. {plain[0]}", f"  2. {plain[1]}"]


def test_attachments_are_named_up_to_five() -> None:
    asked = replace(ASKED, attachments=tuple(Attachment(name, "a\nb") for name in ("x", "", "z", "u", "v")))
    names = "attached: x (2 lines), piped text (2 lines), z (2 lines), u (2 lines), v (2 lines)"
    assert attached([asked]) == names
    assert attached([asked, replace(ASKED, attachments=(Attachment("w", ""),))]) == f"{names}, 1 more"
    assert attached([ASKED]) == ""
    assert came_back(HOME, [ASKED]) == f"{about(HOME)} · 1 message"
    assert came_back(HOME, [asked]).endswith(f"1 message · {names}")


def test_a_conversation_is_named_with_its_models_and_title() -> None:
    assert about(HOME) == f"0000000a · {when(0.0)} · a · A king"
    assert about(replace(HOME, title="")) == f"0000000a · {when(0.0)} · a"
    assert named(HOME) == "0000000a “A king”, 1 message"
    assert named(replace(HOME, title="x" * 61)) == f"0000000a “{'x' * 60}…”, 1 message"
    assert named(replace(HOME, title="x" * 60)) == f"0000000a “{'x' * 60}”, 1 message"
    assert named(replace(HOME, title="")) == "0000000a “no title”, 1 message"


def test_what_was_said_is_safe_and_tells_what_was_cut() -> None:
    lines = said([ASKED, SAID, ASKED, replace(SAID, finish="length")])
    assert [line.partition("\x1b")[2] for line in lines] == [""] * 5
    assert lines[0] == "You: Who?"
    assert lines[1].startswith("Assistant: He.")
    assert lines[4] == "(cut off by max-tokens)"


def test_columns_and_times() -> None:
    assert in_columns([("a", "x"), ("long", "y")]) == ["  a     x", "  long  y"]
    assert when(1e20) == "????????????????"
