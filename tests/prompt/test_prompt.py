"""From a request to tokens: how a prompt begins, and what of it may stand for structure."""

import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from localspec.backends.model import Model
from localspec.errors import NotFoundError
from localspec.prompt.prompt import tokenise
from localspec.settings.request import Message, Request

BOS, EOS = 1, 2
NAMES = {BOS: "<s>", EOS: "</s>"}


@dataclass
class Letters:
    """A vocabulary of letters and two marks, as the tokeniser of a model would read them."""

    add_bos: bool
    bos: int | None = BOS
    chat_template: str | None = None
    named: dict[str, str] = field(default_factory=dict)

    @property
    def template_names(self) -> tuple[str, ...]:
        return tuple(self.named)

    def template(self, name: str | None) -> str | None:
        return self.chat_template if name is None else self.named.get(name)

    @property
    def special(self) -> SimpleNamespace:
        return SimpleNamespace(bos=self.bos, eos=EOS, add_bos=self.add_bos)

    def is_parsed(self, token: int) -> bool:
        return token in NAMES

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return NAMES.get(token, chr(token)).encode()

    def tokenize(self, text: str, *, add_bos: bool = False, parse_special: bool = False) -> list[int]:
        marks = {name: token for token, name in NAMES.items()} if parse_special else {}
        parts = re.split("(</?s>)", text)
        found = [token for part in parts for token in ([marks[part]] if part in marks else map(ord, part))]
        return [BOS, *found] if add_bos and self.add_bos and self.bos is not None else found


def tokens(model: Letters, **request: Any) -> str:
    found = tokenise(Request(**request), cast(Model, model), frozenset(NAMES.values())).tokens
    return "".join("^" if token == BOS else "$" if token == EOS else chr(token) for token in found)


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("template", ["{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"])
def test_a_prompt_begins_once(add_bos: bool, template: str) -> None:
    """A template may write the token that begins a text, and a model may want it in any case: never twice."""
    model = Letters(add_bos, chat_template=template)
    begins = add_bos or "bos_token" in template
    assert tokens(model, messages=(Message("user", "hi"),)) == ("^hi" if begins else "hi")


def test_a_message_begins_nothing() -> None:
    model = Letters(add_bos=True, chat_template="{{ messages[0].content }}")
    assert tokens(model, messages=(Message("user", "<s>hi</s>"),)) == "^<s>hi</s>"
    assert tokens(model, prompt="<s>hi") == "^hi", "a raw prompt is read with its marks, and begins once"


@pytest.mark.parametrize(("model", "begins"), [(Letters(True), "^"), (Letters(False), "^"), (Letters(True, None), "$")])
def test_an_empty_prompt_has_a_token_to_start_from(model: Letters, begins: str) -> None:
    assert tokens(model, prompt="") == begins


def test_a_prompt_is_cut_to_the_tokens_that_were_asked_for() -> None:
    assert tokens(Letters(add_bos=True), prompt="hello", prompt_tokens=3) == "^he"


def test_another_template_of_the_file_is_taken_by_its_name() -> None:
    model = Letters(False, chat_template="{{ messages[0].content }}", named={"rag": "rag: {{ messages[0].content }}"})
    hi = (Message("user", "hi"),)
    assert tokens(model, messages=hi, template="rag") == "rag: hi"
    assert tokens(model, messages=hi) == "hi"
    with pytest.raises(NotFoundError, match="'rga' is no file") as caught:
        tokens(model, messages=hi, template="rga")
    assert "rag, chatml" in caught.value.hint
