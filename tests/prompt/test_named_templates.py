"""Templates by name: the prompts of llama.cpp's own templates, and the texts that end their answers."""

import ctypes

import pytest

from localspec.backends.lib import api
from localspec.prompt.chat_template import render
from localspec.prompt.named_templates import NAMED, stops_of
from localspec.settings.request import Message

THEIRS = {"llama2": "llama2-sys", "mistral": "mistral-v3", "mistral-v7": "mistral-v7-tekken"}
CHATS = {
    "one": [("user", "Hi there")],
    "system": [("system", "Be brief."), ("user", "Hi")],
    "turns": [("user", " Hi "), ("assistant", " Hello. "), ("user", "Bye")],
    "all": [
        ("system", "Be brief."),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("assistant", "d"),
        ("user", "e"),
    ],
}
NOT_THEIRS = {"none"}  # llama.cpp has no template for models without one


def llama_cpp(name: str, chat: list[tuple[str, str]]) -> str:
    messages = (api.llama_chat_message * len(chat))()
    for message, (role, content) in zip(messages, chat, strict=True):
        message.role, message.content = role.encode(), content.encode()
    buffer = ctypes.create_string_buffer(4096)
    n = api.llama_chat_apply_template(name.encode(), messages, len(chat), True, buffer, len(buffer))
    assert 0 < n < len(buffer)
    return buffer.raw[:n].decode()


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", sorted(NAMED.keys() - NOT_THEIRS))
def test_the_prompt_is_llama_cpps(name: str, chat: str) -> None:
    messages = [Message(role, content) for role, content in CHATS[chat]]
    rendered = render(messages, NAMED[name].source, bos="<s>", eos="<|endoftext|>", specials=(), is_explicit=True)
    assert rendered.warnings == ()
    assert rendered.text == llama_cpp(THEIRS.get(name, name), CHATS[chat])


def test_each_ends_its_answers() -> None:
    for named in NAMED.values():
        assert named.stops
        assert stops_of(named.source) == named.stops
        messages = [Message("user", "Hi")]
        assert render(messages, named.source, bos="", eos="", specials=(), is_explicit=True).stops == named.stops
    assert stops_of("{{ messages }}") == ()


def test_the_fallback_brings_its_stops() -> None:
    """A base model would go on with the next question."""
    rendered = render([Message("user", "Hi")], None, bos="", eos="", specials=())
    assert rendered.stops == ("\n\nUser:", "\nUser:", "\n\nAssistant:", "\nAssistant:")
