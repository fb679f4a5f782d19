"""Loading, the vocabulary, and everything that can be wrong with a file or a setting."""

import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.backends.lib import LOG, api
from localspec.backends.llama_cpp import LlamaBackend, LoadOptions, Model, build_info
from localspec.backends.options import Placement
from localspec.backends.tokenizer import TEXTS
from localspec.engine.protocols import Cancelled
from localspec.errors import (
    IncompatibleError,
    IntegrityError,
    InternalError,
    LocalspecError,
    NotFoundError,
    ResourceError,
    UsageError,
)
from localspec.session.loaded_model import LoadedModel, inspect_model, load_model
from tests.integration.gguf_models import EXACT, JAMBA, MAMBA, SLIDING, STORYTELLER, TINY, copied, never, random_gguf
from tests.recorded import recorded_expressions
from tests.weights.random_gguf import Shape


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(random_gguf(), EXACT) as model:
        yield model


def test_what_a_model_says_of_itself(model: Model) -> None:
    assert model.n_vocab == TINY.vocab
    assert model.n_ctx_train == TINY.ctx
    assert model.architecture == "llama"
    assert model.n_bytes > 8 * TINY.vocab * TINY.width
    assert model.metadata("llama.block_count") == str(TINY.layers)
    assert model.metadata("no.such.key") is None
    assert model.template(None) is None
    assert (model.special.bos, model.special.eos, model.special.add_bos) == (0, 0, True)
    assert model.is_eog(0)
    assert not model.is_eog(5)


@pytest.mark.parametrize(
    "text", ["abc the cat", "", "\0a\0", "Grüße, 世界 🦙", "  two  spaces\n\n", "<|endoftext|>", "a" * 5000]
)
def test_text_comes_back_from_its_pieces(model: Model, text: str) -> None:
    tokens = model.tokenize(text)
    assert b"".join(map(model.piece, tokens)).decode() == text


def test_pieces_are_raw_bytes(model: Model) -> None:
    pieces = [model.piece(token) for token in model.tokenize("é")]
    assert pieces == [b"\xc3", b"\xa9"]
    with pytest.raises(UnicodeDecodeError):
        pieces[0].decode()
    assert sorted(model.piece(token) for token in range(1, 257)) == [bytes([byte]) for byte in range(256)]


def test_control_tokens_have_no_text_unless_asked_for(model: Model) -> None:
    assert model.is_control(0)
    assert model.piece(0) == b""
    assert model.piece(0, special=True) == b"<|endoftext|>"


def test_special_tokens_are_parsed_only_where_the_text_is_trusted(model: Model) -> None:
    assert 0 not in model.tokenize("a<|endoftext|>")
    assert model.tokenize("a<|endoftext|>", parse_special=True)[-1] == 0


def test_bos_goes_in_front_where_the_vocabulary_wants_it(model: Model) -> None:
    assert model.tokenize("ab", add_bos=True) == [0, *model.tokenize("ab")]
    assert model.tokenize("", add_bos=True) == [0]


def test_a_lone_surrogate_is_no_crash(model: Model) -> None:
    assert b"".join(map(model.piece, model.tokenize("a\udc80b"))) == b"a?b"


def test_a_piece_outside_the_vocabulary_asserts(model: Model) -> None:
    with pytest.raises(AssertionError, match="not in the vocabulary"):
        model.piece(TINY.vocab)


def test_progress_is_told() -> None:
    told: list[float] = []
    Model(random_gguf(), on_progress=told.append).close()
    assert told
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_what_progress_raises_stops_the_load(capfd: pytest.CaptureFixture[str]) -> None:
    def stop(fraction: float) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        Model(random_gguf(), on_progress=stop)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("options", [{"mmap": False}, {"mlock": True}, {"mmap": False, "mlock": True}])
def test_ways_of_loading(options: dict[str, Any]) -> None:
    with Model(random_gguf(), LoadOptions(threads=1, **options)) as model, LlamaBackend(model) as backend:
        assert backend.prefill([1, 2, 3], never).logits(0).shape == (TINY.vocab,)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("flash_attn", ["auto", "on", "off"])
def test_cache_types_and_flash_attention(kv_type: str, flash_attn: str) -> None:
    # 32-wide heads, which quantised cells need
    path = random_gguf(type(TINY)(vocab=512, width=128, layers=2, heads=4, kv_heads=2, ff=128, ctx=1024, quant="F16"))
    options = LoadOptions(threads=1, kv_type=kv_type, flash_attn=flash_attn)
    with Model(path, options) as model:
        if flash_attn == "off" and kv_type.startswith("q"):
            with pytest.raises(UsageError, match="needs flash attention"):
                LlamaBackend(model)
            return
        with LlamaBackend(model) as backend:
            backend.prefill([1, 2, 3], never)
            backend.extend([4, 5, 6], [-1, 0, 0])
            backend.keep((0, 2))
            backend.check()


