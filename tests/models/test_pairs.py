"""Which draft fits which target, and what a person may type to name them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.errors import IncompatibleError, IntegrityError, LocalspecError, NotFoundError, UsageError
from localspec.models.candidates import DraftCandidate, local_candidates
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.head import HeadInfo
from localspec.models.gguf.header import read_header
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.names import PairName, PathName
from localspec.models.overlap import overlap
from localspec.models.pair_check import PairReport, check_pair, require_fit
from localspec.models.plan.models import ModelPart
from localspec.models.store import INTRODUCTION, PairRef, introduction, parse_pair, reference, usual_speculation
from localspec.models.user_catalog import add
from localspec.settings.folders import heads_folder
from localspec.settings.request import LoadSettings, Speculation
from tests.models.gguf_files import File, model, tensor, words


@pytest.fixture
def info(tmp_path: Path) -> Info:
    return Info(tmp_path)


class Info:
    """Writes a file and describes it, under a new name each time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.n = 0

    def __call__(self, file: File) -> ModelInfo:
        self.n += 1
        return model_info(read_header(file.write(self.folder / f"m{self.n}.gguf")))


def compare(info: Info, draft: File, target: File | None = None) -> PairReport:
    return check_pair(info(target or model(width=64)), info(draft))


def changed(n: int, changes: dict[int, str | bytes]) -> File:
    tokens: list[str | bytes] = [*words(n)]
    for token, text in changes.items():
        tokens[token] = text
    return model(tokens)


def test_equal_vocabularies_fit(info: Info) -> None:
    target, draft = info(model(width=64)), info(model())
    report = require_fit(target, draft)
    assert report.fits
    assert report.warnings == ()
    assert report.differences == ()


@pytest.mark.parametrize("key", ["ssm.conv_kernel", "wkv.head_size", "shortconv.l_cache"])
def test_a_model_with_a_state_fits_as_any_other(info: Info, key: str) -> None:
    """As the draft and as the target."""
    stateful = info(model().set(f"llama.{key}", "u32", 4))
    plain = info(model(width=64))
    assert stateful.is_recurrent
    for report in (check_pair(plain, stateful), check_pair(stateful, plain)):
        assert report.fits
        one = DraftCandidate("x", "here", 1, report=report)
        assert one.is_good(10)
        assert one.verdict == "fits"


def test_one_differing_token_is_shown(info: Info) -> None:
    """The draft drafts the others."""
    target, draft = info(model(words(200), width=64)), info(changed(200, {139: "[\x1b]\n"}))
    report = require_fit(target, draft)
    assert report.fits
    assert r"token 139 is 'w139' in the target and '[\x1b]\n' in the draft" in report.differs[0]
    assert report.overlap is not None
    assert (report.overlap.shared, report.overlap.n_target) == (199, 200)
    assert report.warnings[0].startswith("the draft has another vocabulary: it drafts 100 % of the target's tokens")


def test_too_few_equal_tokens_are_refused(info: Info) -> None:
    """A tenth of the target's is needed."""
    target = info(model(words(200), width=64))
    assert require_fit(target, info(changed(200, {token: f"x{token}" for token in range(180)}))).fits
    with pytest.raises(IncompatibleError) as caught:
        require_fit(target, info(changed(200, {token: f"[\x1b{token}]" for token in range(181)})))
    assert "m3.gguf does not fit the target m1.gguf: they share 19 of the target's 200 tokens" in caught.value.message
    assert caught.value.exit_code == 6
    assert "--draft none" in caught.value.hint
    first = {"token": 5, "target": "w5", "draft": r"[\x1b5]"}
    assert (caught.value.detail["differences"][0], len(caught.value.detail["differences"])) == (first, 5)


def test_a_head_reads_the_targets_own_tokens(info: Info) -> None:
    """It has no text of its own to read, so one token that differs is one too many."""
    target, draft = info(model(words(200), width=64)), info(changed(200, {139: "x"}))
    report = check_pair(target, replace(draft, head=HeadInfo("eagle1", target.n_embd)))
    assert report.overlap is None
    assert "token 139" in report.reasons[0]


def test_the_first_five_differing_tokens_are_listed_and_all_are_counted(info: Info) -> None:
    report = compare(info, changed(40, {i: f"x{i}" for i in range(10, 20)}), model(words(40), width=64))
    assert [one.token for one in report.differences] == [10, 11, 12, 13, 14]
    assert report.n_different == 10
    assert "10 of their tokens differ" in report.differs[0]


