"""A file with several chat templates: the default one is used, and `--template NAME` takes another one."""

from pathlib import Path

import pytest

from localspec.backends.model import Model
from localspec.errors import NotFoundError
from localspec.models.gguf.header import read_header
from localspec.models.gguf.info import model_info
from localspec.prompt.prompt import special_texts, template_text, tokenise
from localspec.settings.request import Message, Request
from tests.integration.gguf_models import copied

SOURCE = Path(__file__).parents[2] / "models" / "storyteller" / "draft-q8_0.gguf"
DEFAULT = "default: {{ messages[0].content }}"
RAG = "rag: {{ messages[0].content }}"
HI = (Message("user", "hi"),)


@pytest.mark.parametrize("key", ["tokenizer.chat_template", "tokenizer.chat_template.default"])
def test_a_file_with_several_templates(tmp_path: Path, key: str) -> None:
    texts = {key: DEFAULT, "tokenizer.chat_template.rag": RAG}
    had = {"tokenizer.chat_template"} & read_header(SOURCE).metadata.keys()
    path = copied(SOURCE, tmp_path / "m.gguf", {}, without=had, texts=texts)
    assert model_info(read_header(path)).chat_template == DEFAULT
    with Model(path) as model:
        assert model.template(None) == DEFAULT
        assert "rag" in model.template_names
        specials = special_texts(model)

        def prompt(template: str | None) -> str:
            found = tokenise(Request(messages=HI, template=template), model, specials)
            assert found.warnings == ()
            return b"".join(model.piece(token) for token in found.tokens).decode().strip()

        assert prompt(None) == "default: hi"
        assert prompt("rag") == "rag: hi"
        assert template_text(Request(messages=HI, template="rag"), model) == RAG
        with pytest.raises(NotFoundError, match="no template of this model") as caught:
            prompt("rga")
        assert "rag" in caught.value.hint