def test_kv_bytes_are_those_llama_cpp_takes(model: Model) -> None:
    with LlamaBackend(model, LoadOptions(threads=1, n_ctx=1000)) as backend:
        said = next(line for line in LOG.lines if "KV buffer size" in line)
        assert float(said.split("=")[1].split()[0]) == pytest.approx(backend.kv_bytes / 2**20, abs=0.01)


def test_the_smallest_context(model: Model) -> None:
    with LlamaBackend(model, LoadOptions(threads=1, n_ctx=2)) as backend:
        backend.prefill([5], never)
        backend.extend([6], [-1])
        backend.keep((0,))
        backend.check()
        assert backend.length == 2


def test_defaults(model: Model) -> None:
    with LlamaBackend(model, LoadOptions(threads=1)) as backend:
        assert backend.capabilities.n_ctx == TINY.ctx
        assert backend.capabilities.n_vocab == TINY.vocab
        assert backend.capabilities.can_rollback
        assert backend.capabilities.max_leaves == 16
        assert backend.capabilities.devices
        assert backend.length == 0
        assert backend.evaluated == 0


def test_closing_twice_and_in_the_wrong_order(model: Model) -> None:
    other = Model(random_gguf(), EXACT)
    first, second = LlamaBackend(other), LlamaBackend(other)
    rows = first.prefill([1], never)
    second.close()
    second.close()
    other.close()  # closes what still runs on it
    assert other.handle is None
    with pytest.raises(AssertionError, match="closed"):
        rows.logits(0)
    other.close()
    first.close()


def test_two_backends_on_one_model_do_not_meet(model: Model) -> None:
    with LlamaBackend(model) as one, LlamaBackend(model) as two:
        one.prefill([1, 2, 3], never)
        row = one.extend([4], [-1]).logits(0)
        expected = row.copy()
        two.prefill([9, 9, 9, 9, 9], never)
        assert (row == expected).all()
        assert (one.length, two.length) == (3, 5)