def test_a_difference_before_token_5_is_allowed_and_at_5_is_not(info: Info) -> None:
    target = model(words(40), width=64)
    assert not compare(info, changed(40, {0: "x", 4: "y"}), target).differs
    assert compare(info, changed(40, {5: "x"}), target).differs


def test_a_difference_in_the_last_common_token_is_found(info: Info) -> None:
    target = model(words(40), width=64)
    assert compare(info, changed(38, {37: "x"}), target).differences[0].token == 37


def test_texts_that_are_equal_to_llama_cpp_are_equal(info: Info) -> None:
    """An empty text gets a name, and a zero byte ends a C string."""
    target = changed(40, {9: "[EMPTY_9]", 10: "ten\0a", 11: "ok"})
    assert not compare(info, changed(40, {9: "", 10: "ten\0b", 11: "ok"}), target).differs
    assert compare(info, changed(40, {9: "[EMPTY_9]", 10: "te", 11: "ok"}), target).differs


@pytest.mark.parametrize(
    ("n_target", "n_draft", "fits"), [(328, 200, True), (200, 328, True), (329, 200, False), (200, 329, False)]
)
def test_vocabulary_sizes_may_differ_by_128(info: Info, n_target: int, n_draft: int, fits: bool) -> None:
    report = compare(info, model(words(n_draft)), model(words(n_target), width=64))
    assert report.fits
    assert (report.differs == ()) == fits
    if not fits:
        assert f"{n_target} and {n_draft} tokens, a difference of 129" in report.differs[0]


def test_kinds_of_tokenizer(info: Info) -> None:
    report = compare(info, model().set("tokenizer.ggml.model", "str", "t5"))
    assert "different kinds, BPE and UGM" in report.differs[0]


def test_bos_is_added_by_one_only(info: Info) -> None:
    report = compare(info, model().set("tokenizer.ggml.add_bos_token", "bool", False))
    assert report.differs == ("only the target begins a text with its BOS token",)


def test_eos_is_added_by_one_only(info: Info) -> None:
    report = compare(info, model().set("tokenizer.ggml.add_eos_token", "bool", True))
    assert report.differs == ("only the draft ends a text with its EOS token",)


def test_bos_ids_count_only_where_bos_is_added(info: Info) -> None:
    draft, target = (model(width=w).set("tokenizer.ggml.bos_token_id", "u32", n) for w, n in ((32, 2), (64, 3)))
    assert compare(info, draft, target).differs == ("their BOS tokens differ, 3 in the target and 2 in the draft",)
    for file in (draft, target):
        file.set("tokenizer.ggml.add_bos_token", "bool", False)
    assert not compare(info, draft, target).differs


def test_eos_ids_count_only_where_eos_is_added(info: Info) -> None:
    draft, target = (model(width=w).set("tokenizer.ggml.eos_token_id", "u32", n) for w, n in ((32, 2), (64, 3)))
    assert not compare(info, draft, target).differs
    for file in (draft, target):
        file.set("tokenizer.ggml.add_eos_token", "bool", True)
    assert compare(info, draft, target).differs == ("their EOS tokens differ, 3 in the target and 2 in the draft",)


@pytest.mark.parametrize(
    ("pre", "adds"), [("gpt-2", False), ("llama-bpe", True), ("tekken", True), ("qwen2", False), ("gemma4", True)]
)
def test_the_pre_tokenizer_decides_bos_where_the_file_is_silent(info: Info, pre: str, adds: bool) -> None:
    file = model().without("tokenizer.ggml.add_bos_token").set("tokenizer.ggml.pre", "str", pre)
    assert info(file).vocab.add_bos == adds


def test_a_special_token_beyond_the_vocabulary_is_ignored(info: Info) -> None:
    file = model().set("tokenizer.ggml.bos_token_id", "u32", 99).set("tokenizer.ggml.eos_token_id", "u32", 16)
    assert (info(file).vocab.bos, info(file).vocab.eos) == (11, 11)  # llama.cpp's defaults for this family


def test_warnings_do_not_forbid(info: Info) -> None:
    draft = model(width=64).set("tokenizer.ggml.pre", "str", "qwen2")
    report = compare(info, draft)
    assert report.fits
    assert all(word in text for word, text in zip(("pre-token", "parameters"), report.warnings, strict=True))


