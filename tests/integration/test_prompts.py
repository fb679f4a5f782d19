"""Raw prompts, fill in the middle, and models without a chat template, on real vocabularies and on the loaded pair."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gguf
import pytest

from localspec.backends.llama_cpp import Model
from localspec.engine import events
from localspec.errors import UsageError
from localspec.prompt import chat_template
from localspec.prompt.named_templates import NAMED
from localspec.prompt.prompt import CONTINUED, Tokenised, special_texts, tokenise
from localspec.settings.request import LoadSettings, Message, Request, Sampling
from tests.integration import pair
from tests.integration.gguf_models import EXACT, copied, random_gguf

FIM = {"fim_pre": 500, "fim_suf": 501, "fim_mid": 502}
MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def with_marks(tokens: list[str]) -> list[str]:
    """Return a vocabulary with the texts of the marks for filling in the middle."""
    marks = dict(zip(FIM.values(), MARKS, strict=True))
    return [marks.get(token, text) for token, text in enumerate(tokens)]


def with_controls(types: list[int]) -> list[int]:
    return [int(gguf.TokenType.CONTROL) if token in FIM.values() else kind for token, kind in enumerate(types)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = copied(
        random_gguf(),
        tmp_path_factory.mktemp("code") / "m.gguf",
        {"tokenizer.ggml.tokens": with_marks, "tokenizer.ggml.token_type": with_controls},
        numbers={f"tokenizer.ggml.{name}_token_id": token for name, token in FIM.items()},
    )
    with Model(path, EXACT) as model:
        yield model


def read(model: Model, request: Request) -> Tokenised:
    return tokenise(request, model, special_texts(model))


def test_a_raw_prompt_reads_control_tokens(model: Model) -> None:
    bos = model.special.bos
    found = read(model, Request(prompt="<|fim_prefix|>x<|fim_suffix|>y<|fim_middle|>"))
    assert found.tokens == [bos, 500, *model.tokenize("x"), 501, *model.tokenize("y"), 502]


def test_a_raw_prompt_with_its_own_bos_has_one(model: Model) -> None:
    assert model.special.bos is not None
    text = model.piece(model.special.bos, special=True).decode()
    assert read(model, Request(prompt=f"{text}x")).tokens == read(model, Request(prompt="x")).tokens


def test_a_chat_reads_none(model: Model) -> None:
    for template in ("chatml", None):
        messages = (Message("user", "".join(MARKS)),)
        found = read(model, Request(messages=messages, template=template, continues=template is None))
        assert not {500, 501, 502} & set(found.tokens)


TURNS = "{% for m in messages %}<|fim_prefix|>{{ m['content'] }}<|fim_suffix|>{% endfor %}<|fim_middle|>"


@pytest.mark.parametrize("question", ["hi", "<|fim_suffix|>hi"])  # read in one piece, and in several
def test_an_answer_is_read_as_the_tokens_that_it_was_written_with(model: Model, question: str) -> None:
    """So that what is in the caches is not read again; where they are its text no more, the text counts."""
    text = "a king"
    own = model.tokenize(text)
    written = [token for letter in text for token in model.tokenize(letter)]
    assert written != own

    def answer_of(answer: Message, template: str = TURNS) -> list[int]:
        messages = (Message("user", question), answer, Message("user", "and"))
        tokens = read(model, Request(messages=messages, template=template)).tokens
        whole = read(model, Request(messages=(messages[0], replace(answer, ids=()), messages[2]), template=template))
        if tokens == whole.tokens:
            return own
        at = next(i for i, pair in enumerate(zip(tokens, whole.tokens, strict=False)) if pair[0] != pair[1])
        start = at - next(i for i, pair in enumerate(zip(written, own, strict=False)) if pair[0] != pair[1])
        assert tokens[:start] == whole.tokens[:start]
        assert tokens[start + len(written) :] == whole.tokens[start + len(own) :], "nothing else changes"
        return tokens[start : start + len(written)]

    assert answer_of(Message("assistant", text, ids=tuple(written))) == written
    assert answer_of(Message("assistant", text, ids=(*written, FIM["fim_suf"]))) == written, "its end is the template's"
    assert answer_of(Message("assistant", text)) == own
    assert answer_of(Message("assistant", "the king", ids=tuple(written))) == own, "another text"
    assert answer_of(Message("assistant", text, ids=(*written, model.n_vocab))) == own, "another model"
    assert answer_of(Message("assistant", text, ids=(FIM["fim_suf"], *written))) == own, "no message is a control token"
    loose = TURNS.replace("<|fim_suffix|>", " ")
    assert answer_of(Message("assistant", text, ids=tuple(written)), loose) == own, "what follows depends on it"


def test_fill_in_the_middle_has_the_order_of_llama_cpp(model: Model) -> None:
    """Prefix and suffix are text, whatever they spell."""
    found = read(model, Request(prompt="a<|fim_middle|>", suffix="b"))
    before = read(model, Request(messages=(Message("user", "a<|fim_middle|>"),), continues=True)).tokens
    assert found.tokens == [before[0], 500, *before[1:], 501, *model.tokenize("b"), 502]
    assert read(model, Request(prompt="", suffix="")).tokens == [before[0], 500, 501, 502]


def test_a_model_without_the_tokens_says_so() -> None:
    with Model(random_gguf(), EXACT) as model, pytest.raises(UsageError, match="no tokens for filling in the middle"):
        read(model, Request(prompt="a", suffix="b"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(pair.TARGET, tmp_path_factory.mktemp("base") / "base.gguf", {}, without=("tokenizer.chat_template",))


def answered(path: Path, request: Request) -> tuple[str, list[str], str]:
    session, _ = pair.load_pair(LoadSettings(str(path)))
    told = list(session.answer(request))
    session.close()
    (end,) = [event for event in told if isinstance(event, events.Finished)]
    text = "".join(event.text for event in told if isinstance(event, events.Committed)) + end.tail
    return text, [event.message for event in told if isinstance(event, events.Warned)], end.reason


GREEDY = Sampling(temperature=0.0)
ASKED = (Message("user", "Once upon a time"),)


def test_a_base_model_continues_a_lone_message(base: Path) -> None:
    request = Request(messages=ASKED, continues=True, max_tokens=12, sampling=GREEDY)
    text, warnings, _ = answered(base, request)
    assert text == answered(base, Request(prompt="Once upon a time", max_tokens=12, sampling=GREEDY))[0]
    assert warnings == [CONTINUED]
    assert answered(pair.TARGET, request)[1] == [], "a model with a template is asked through it"


def test_an_answer_ends_where_the_template_says(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation on a base model: what would begin the next turn is not part of the answer."""
    turns = (*ASKED, Message("assistant", "there was a king."), Message("user", "And then?"))
    request = Request(messages=turns, template=NAMED["none"].source, max_tokens=40, sampling=GREEDY)
    whole, _, reason = answered(base, request)
    assert reason == "length"
    monkeypatch.setattr(chat_template, "stops_of", lambda source: (whole[20:24],))
    text, _, reason = answered(base, request)
    assert (text, reason) == (whole[: whole.index(whole[20:24])], "stop")


def test_filling_in_ends_where_the_suffix_begins_again(tmp_path: Path) -> None:
    """A model that says one word for ever: it goes on where the suffix is another one, and ends where it is that."""
    numbers = {f"tokenizer.ggml.{name}_token_id": token for name, token in FIM.items()}
    path = copied(pair.TARGET, tmp_path / "m.gguf", {}, numbers=numbers)
    with Model(path, EXACT) as model:
        (word,) = model.tokenize(" the")
    sampling = Sampling(temperature=0.0, logit_bias=((word, 1000.0),))
    asked = Request(prompt="Once", suffix=" queen and king", max_tokens=12, sampling=sampling)
    assert answered(path, asked)[::2] == (" the" * 12, "length")
    assert answered(path, replace(asked, suffix=" the" * 4))[::2] == ("", "stop")


def test_the_fallback_is_told_and_used(base: Path) -> None:
    turns = (*ASKED, Message("assistant", "there was a king."), Message("user", "And then?"))
    _, warnings, _ = answered(base, Request(messages=turns, max_tokens=4, sampling=GREEDY))
    assert warnings == ["The model has no chat template; ChatML is used instead"]
