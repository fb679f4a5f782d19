"""Drafts with other tokens on the real llama.cpp: the text stays, and equal models draft as well as in equal tokens."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.backends.llama_cpp import LoadOptions, Model
from localspec.engine import events
from localspec.engine.translation import Intersection, Retokeniser
from localspec.models.gguf.header import read_header
from localspec.models.gguf.info import model_info
from localspec.models.overlap import overlap
from localspec.prompt.prompt import special_texts
from localspec.session.loaded_model import LoadedModel
from localspec.session.loaded_pair import LoadedPair
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.integration import pair
from tests.integration.gguf_models import written
from tests.integration.near_ties import assert_same_text
from tests.weights.read_gguf import read_gguf

REAL = Path(os.environ.get("LOCALSPEC_REAL", "/nonexistent"))
TEXT = "Once upon a time there was a king"
SAMPLES = ["Tom ate 12 apples.\n", "naïve – “so”", "你好", "🙂🙃", "  two  spaces", "<|im_start|>"]


def shuffled(source: Path, path: Path, *, user_defined: str = "") -> Path:
    """Write a llama model with its tokens in another order: embedding and head are shuffled like the texts.

    One token may become a user-defined one.
    """
    reader, writer = read_gguf(source), gguf.GGUFWriter(path, "llama")
    n = len(reader.fields["tokenizer.ggml.tokens"].data)
    order = np.random.default_rng(0).permutation(n)  # new token i is the old token order[i]
    place = np.argsort(order)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, value = field.types[0], field.contents()
        if field.name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
            value = [value[old] for old in order]
            if user_defined and field.name.endswith("token_type"):
                texts = reader.fields["tokenizer.ggml.tokens"].contents()
                value = [4 if texts[old] == user_defined else kept for old, kept in zip(order, value, strict=True)]
        elif field.name.endswith("_token_id"):
            value = int(place[value])
        writer.add_key_value(field.name, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for item in reader.tensors:
        data = item.data[order] if item.name in ("token_embd.weight", "output.weight") else item.data
        writer.add_tensor(item.name, data, raw_dtype=item.tensor_type)
    return written(writer, path)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shuffled(pair.DRAFT, tmp_path_factory.mktemp("shuffled") / "draft.gguf")


@pytest.fixture(scope="module")
def loaded(other: Path) -> Iterator[LoadedPair]:
    settings = LoadSettings(str(pair.TARGET), str(other), ctx=512, threads=1)
    opened, told = pair.load_pair(settings)
    (warning,) = [event.message for event in told if isinstance(event, events.Warned)]
    assert warning.startswith("the draft has another vocabulary: it drafts 100 % of the target's tokens")
    yield opened
    opened.close()


def answered(opened: LoadedPair, request: Request) -> tuple[list[int], int]:
    """Return the tokens of the answer, and how many were accepted."""
    passes = [event for event in opened.answer(request) if isinstance(event, events.Committed)]
    return [piece.id for event in passes for piece in event.out], sum(event.n_accepted for event in passes)


def same_text(opened: LoadedPair, request: Request, expected: list[int], got: list[int]) -> None:
    prompt = opened.tokenised(request).tokens
    assert_same_text(opened.target.backend, prompt, expected, got, request.sampling, 8)


@pytest.mark.parametrize(
    "speculation", [Speculation("draft-model", k=3), Speculation("draft-model", tree="static:2,2")]
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_plain_decoding(loaded: LoadedPair, speculation: Speculation, temperature: float) -> None:
    sampling = Sampling(temperature=temperature, seed=3)
    request = Request(prompt=TEXT, max_tokens=100, sampling=sampling, speculation=speculation)
    text, accepted = answered(loaded, request)
    plain, _ = answered(loaded, replace(request, speculation=Speculation("plain")))
    same_text(loaded, request, plain, text)
    assert accepted > 20


@pytest.mark.parametrize(("temperature", "is_text"), [(0.0, True), (0.8, False)])
def test_it_writes_text_where_nothing_is_drawn(
    loaded: LoadedPair, monkeypatch: pytest.MonkeyPatch, temperature: float, is_text: bool
) -> None:
    read: list[bytes] = []
    tokens = Retokeniser.tokens

    def spied(self: Retokeniser, committed: Sequence[int], text: bytes) -> list[int]:
        read.append(text)
        return tokens(self, committed, text)

    monkeypatch.setattr(Retokeniser, "tokens", spied)
    speculation = Speculation("draft-model", k=3)
    answered(loaded, Request(prompt=TEXT, max_tokens=8, sampling=Sampling(temperature), speculation=speculation))
    assert bool(read) is is_text


def test_a_reproducible_text_is_that_of_plain_decoding(other: Path) -> None:
    settings = LoadSettings(str(pair.TARGET), str(other), ctx=512, threads=1, reproducible=True)
    opened, _ = pair.load_pair(settings)
    request = Request(prompt=TEXT, max_tokens=60, sampling=Sampling(temperature=0.0), speculation=Speculation("plain"))
    plain, _ = answered(opened, request)
    text, accepted = answered(opened, replace(request, speculation=Speculation("draft-model")))
    opened.close()
    assert text == plain
    assert accepted > 10


def test_the_same_model_drafts_as_well_in_other_tokens(loaded: LoadedPair) -> None:
    """It reads the same text and says the same of it, so as much is accepted."""
    request = Request(
        prompt=TEXT,
        max_tokens=100,
        cold=True,
        sampling=Sampling(temperature=0.0, seed=1),
        speculation=Speculation("draft-model", k=3),
    )
    same, _ = pair.load_pair(LoadSettings(str(pair.TARGET), str(pair.DRAFT), ctx=512, threads=1))
    expected = answered(same, request)
    same.close()
    text, accepted = answered(loaded, request)
    assert accepted == pytest.approx(expected[1], abs=2)
    same_text(loaded, request, expected[0], text)


def test_the_planner_takes_it_as_any_draft(loaded: LoadedPair) -> None:
    request = Request(prompt=TEXT, max_tokens=60, sampling=Sampling(temperature=0.0, seed=1))
    told = list(loaded.answer(request))
    (started,) = [event for event in told if isinstance(event, events.Started)]
    assert started.method == "draft-model"
    assert any(isinstance(event, events.Finished) for event in told)


@pytest.mark.parametrize("text", SAMPLES)
def test_the_draft_reads_the_same_bytes(loaded: LoadedPair, text: str) -> None:
    assert loaded.translation is not None
    assert loaded.draft is not None
    tokens = loaded.target.model.tokenize(text)
    for n in range(1, len(tokens) + 1):
        read = loaded.translation.text(tokens[:n])
        assert b"".join(map(loaded.draft.model.piece, read)) == b"".join(map(loaded.target.model.piece, tokens[:n]))


TURNS = "<|im_start|>user\nHi, 12 你好 🙂<|im_end|>\n<|im_start|>assistant\n"


def test_the_draft_reads_special_tokens_as_its_own(loaded: LoadedPair) -> None:
    """As it would read the whole text by itself, with its token for the start in front."""
    assert loaded.translation is not None
    assert loaded.draft is not None
    target, draft = loaded.target.model, loaded.draft.model
    assert draft.special.add_bos
    read = loaded.translation.text(target.tokenize(TURNS, parse_special=True, add_bos=True))
    assert read == draft.tokenize(TURNS, parse_special=True, add_bos=True)
    assert sum(map(draft.is_control, read)) == 4


def test_special_tokens_that_only_the_target_has_are_read_as_text(loaded: LoadedPair) -> None:
    assert loaded.draft is not None
    bare = replace(loaded.draft.lexicon(), specials={}, ends=())
    tokens = loaded.target.model.tokenize("<|im_start|>user", parse_special=True)
    read = Intersection(loaded.target.lexicon(), bare).text(tokens)
    assert b"".join(map(loaded.draft.model.piece, read)) == b"<|im_start|>user"


def test_of_special_tokens_only_the_end_is_drafted(loaded: LoadedPair) -> None:
    """The end of the target's turn has the probability of all ends of the draft; all other tokens are shared."""
    assert loaded.translation is not None
    assert loaded.draft is not None
    target, draft = loaded.target.model, loaded.draft.model
    logits = np.arange(draft.n_vocab, dtype=np.float32) / 1000
    row = loaded.translation.row(logits)
    eot, own_eot, own_eos = target.special.eot, draft.special.eot, draft.special.eos
    assert eot is not None
    assert own_eot != own_eos
    assert loaded.translation.token(eot) == own_eot
    assert row[eot] == pytest.approx(np.logaddexp(logits[own_eot], logits[own_eos]))
    foretold = overlap(loaded.target.info.vocab, loaded.draft.info.vocab).shared
    assert np.flatnonzero(np.isfinite(row)).size == foretold + 1
    assert not [token for token in np.flatnonzero(np.isfinite(row)) if target.is_control(int(token)) and token != eot]


