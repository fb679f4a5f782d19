"""Draft heads in GGUF: recognised, described, and refused for targets that they were not made for."""

from pathlib import Path

import pytest

from localspec.errors import IncompatibleError, IntegrityError
from localspec.models.gguf.head import HeadInfo, head_info
from localspec.models.gguf.header import read_header
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.pair_check import check_pair, require_fit
from tests.models.gguf_files import File, assert_fails, model, tensor


def eagle3(layers: tuple[int, ...] = (0, 1, 1), width: int = 64) -> File:
    file = model(arch="eagle3").set("eagle3.target_layers", "arr[i32]", list(layers))
    return file.set("eagle3.target_hidden_size", "u32", width)


def mtp(width: int = 64) -> File:
    file = model(arch="hy_v3", width=width).set("hy_v3.block_count", "u32", 1)
    return file.set("hy_v3.nextn_predict_layers", "u32", 1)


def offset(file: File) -> int:
    """Where the last tensor, of 8 numbers, lies."""
    return len(file.data) - 32


def described(path: Path, file: File) -> ModelInfo:
    return model_info(read_header(file.write(path)), may_be_head=True)


@pytest.fixture
def target(tmp_path: Path) -> ModelInfo:
    return model_info(read_header(model(width=64).write(tmp_path / "target.gguf")))


def test_a_head_says_which_states_it_reads(tmp_path: Path) -> None:
    assert described(tmp_path / "e.gguf", eagle3()).head == HeadInfo("eagle3", 64, (0, 1, 1), borrows=True)
    assert described(tmp_path / "m.gguf", mtp()).head == HeadInfo("mtp", 64)
    eagle1 = eagle3().set("localspec.head.kind", "str", "eagle1")
    assert described(tmp_path / "e1.gguf", eagle1).head == HeadInfo("eagle1", 64, borrows=True)


@pytest.mark.parametrize(
    ("kind", "value", "accepted"),
    [
        ("arr[f32]", [0.5, 0.25], (0.5, 0.25)),
        ("arr[f32]", [0.5, -1.0], ()),
        ("arr[f32]", [float("nan")], ()),
        ("arr[str]", ["0.5"], ()),
        ("f32", 0.5, ()),
    ],
)
def test_what_no_training_counted_is_not_believed(
    tmp_path: Path, kind: str, value: object, accepted: tuple[float, ...]
) -> None:
    """Planning divides by them."""
    head = described(tmp_path / "e.gguf", eagle3().set("localspec.head.accepted", kind, value)).head
    assert head is not None
    assert head.accepted == accepted


def medusa(width: int = 64, guesses: int = 4, encoded: int = 96) -> File:
    """A file whose encoder reads 3 x `encoded` numbers: 4 states of 64 and 32 zeros."""
    file = eagle3(width=encoded).set("eagle3.embedding_length", "u32", width)
    return file.set("localspec.head.kind", "str", "medusa").set("localspec.head.guesses", "u32", guesses)


def test_a_medusa_head_says_how_many_tokens_it_guesses(tmp_path: Path) -> None:
    assert described(tmp_path / "m.gguf", medusa()).head == HeadInfo("medusa", 64, n_guesses=4, borrows=True)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (medusa(guesses=5), "its encoder does not hold 5 matrices of 64 columns"),
        (medusa(encoded=64), "its encoder does not hold 4 matrices of 64 columns"),
        (medusa().without("localspec.head.guesses"), r"localspec\.head\.guesses is missing"),
        (medusa(guesses=0), r"localspec\.head\.guesses is missing"),
    ],
)
def test_a_medusa_head_without_its_matrices_is_refused(tmp_path: Path, file: File, reason: str) -> None:
    with pytest.raises(IntegrityError, match=reason):
        described(tmp_path / "m.gguf", file)


def test_an_eagle3_head_with_both_matrices_borrows_none(tmp_path: Path) -> None:
    file = eagle3()
    file.tensors[-1] = tensor("output.weight", (8,), 0, offset(file))
    found = head_info(read_header(file.write(tmp_path / "e.gguf")))
    assert found is not None
    assert not found.borrows


