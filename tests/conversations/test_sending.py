"""What is sent of a path, and what a conversation keeps from its last answer."""

from dataclasses import replace

from localspec.conversations.records import Attachment, StoredMessage
from localspec.conversations.sending import KeptSettings, left_out, to_send
from localspec.settings.jobs import Generate
from localspec.settings.request import LoadSettings, Message, Request
from tests.worker.wire import crossed

ASKED = StoredMessage(1, "c", None, "user", "one", 0.0, "sent")
SAID = StoredMessage(2, "c", 1, "assistant", "1", 0.0, "stop")


def test_a_thought_goes_along_with_its_answer() -> None:
    """The template decides whether it is sent to the model."""
    said = replace(SAID, stats={"reasoning": "hm"})
    silent = replace(SAID, text="2", stats={"reasoning": None})
    sent = to_send([ASKED, said, ASKED, silent], None, "three")
    assert [message.reasoning for message in sent] == ["", "hm", "", "", ""]
    assert crossed(Generate(Request(messages=sent))).request.messages == sent


def test_a_question_without_an_answer_goes_with_the_next_one_unless_it_failed() -> None:
    for finish, asked in (("interrupted", "two\n\nthree"), ("error", "three")):
        silent = replace(SAID, text="", finish=finish)
        path = [ASKED, SAID, replace(ASKED, text="two"), silent]
        sent = [(message.role, message.content) for message in to_send(path, "S", "three")]
        assert sent == [("system", "S"), ("user", "one"), ("assistant", "1"), ("user", asked)]
    failed, partly = replace(SAID, text="", finish="error"), replace(SAID, text="so", finish="error")
    assert [message.content for message in to_send([ASKED, ASKED, failed], None, "x")] == ["one\n\nx"]
    assert [message.content for message in to_send([ASKED, partly], None, "x")] == ["one", "so", "x"]
    assert to_send([], None, "x") == (Message("user", "x"),)


def test_names_of_files_and_tokens_of_answers_are_sent() -> None:
    first, second = (replace(ASKED, attachments=(Attachment(name, "text"),)) for name in ("a.txt", "b.txt"))
    said = replace(SAID, stats={"ids": [5, 6]})
    sent = to_send([first, second, said], None, "x")
    assert [(message.files, message.ids) for message in sent] == [(("a.txt", "b.txt"), ()), ((), (5, 6)), ((), ())]
    assert sent[0].content == f"{first.content}\n\n{second.content}"


def test_turns_are_left_out_as_the_last_answer_that_tells_did() -> None:
    told = [replace(SAID, stats=stats) for stats in ({"left_out": [1]}, {"left_out": [1, 2]}, {}, None)]
    assert left_out(told) == (1, 2)
    assert left_out([*told, replace(SAID, stats={"left_out": []})]) == ()
    assert left_out(told[2:]) == ()


def test_a_conversation_keeps_its_template_and_its_adapters() -> None:
    """An answer of an earlier version tells less, and so nothing."""
    params = {"template": "chatml", "template_args": [["a", [1]]], "think": "off", "lora": [["x.gguf", 0.5]]}
    other = {**params, "template": None}
    less = {name: params[name] for name in ("template", "think")}
    path = [replace(SAID, stats=stats) for stats in ({"params": other}, {"params": params}, {"params": less}, None)]
    kept = KeptSettings.of([*path, ASKED])
    assert kept == KeptSettings("chatml", (("a", (1,)),), "off", (("x.gguf", 0.5),))
    assert KeptSettings.of(path[:1]) == replace(kept, template=None)
    assert KeptSettings.of(path[2:]) is None
    chosen = Request(template="llama3", think="on", max_tokens=7)
    assert kept.request(chosen) == replace(chosen, template="chatml", template_args=(("a", (1,)),), think="off")
    assert kept.request(chosen, {"think", "template"}) == replace(chosen, template_args=(("a", (1,)),))
    assert kept.load(LoadSettings("m.gguf")) == LoadSettings("m.gguf", lora=(("x.gguf", 0.5),))
