"""Training text: states stand beside their tokens, and what was ended goes on with the same text."""

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.options import LoadOptions
from localspec.errors import ResourceError, UsageError
from localspec.heads import data
from localspec.heads.data import ROWS, WRITERS, OpenText, TextSource, collect, drawn, split
from localspec.heads.target_file import EMBEDDING, output_rows, target_rows
from localspec.heads.text_shards import Text, read_shards, shards
from localspec.models.gguf.header import read_header
from tests.heads.reference import TARGET

WIDTH, VOCAB = 192, 4096
PROMPTS = [[1, 300, 40, 7], [1, 50, 60], [1, 2000, 9, 9, 9]]


@pytest.fixture
def backend() -> Iterator[LlamaBackend]:
    options = LoadOptions(gpu="off", threads=1, n_batch=ROWS, max_leaves=WRITERS, n_ctx=4096)
    with Model(TARGET, options) as model, LlamaBackend(model, options) as opened:
        yield opened


def source(backend: LlamaBackend, layers: tuple[int, ...] = ()) -> TextSource:
    return TextSource(backend, layers, WIDTH)


def written(source: TextSource, prompts: Sequence[Sequence[int]]) -> list[Text]:
    """Let a source continue prompts together, by 30 tokens at temperature 0."""
    writing = source.texts([OpenText(list(prompt), 0.0, np.random.default_rng(0)) for prompt in prompts], 30)
    while True:
        try:
            next(writing)
        except StopIteration as finished:
            return list(finished.value)


def test_states_stand_beside_their_tokens(backend: LlamaBackend) -> None:
    """The input of layer 0 is a token's embedding, and the last state says which token follows at temperature 0."""
    prompt = backend.model.tokenize("Once upon a time there was a king who had three sons. " * 8, add_bos=True)
    assert len(prompt) > ROWS
    text, *others = written(source(backend, (0, 4, 7)), [prompt, *PROMPTS])
    n, header = len(prompt) + 29, read_header(TARGET)
    assert text.own is not None
    assert text.states is not None
    assert text.own.tolist() == [False] * len(prompt) + [True] * (len(text) - len(prompt))
    assert text.tokens[: len(prompt)].tolist() == prompt
    embedding = target_rows(header, EMBEDDING)
    assert embedding is not None
    n = min(n, len(text) - 1)
    assert np.abs(text.features[:n, :WIDTH] - embedding[text.tokens[:n]]).max() < 1e-2
    assert (np.abs(text.features[:n]).max(1) > 0).all()
    best = (text.states[:n].astype(np.float32) @ output_rows(header, np.arange(VOCAB)).T).argmax(1)
    follows = text.tokens[1 : n + 1]
    assert (best == follows)[len(prompt) - 1 :].mean() > 0.9
    for other, own in zip(others, PROMPTS, strict=True):
        assert other.tokens[: len(own)].tolist() == own
        assert np.abs(other.features[: len(own), :WIDTH] - embedding[own]).max() < 1e-2
    (alone,) = written(source(backend), [prompt])
    assert alone.tokens.tolist() == text.tokens.tolist()
    assert alone.states is None
    assert np.abs(alone.features[:n] - text.states[:n]).max() < 0.05 * np.abs(text.states[:n]).max()


def test_a_collection_that_was_ended_goes_on_with_the_same_text(
    tmp_path: Path, backend: LlamaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "SHARD", 40)

    def collected(name: str) -> Iterator[data.Collected]:
        return collect(tmp_path / name, source(backend), PROMPTS, 900, most=16, seed=3)

    whole = list(collected("whole"))
    assert whole[-1].tokens >= 900
    assert whole[-1].seconds_left == 0
    ended = collected("ended")
    while not shards(tmp_path / "ended"):
        next(ended)
    next(ended)
    del ended
    kept = sum(map(len, read_shards(shards(tmp_path / "ended"))))
    assert next(collected("ended")).tokens > kept
    list(collected("ended"))
    ours, theirs = (read_shards(shards(tmp_path / name)) for name in ("ended", "whole"))
    assert [text.tokens.tolist() for text in ours] == [text.tokens.tolist() for text in theirs]
    assert len({tuple(text.tokens.tolist()) for text in ours}) == len(ours), "no text comes twice"
    assert list(collected("whole")) == []


def test_a_held_out_prompt_has_one_text(tmp_path: Path, backend: LlamaBackend) -> None:
    list(collect(tmp_path, source(backend), PROMPTS, 10**6, most=8, seed=0, is_held=True))
    assert len(read_shards(shards(tmp_path))) == len(PROMPTS)


def test_a_full_disk_is_one_error(tmp_path: Path, backend: LlamaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, texts: list[Text]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data, "write_shard", full)
    with pytest.raises(ResourceError, match="No space left") as caught:
        list(collect(tmp_path, source(backend), PROMPTS, 10, most=8, seed=0))
    assert "LOCALSPEC_HOME" in caught.value.hint


def test_draws_follow_the_softmax() -> None:
    row = np.log(np.array([0.1, 0.6, 0.3], np.float32))
    rng = np.random.default_rng(0)
    counts = np.bincount([drawn(row, 1.0, rng) for _ in range(4000)], minlength=3) / 4000
    assert np.abs(counts - [0.1, 0.6, 0.3]).max() < 0.03
    assert drawn(row, 0.0, rng) == 1
    assert {drawn(row, 5.0, rng, never=(1,)) for _ in range(50)} == {0, 2}


def test_one_prompt_in_eight_is_held_out() -> None:
    training, held = split([[n] for n in range(17)])
    assert held == [[1], [9]]
    assert sorted([*training, *held]) == [[n] for n in range(17)]
    with pytest.raises(UsageError, match="two prompts"):
        split([[1]])