def test_models_are_no_heads(tmp_path: Path) -> None:
    """Not even one that has blocks for further tokens behind its own."""
    assert head_info(read_header(model().write(tmp_path / "a.gguf"))) is None
    whole = model(arch="hy_v3").set("hy_v3.nextn_predict_layers", "u32", 1)
    whole.tensors[-1] = tensor("blk.0.attn_norm.weight", (8,), 0, offset(whole))
    assert head_info(read_header(whole.write(tmp_path / "b.gguf"))) is None


@pytest.mark.parametrize("file", [eagle3(), mtp()], ids=["eagle3", "mtp"])
def test_a_head_is_no_target(tmp_path: Path, file: File) -> None:
    error = assert_fails(file.write(tmp_path / "head.gguf"), IncompatibleError, "is a draft head")
    assert error.hint == f"give it as the draft: --draft {tmp_path}/head.gguf"


@pytest.mark.parametrize("layers", [(), (1,), (0, 1, 1, 1)])
def test_an_eagle3_head_reads_three_layers(tmp_path: Path, layers: tuple[int, ...]) -> None:
    with pytest.raises(IntegrityError, match=r"eagle3\.target_layers"):
        described(tmp_path / "e.gguf", eagle3(layers))


def test_an_eagle3_head_says_the_width_of_its_target(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"eagle3\.target_hidden_size"):
        described(tmp_path / "e.gguf", eagle3().without("eagle3.target_hidden_size"))


@pytest.mark.parametrize("file", [eagle3(), mtp(), medusa()], ids=["eagle3", "mtp", "medusa"])
def test_a_head_fits_its_target(tmp_path: Path, target: ModelInfo, file: File) -> None:
    assert require_fit(target, described(tmp_path / "h.gguf", file)).fits


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (eagle3(width=32), "the head reads states of 32 numbers, and the target's have 64"),
        (mtp(width=32), "the head reads states of 32 numbers, and the target's have 64"),
        (medusa(32, 3, 32), "the head reads states of 32 numbers, and the target's have 64"),
        (eagle3(layers=(0, 1, 2)), "the head reads the layers 0, 1, 2, and the target has the layers 0 to 1"),
        (eagle3(layers=(-1, 0, 1)), "the head reads the layers -1, 0, 1, and the target has the layers 0 to 1"),
    ],
)
def test_a_head_of_another_target_is_refused(tmp_path: Path, target: ModelInfo, file: File, reason: str) -> None:
    head = described(tmp_path / "h.gguf", file)
    assert reason in check_pair(target, head).reasons
    with pytest.raises(IncompatibleError) as caught:
        require_fit(target, head)
    assert caught.value.hint == "use a head of this target, or none with: --draft none"


def test_layers_that_llama_cpp_does_not_tell_are_not_tapped(tmp_path: Path) -> None:
    """It would end the process."""
    target = model_info(read_header(model(arch="qwen2", width=64).write(tmp_path / "target.gguf")))
    report = check_pair(target, described(tmp_path / "e.gguf", eagle3()))
    assert report.reasons == ("llama.cpp does not tell the layers of qwen2 models",)
    assert check_pair(target, described(tmp_path / "m.gguf", mtp())).fits


def test_a_last_state_that_llama_cpp_does_not_tell_is_not_read(tmp_path: Path) -> None:
    """It would end the process. The layers it tells."""
    target = model_info(read_header(model(arch="deepseek4", width=64).write(tmp_path / "target.gguf")))
    for file in (mtp(), medusa(64, 3, 64)):
        report = check_pair(target, described(tmp_path / "h.gguf", file))
        assert "llama.cpp does not tell the last state of deepseek4 models" in report.reasons
    report = check_pair(target, described(tmp_path / "e.gguf", eagle3()))
    assert not any("last state" in reason for reason in report.reasons)