def broken(folder: Path, kind: str) -> Path:
    good, path = random_gguf().read_bytes(), folder / f"{kind}.gguf"
    match kind:
        case "missing":
            return path
        case "directory":
            path.mkdir()
            return path
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("Once upon a time there was a text file. " * 20)
        case "truncated":
            path.write_bytes(good[:-1000])
        case "header only":
            path.write_bytes(good[:200])
        case "architecture":
            assert good.count(b"\x05\0\0\0\0\0\0\0llama") == 1
            path.write_bytes(good.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lllll"))
    return path


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("missing", NotFoundError, "there is no file"),
        ("directory", NotFoundError, "is not a file"),
        ("empty", IntegrityError, "failed to read magic"),
        ("text", IntegrityError, "invalid magic characters"),
        ("truncated", IntegrityError, "not within the file bounds"),
        ("header only", IntegrityError, "cannot load"),
        ("architecture", IncompatibleError, "unknown model architecture: 'lllll'"),
    ],
)
def test_bad_files_are_named_errors(tmp_path: Path, kind: str, error: type[LocalspecError], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        Model(broken(tmp_path, kind))
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_an_unreadable_file_is_a_named_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.backends.model.os.access", lambda path, mode: False)  # root may read everything
    with pytest.raises(NotFoundError, match="may not be read"):
        Model(random_gguf())


def test_a_context_llama_cpp_refuses_says_why() -> None:
    # Heads of 16 entries do not fill a block of 32.
    with (
        Model(random_gguf(), LoadOptions(kv_type="q8_0")) as model,
        pytest.raises(ResourceError, match="does not divide n_embd_head") as caught,
    ):
        LlamaBackend(model)
    assert caught.value.detail["log"]


@pytest.mark.parametrize("n_ctx", [2**31, 2**32 - 1])
def test_a_context_that_cannot_fit_names_one_that_does(model: Model, n_ctx: int) -> None:
    with pytest.raises(ResourceError, match=rf"context of {n_ctx} tokens needs .*B of memory") as caught:
        LlamaBackend(model, LoadOptions(n_ctx=n_ctx))
    fitting = caught.value.detail["fitting_n_ctx"]
    assert caught.value.hint == f"--ctx {fitting}"
    assert 0 < fitting < n_ctx
    assert caught.value.detail["needed_bytes"] > caught.value.detail["available_bytes"]


def test_a_pass_that_there_is_no_memory_for_is_no_bug(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some GPUs say so only when they compute: while loading, a smaller step is tried then."""

    def failing(_self: LlamaBackend, _is_stopped: object) -> int:
        LOG.lines.extend(["error: Insufficient Memory (00000008)", "llama_decode: failed to decode, ret = -3"])
        return -3

    with LlamaBackend(model, EXACT) as backend:
        monkeypatch.setattr(LlamaBackend, "_run", failing)
        with pytest.raises(ResourceError, match=r"not enough memory to evaluate 2 tokens: .*Insufficient") as caught:
            backend.prefill([1, 2], never)
        assert "--gpu" in caught.value.hint
        with pytest.raises(ResourceError):
            LlamaBackend(model, EXACT)
        monkeypatch.undo()
        backend.prefill([1, 2], never)
        backend.check()


def test_an_unknown_cache_type_is_a_usage_error(model: Model) -> None:
    with pytest.raises(UsageError, match="no cache type 'f12'") as caught:
        LlamaBackend(model, LoadOptions(kv_type="f12"))
    assert "q8_0" in caught.value.hint


def test_nothing_of_llama_cpp_reaches_the_terminal(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Model(random_gguf(), EXACT) as model, LlamaBackend(model) as backend:
        backend.prefill([1, 2], never)
        with pytest.raises(InternalError):
            backend.extend([99999], [-1])
    with pytest.raises(IntegrityError):
        Model(broken(tmp_path, "text"))
    assert capfd.readouterr() == ("", "")
    assert LOG.lines


def test_the_log_can_be_echoed(capfd: pytest.CaptureFixture[str]) -> None:
    LOG.is_echoing = True
    try:
        Model(random_gguf()).close()
    finally:
        LOG.is_echoing = False
    assert "llama" in capfd.readouterr().err


def test_build_info_names_versions_and_devices() -> None:
    build = build_info()
    assert build.llama_cpp_python.startswith("0.3.")
    assert build.llama_cpp
    assert any(name.startswith("CPU") for name in build.devices)


@pytest.mark.parametrize("name", ["target", "draft"])
def test_the_bundled_pair_loads_and_writes(name: str) -> None:
    with Model(STORYTELLER / f"{name}-q8_0.gguf", LoadOptions(threads=1)) as model, LlamaBackend(model) as backend:
        assert model.template(None)
        assert model.special.add_bos
        text = "Once upon a time"
        tokens = model.tokenize(text, add_bos=True)
        assert b"".join(map(model.piece, tokens)).decode() == text
        row = backend.prefill(tokens, never).logits(0)
        for _ in range(20):
            tokens.append(int(row.argmax()))
            row = backend.extend(tokens[-1:], [-1]).logits(0)
            backend.keep((0,))
        assert all(map(str.isprintable, b"".join(map(model.piece, tokens)).decode("utf-8", "ignore").split()))


def load(path: Path) -> LoadedModel:
    """Load a model as `localspec run` does: its header is read first."""
    loading = load_model(inspect_model(str(path)), EXACT, "target", lambda: False)
    while True:
        try:
            next(loading)
        except StopIteration as done:
            loaded: LoadedModel = done.value
            return loaded


@pytest.mark.parametrize("shape", [TINY, SLIDING, MAMBA, JAMBA], ids=lambda shape: shape.arch)
def test_a_context_takes_what_the_header_promises(shape: Shape) -> None:
    """Cells of the cache in every layer that has some, states in the others."""
    loaded = load(random_gguf(shape))
    said = [float(line.split("=")[1].split()[0]) for line in LOG.lines if re.search("(KV|RS) buffer size", line)]
    loaded.close()
    assert said
    assert sum(said) == pytest.approx(loaded.backend.kv_bytes / 2**20, abs=0.01 * len(said))


def test_what_is_read_from_the_disk_in_every_pass_is_not_copied_into_memory() -> None:
    """llama.cpp copies Q4_0 weights into a layout of its own, which would have to fit into memory."""

    def is_copied(**options: Any) -> bool:
        LOG.clear()
        with Model(random_gguf(replace(TINY, width=256, quant="Q4_0")), LoadOptions(threads=1, **options)):
            return any("REPACK" in line for line in LOG.lines)

    if not is_copied():
        pytest.skip("llama.cpp has no other layout for this processor")  # so there is no copy to leave out
    assert not is_copied(repack=False)
    assert is_copied(placement=Placement())
    assert not is_copied(placement=Placement(is_repacked=False))


DECOMPOSED = unicodedata.normalize("NFD", "Grüße aus Köln: 안녕하세요, đường phố")


def test_text_is_composed_where_the_tokenizer_that_was_learned_with_does_that(tmp_path: Path) -> None:
    """Qwen's does; the vocabulary of the bundled model says that it is another's."""
    source = STORYTELLER / "target-q8_0.gguf"
    qwen = copied(source, tmp_path / "qwen.gguf", {"tokenizer.ggml.pre": lambda _: "qwen2"})
    composed = unicodedata.normalize("NFC", DECOMPOSED)
    for path, is_composed in ((qwen, True), (source, False)):
        with Model(path, LoadOptions(threads=1)) as model:
            tokens = model.tokenize(DECOMPOSED)
            assert (tokens == model.tokenize(composed)) == is_composed
            assert b"".join(map(model.piece, tokens)).decode() == (composed if is_composed else DECOMPOSED)
            assert model.tokenize(DECOMPOSED.encode()) != model.tokenize(composed), "bytes stay as they are"


USER_DEFINED, NORMAL = 4, 1  # types of tokens in GGUF


@pytest.mark.parametrize("text", TEXTS)
def test_a_token_that_the_file_calls_text_is_text(text: str, tmp_path: Path) -> None:
    """It ends no answer, is shown, and a user-defined one is one token of a prompt: a normal one is made of merges.

    A token that the header or the chat template names ends an answer, whatever its type.
    """
    source = STORYTELLER / "target-q8_0.gguf"
    with Model(source, LoadOptions(threads=1)) as model:
        at = next(token for token in range(model.n_vocab - 1, 0, -1) if not model.is_parsed(token))
    named = {"tokenizer.ggml.eot_token_id": at}
    cases = ((USER_DEFINED, {}), (NORMAL, {}), (NORMAL, {"numbers": named}), (NORMAL, {"template": text}))
    for kind, changed in cases if text == "</s>" else cases[:1]:
        changes = {
            "tokenizer.ggml.tokens": lambda words: [*words[:at], text, *words[at + 1 :]],
            "tokenizer.ggml.token_type": lambda types, kind=kind: [*types[:at], kind, *types[at + 1 :]],
        }
        without = ("tokenizer.chat_template",) if changed else ()
        path = copied(source, tmp_path / "text.gguf", changes, without=without, **changed)
        is_text = not changed
        with Model(path, LoadOptions(threads=1)) as model:
            ends = bool(api.llama_vocab_is_eog(api.llama_model_get_vocab(model.handle), at))
            assert api.llama_vocab_is_control(api.llama_model_get_vocab(model.handle), at), "llama.cpp's own word"
            assert (model.is_eog(at), model.is_control(at), model.is_parsed(at)) == (
                (False, False, False) if is_text else (ends, True, True)
            )
            assert model.piece(at) == (text.encode() if is_text else b"")
            for given in (f"a{text}b", f"a{text}b".encode()):
                tokens = model.tokenize(given)
                assert (at in tokens) == (is_text and kind == USER_DEFINED)
                assert b"".join(map(model.piece, tokens)).removeprefix(b" ") == f"a{text}b".encode()


@pytest.mark.skipif(not os.environ.get("LOCALSPEC_REAL"), reason="LOCALSPEC_REAL names no folder of real models")
def test_a_real_gemma_and_a_real_qwen_write_the_end_of_a_struck_text() -> None:
    for name, token, n in (("gemma-3-270m", 212, 2), ("qwen2.5-coder-0.5b-instruct", 128247, 3)):
        with Model(Path(os.environ["LOCALSPEC_REAL"]) / f"{name}-q4_k_m.gguf", LoadOptions(threads=1)) as model:
            assert (model.piece(token), model.is_eog(token), len(model.tokenize("</s>x"))) == (b"</s>", False, n)


@pytest.mark.skipif(not os.environ.get("LOCALSPEC_REAL"), reason="LOCALSPEC_REAL names no folder of real models")
def test_a_real_qwen_reads_decomposed_text_as_it_learned() -> None:
    """Without composing it has three times as many tokens."""
    path = Path(os.environ["LOCALSPEC_REAL"]) / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    with Model(path, LoadOptions(threads=1)) as model:
        tokens = model.tokenize(DECOMPOSED)
        assert tokens == model.tokenize(unicodedata.normalize("NFC", DECOMPOSED))
        assert 2 * len(tokens) < len(model.tokenize(DECOMPOSED.encode()))


test_what_is_recorded = recorded_expressions(__file__, LoadOptions)