def test_models_of_one_vocabulary_are_compared_once(tmp_path: Path) -> None:
    """Of many files here each vocabulary is read, checked and compared once; all get the same answer."""
    target = model(words(60), width=256)
    target.set("general.name", "str", "the target")
    names = [(f"{name}{n}", tokens) for n in range(6) for name, tokens in (("same", words(60)), ("other", words(50)))]
    (tmp_path / "models").mkdir()
    for name, tokens in names:
        file = model([*tokens[:7], f"<{name[:-1]}>", *tokens[8:]], width=64).set("general.name", "str", name)
        file.write(tmp_path / "models" / f"{name}.gguf")
    read = read_header(target.write(tmp_path / "models" / "target.gguf"))
    overlap.cache_clear()
    found = list(local_candidates(ModelPart.of(read, model_info(read))))
    assert len(found) == len(names)
    assert overlap.cache_info().misses == 2
    for kind in ("same", "other"):
        assert len({one.report.differs for one in found if one.report and kind in one.name}) == 1
    headers = [read_header(tmp_path / "models" / f"same{n}.gguf") for n in (0, 5)]
    assert headers[0].metadata["tokenizer.ggml.tokens"] is headers[1].metadata["tokenizer.ggml.tokens"]


def test_vocabularies_of_one_beginning_are_not_taken_for_each_other(info: Info) -> None:
    """As many tokens and equal bytes, but for the last token; and a file that ends within it."""
    first = info(model(words(16)))
    last = info(changed(16, {15: "zzz"}))
    assert first.vocab.text(15) == words(16)[15].encode()
    assert last.vocab.text(15) == b"zzz"
    whole = model(words(16)).write(info.folder / "whole.gguf").read_bytes()
    cut = info.folder / "cut.gguf"
    cut.write_bytes(whole[: whole.index(words(16)[15].encode()) + 1])
    with pytest.raises(IntegrityError, match="cut off"):
        read_header(cut)


# Texts of tokens, and how many are shared.


def spm() -> File:
    """Return a model with a tokenizer of Gemma's kind: a space is U+2581, and each byte has a token of its own."""
    named = ["<unk>", "<s>", "</s>", "<turn>"]
    tokens = [*named, *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "a", "▁▁", "<mark>", "你", "<unused>"]
    file = model(tokens).set("tokenizer.ggml.model", "str", "llama").without("tokenizer.ggml.merges")
    types = [2, 3, 3, 3, *[6] * 256, 1, 1, 1, 4, 1, 5]
    return file.set("tokenizer.ggml.token_type", "arr[i32]", types)


def test_the_texts_of_tokens(info: Info) -> None:
    """Bytes, spaces and user-defined tokens; nothing of control, unknown and unused ones."""
    found = info(spm()).vocab.spellings
    assert [found[text] for text in (b" the", b"a", b"  ", b"<mark>", "你".encode())] == [260, 261, 262, 263, 264]
    assert found[b"\xe4"] == 4 + 0xE4
    assert found[b"b"] == 4 + ord("b")
    assert not found.keys() & {b"<s>", b"<unk>", b"<turn>", b"<unused>", b"<0x41>", b""}
    assert len(found) == 255 + 5, "a letter has a token beside its byte's"


def test_the_texts_of_byte_level_tokens(info: Info) -> None:
    tokens = ["Ġthe", "Ċ", "ä½ł", "ä½", "x", "<mark>", "Ġ<turn>", "\u4f60", *words(8)]
    file = model(tokens).set("tokenizer.ggml.token_type", "arr[i32]", [*[1] * 5, 4, 3, 1, *[1] * 8])
    found = info(file).vocab.spellings
    assert list(found)[:6] == [b" the", b"\n", "你".encode(), "你".encode()[:2], b"x", b"<mark>"]
    assert len(found) == 6 + 8, "the control token and what is no byte-level text are left out"
    assert set(info(model().without("tokenizer.ggml.token_type")).vocab.spellings) == {w.encode() for w in words(16)}


def test_the_texts_of_bpe_tokens_that_are_no_bytes(info: Info) -> None:
    """Gemma 4's tokens are merged as BPE's and written as SPM's: an é is no byte 0xE9."""
    tokens = ["▁the", "é", "你", "▁▁", *words(12)]
    gemma = model(tokens).set("tokenizer.ggml.model", "str", "gemma4").set("tokenizer.ggml.pre", "str", "gemma4")
    for file in (gemma, model(tokens).set("tokenizer.ggml.pre", "str", "sarvam-moe")):
        found = info(file).vocab.spellings
        assert list(found)[:4] == [b" the", "é".encode(), "你".encode(), b"  "]
    assert list(info(model(tokens)).vocab.spellings)[:2] == [b"\xe9", words(1)[0].encode()], "where they are bytes"


