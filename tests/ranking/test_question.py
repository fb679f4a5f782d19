"""An item has the tokens that continue the prompt, and those that the tokenizer would join are counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends.llama_cpp import Model
from localspec.ranking.question import continuing, is_joined, ranked
from localspec.settings.jobs import RankQuestion
from localspec.settings.request import Message, Request
from localspec.testing.contract import TableBackend, random_table
from tests.integration.pair import TARGET


class Spaced:
    """Letters and two of them as tokens, the longest first; a space is put before a text, and 1 is no text."""

    n_vocab = 8
    _pieces = (b"", b"", b" ", b"a", b"b", b"ab", b" a", b"\n")

    def tokenize(self, text: str | bytes) -> list[int]:
        left, tokens = b" " + (text if isinstance(text, bytes) else text.encode()), []
        while left:
            begins = [token for token in range(2, 8) if left.startswith(self._pieces[token])]
            token = max(begins, key=lambda one: len(self._pieces[one]))
            tokens.append(token)
            left = left[len(self._pieces[token]) :]
        return tokens

    def piece(self, token: int) -> bytes:
        return self._pieces[token]

    def is_eog(self, token: int) -> bool:
        return token == 0

    def is_parsed(self, token: int) -> bool:
        return token < 2


@pytest.mark.parametrize("text", ["a", "ab", " a", " ab", "ba", "b ab"])
def test_an_item_that_continues_a_text_is_written_as_it_is(text: str) -> None:
    words = Spaced()
    assert b"".join(map(words.piece, continuing(words, text))) == text.encode()
    assert b"".join(map(words.piece, words.tokenize(text))) == b" " + text.encode()


def test_what_the_tokenizer_would_join() -> None:
    words = Spaced()
    assert is_joined(words, [4, 3], "b")
    assert not is_joined(words, [4, 3], "a")
    assert is_joined(words, [4, 2], "a")
    assert not is_joined(words, [4], " a")
    assert not is_joined(words, [4, 3, 1], "b")  # behind a token that is no text


def ask(items: Path, request: Request, **more: Any) -> Any:
    backend = TableBackend(random_table(8, 1), 8, 64)
    return ranked(RankQuestion(request, str(items), 2, **more), Spaced(), "x", backend, [4, 3], lambda: False)


def test_only_an_answer_has_the_space_of_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the kept trie of one is not taken for the other."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    items = tmp_path / "items.txt"
    items.write_text("b\na")
    row = random_table(8, 1)((4, 3))
    law = row - np.logaddexp.reduce(row)
    raw = ask(items, Request(prompt="ba"))
    assert {one["item"]: one["logprob"] for one in raw["ranking"]} == pytest.approx({"a": law[3], "b": law[4]})
    assert raw["n_joined"] == 1
    chat = ask(items, Request(messages=(Message("user", "ba"),)))
    assert {one["item"]: one["logprob"] for one in chat["ranking"]}["a"] == pytest.approx(law[6])
    assert chat["n_joined"] == 0
    assert not chat["trie_was_kept"]


def test_draws_count_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    items = tmp_path / "items.txt"
    items.write_text("b\na\nbb")
    drawn = [ask(items, Request(prompt="ba"), seed=seed)["ranking"] for seed in range(30)]
    assert len({tuple(one["item"] for one in each) for each in drawn}) > 1
    whole = {one["item"]: one["logprob"] for one in ask(items, Request(prompt="ba"), is_whole=True)["ranking"]}
    for each in drawn:
        for one in each:
            assert one["logprob"] == pytest.approx(whole.get(one["item"], one["logprob"]))


def test_the_storytellers_items_are_those_of_its_texts() -> None:
    """Where an item begins with the space, prompt and item have the tokens of the text that they are."""
    with Model(TARGET) as model:
        prompt = model.tokenize("Once there was a")
        for item in (" king", " little girl", " tree of gold"):
            assert [*prompt, *continuing(model, item)] == model.tokenize("Once there was a" + item)
            assert not is_joined(model, prompt, item)
        assert is_joined(model, model.tokenize("Once there was a "), "king")