def test_a_user_defined_mark_of_turns_is_structure(tmp_path: Path) -> None:
    """By the header it writes its text; for a model it is a special token as others are, and is not drafted."""
    mark = "<|im_start|>"
    path = shuffled(pair.DRAFT, tmp_path / "d.gguf", user_defined=mark)
    info = model_info(read_header(path))
    with pair.backend(path) as opened:
        lexicon = LoadedModel(info, opened.model, opened, special_texts(opened.model)).lexicon()
    assert mark.encode() in info.vocab.spellings
    assert mark.encode() in lexicon.specials.values()
    assert mark.encode() not in lexicon.spellings


@pytest.mark.parametrize("path", [pair.TARGET, *sorted(REAL.glob("*.gguf"))], ids=lambda path: path.name)
def test_the_texts_in_the_header_are_those_of_llama_cpp(path: Path) -> None:
    """Byte-level and SPM vocabularies; special tokens of llama.cpp's own finding are left out on both sides."""
    found = model_info(read_header(path)).vocab.spellings
    with Model(path, LoadOptions(threads=1)) as model:
        for text, token in list(found.items())[:: max(1, len(found) // 20_000)]:
            assert model.is_control(token) or model.piece(token) == text


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="LOCALSPEC_REAL names no folder of real models")
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_gemma_drafts_for_qwen_and_the_other_way(temperature: float) -> None:
    gemma, qwen = REAL / "gemma-3-270m-q4_k_m.gguf", REAL / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    for target, draft in ((qwen, gemma), (gemma, qwen)):
        opened, _ = pair.load_pair(LoadSettings(str(target), str(draft), ctx=512, threads=1))
        request = Request(
            prompt="The three most important inventions of the 19th century were",
            max_tokens=40,
            sampling=Sampling(temperature=temperature, seed=2),
            speculation=Speculation("draft-model", k=3),
        )
        text, accepted = answered(opened, request)
        plain, _ = answered(opened, replace(request, speculation=Speculation("plain")))
        same_text(opened, request, plain, text)
        opened.close()
        assert accepted > 4


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="LOCALSPEC_REAL names no folder of real models")
@pytest.mark.parametrize("is_reversed", [False, True], ids=["gemma for qwen", "qwen for gemma"])
def test_real_tokenizers_read_the_same_bytes(is_reversed: bool) -> None:
    """Whole texts and texts cut in a character; marks of turns; the overlap is the one that the headers foretold."""
    files = [REAL / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", REAL / "gemma-3-270m-q4_k_m.gguf"]
    first, second = files[::-1] if is_reversed else files
    opened, _ = pair.load_pair(LoadSettings(str(first), str(second), ctx=512, threads=1))
    assert opened.translation is not None
    assert opened.draft is not None
    target, draft = opened.target.model, opened.draft.model
    sample = resources.files("localspec.models").joinpath("sample.txt").read_text(encoding="utf-8")
    for text in (*SAMPLES, "汉字" * 60, "🙃" * 40, sample):
        tokens = target.tokenize(text, add_bos=True)
        for n in range(1, min(len(tokens), 200) + 1):
            read = opened.translation.text(tokens[:n])
            assert b"".join(map(draft.piece, read)) == b"".join(map(target.piece, tokens[:n]))
    end = target.special.eot or target.special.eos
    own = draft.special.eot or draft.special.eos
    assert end is not None
    assert opened.translation.text([*target.tokenize("Hi"), end])[-1] == own == opened.translation.token(end)
    shared = np.isfinite(opened.translation.row(np.zeros(draft.n_vocab, np.float32)))
    shared[end] = False
    foretold = overlap(opened.target.info.vocab, opened.draft.info.vocab)
    assert shared.sum() == pytest.approx(foretold.shared, abs=20)  # user-defined marks are special to llama.cpp
    used = target.tokenize(sample)
    assert shared[used].mean() == pytest.approx(foretold.use, abs=0.01)
    opened.close()