def test_the_texts_of_rwkv_tokens_are_escaped(info: Info) -> None:
    tokens = ["\\n", " the", "\\xe4\\xbd", "\\'", "\\\\", "\\t", *words(10)]
    found = info(model(tokens).set("tokenizer.ggml.model", "str", "rwkv")).vocab.spellings
    assert list(found)[:6] == [b"\n", b" the", b"\xe4\xbd", b"'", b"\\", b"\t"]


def test_the_share_of_use_counts_the_tokens_of_a_sample_text(info: Info) -> None:
    """Common letters count for more than seldom ones."""
    target, letters = info(spm()), [*"etaoinshr", "Ġ", *words(6)]
    found = overlap(target.vocab, info(model(letters)).vocab)
    assert found.shared == 10
    assert found.n_target == 260
    assert found.is_slight
    assert 0.5 < found.use < 0.8
    assert str(found) == f"4 % of the target's tokens, which write {100 * found.use:.0f} % of a sample text"
    assert overlap(target.vocab, target.vocab).use == 1.0


# References.


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("t.gguf", "d.gguf", "a+b.gguf", "plain"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def bundled(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("localspec.models.store.HERE", files / "pkg")
    (files / "pkg/storyteller").mkdir(parents=True)
    for name in ("target", "draft"):
        (files / f"pkg/storyteller/{name}-q8_0.gguf").touch()
    return files / "pkg/storyteller"


def test_the_default_is_the_bundled_pair(bundled: Path) -> None:
    expected = PairRef(bundled / "target-q8_0.gguf", bundled / "draft-q8_0.gguf", "storyteller")
    assert parse_pair() == parse_pair("storyteller") == expected


def test_the_draft_of_the_bundled_pair_can_be_changed(bundled: Path) -> None:
    target = bundled / "target-q8_0.gguf"
    assert parse_pair("storyteller+none") == parse_pair(draft="none") == PairRef(target, None, "storyteller+none")
    assert parse_pair("storyteller", "d.gguf") == PairRef(target, Path("d.gguf"), "storyteller+d.gguf")
    assert parse_pair("t.gguf+storyteller").draft == bundled / "draft-q8_0.gguf"


def test_a_head_of_the_bundled_target_is_named_by_its_kind(bundled: Path) -> None:
    head = bundled / "eagle3-q8_0.gguf"
    head.touch()
    expected = PairRef(bundled / "target-q8_0.gguf", head, "storyteller+eagle3")
    assert parse_pair("storyteller+eagle3") == parse_pair("storyteller", "eagle3") == expected
    settings = LoadSettings(str(expected.target), str(head), expected.name)
    assert reference(settings) == "storyteller+eagle3"
    assert usual_speculation(settings) == Speculation(method="eagle3")
    assert introduction(settings, usual_speculation(settings)) == INTRODUCTION


def test_a_head_that_was_trained_here_is_named_by_its_kind(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(files))
    target = model(width=64).write(files / "big.gguf")
    made: dict[str, Path] = {}
    for name, kind, mark in (
        ("one", "eagle3", file_fingerprint(target)),
        ("two", "eagle1", file_fingerprint(target)),
        ("three", "eagle3", "0" * 64),
    ):
        head = model(arch="eagle3").set("eagle3.target_layers", "arr[i32]", [0, 1, 1])
        head.set("eagle3.target_hidden_size", "u32", 64).set("localspec.head.kind", "str", kind)
        heads_folder().mkdir(parents=True, exist_ok=True)
        made[name] = head.set("localspec.head.target_fingerprint", "str", mark).write(heads_folder() / f"{name}.gguf")
    assert parse_pair("big.gguf+eagle3") == PairRef(Path("big.gguf"), made["one"], "big.gguf+eagle3")
    assert parse_pair("big.gguf", "eagle1").draft == made["two"]
    refused = assert_refused("big.gguf+mtp", None, NotFoundError, "big.gguf has no head of the kind mtp")
    assert refused.hint.endswith("localspec heads train big.gguf")
    refused = assert_refused(
        "big.gguf+mask-tokens", None, NotFoundError, "big.gguf has no head of the kind mask-tokens"
    )
    assert refused.hint == "the head's file: big.gguf+HEAD.gguf"  # `heads train` makes none


def test_a_block_in_the_targets_own_file_is_its_mtp_head(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(files))
    own = model(arch="hy_v3").set("hy_v3.nextn_predict_layers", "u32", 1)
    own.tensors[-1] = tensor("blk.1.nextn.eh_proj.weight", (8,), 0, len(own.data) - 32)
    own.write(files / "own.gguf")
    assert parse_pair("own.gguf+mtp").draft == Path("own.gguf")


def test_a_pair_of_the_user_wins_over_a_kind(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(files))
    add("mtp", PairName(PathName(str(files / "d.gguf"))))
    assert parse_pair("t.gguf+mtp").draft == files / "d.gguf"


@pytest.mark.parametrize(
    ("ref", "draft", "expected"),
    [
        ("t.gguf", None, PairRef(Path("t.gguf"), None, "t.gguf")),
        ("t.gguf+d.gguf", None, PairRef(Path("t.gguf"), Path("d.gguf"), "t.gguf+d.gguf")),
        ("t.gguf+none", None, PairRef(Path("t.gguf"), None, "t.gguf+none")),
        ("./t.gguf", "./d.gguf", PairRef(Path("t.gguf"), Path("d.gguf"), "t.gguf+d.gguf")),
        ("t.gguf", "none", PairRef(Path("t.gguf"), None, "t.gguf+none")),
        ("./plain", None, PairRef(Path("plain"), None, "plain")),
        ("a+b.gguf", None, PairRef(Path("a+b.gguf"), None, "a+b.gguf")),
        ("a+b.gguf+d.gguf", None, PairRef(Path("a+b.gguf"), Path("d.gguf"), "a+b.gguf+d.gguf")),
        ("t.gguf+a+b.gguf", None, PairRef(Path("t.gguf"), Path("a+b.gguf"), "t.gguf+a+b.gguf")),
        ("a+b.gguf+none", None, PairRef(Path("a+b.gguf"), None, "a+b.gguf+none")),
    ],
)
def test_paths(files: Path, ref: str, draft: str | None, expected: PairRef) -> None:
    assert parse_pair(ref, draft) == expected


def test_home_is_expanded_on_both_sides(files: Path) -> None:
    assert parse_pair("~/t.gguf+~/d.gguf") == PairRef(files / "t.gguf", files / "d.gguf", "t.gguf+d.gguf")


def test_absolute_path(files: Path) -> None:
    assert parse_pair(str(files / "t.gguf")).target == files / "t.gguf"


@pytest.mark.parametrize(
    "ref",
    ["", " ", "+", "a+", "+b", "a+b+c", "t.gguf+", "+t.gguf", "t.gguf+d.gguf+t.gguf", "++", "n" * 10_000, "x\x1b[2J"],
)
def test_malformed_references(files: Path, ref: str) -> None:
    assert_refused(ref, None, UsageError)


@pytest.mark.parametrize(
    ("ref", "text", "hint"),
    [
        ("storyteler", "no pair called 'storyteler'", "Did you mean 'storyteller'?"),
        ("llama3", "no pair called 'llama3'", "Did you mean 'llama-3."),
        ("xyzzy", "no pair called 'xyzzy'", "known names: localspec pairs list"),
        ("plain", "no pair called 'plain'", "./plain"),
        ("none", "no pair called 'none'", "known names"),
        ("t.gguf+xyzzy", "no pair called 'xyzzy'", "known names"),
        ("no.gguf", "no.gguf does not exist", "Check the path."),
        ("./no", "./no does not exist", "Check the path."),
        ("~nobody_here/no", "does not exist", "Check the path."),
        ("C:\\models\\m.gguf", "does not exist", "Check the path."),
        ("\\\\host\\m.gguf", "does not exist", "Check the path."),
        ("t.gguf+no.gguf", "no.gguf does not exist", "Check the path."),
        ("./" + "n" * 5000, "does not exist", "Check the path."),
        ("./a\0b", "does not exist", "Check the path."),
    ],
)
def test_what_is_not_there(files: Path, ref: str, text: str, hint: str) -> None:
    assert hint in assert_refused(ref, None, NotFoundError, text).hint


def test_the_draft_is_named_once(files: Path) -> None:
    assert_refused("t.gguf+d.gguf", "d.gguf", UsageError, "twice")
    assert_refused("t.gguf", "", UsageError, "--draft is empty")


def test_a_missing_bundled_file_is_said(bundled: Path) -> None:
    os.remove(bundled / "draft-q8_0.gguf")
    assert_refused(None, None, NotFoundError, "draft-q8_0.gguf is missing")
    assert parse_pair("storyteller+none").target.exists()


def assert_refused(ref: str | None, draft: str | None, error: type[LocalspecError], text: str = "") -> LocalspecError:
    with pytest.raises(LocalspecError) as caught:
        parse_pair(ref, draft)
    assert type(caught.value) is error, caught.value.message
    assert text in caught.value.message
    assert caught.value.hint
    assert (caught.value.message + caught.value.hint).isprintable()
    assert len(caught.value.message) < 300
    return caught.value
