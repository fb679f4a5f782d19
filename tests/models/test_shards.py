"""A model in several files: read as one, refused with the reason where a part is missing or does not belong."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.errors import IntegrityError, LocalspecError, NotFoundError
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import part_paths, read_model
from tests.models.gguf_files import File, model, tensor

Parts = dict[int, File]


def parts(n: int = 3) -> Parts:
    """Return the parts of a model: the first has what a model needs, each of the others one tensor."""
    first = model().set("split.no", "u16", 0).set("split.count", "u16", n)
    made = {1: first.set("split.tensors.count", "i32", len(first.tensors) + n - 1)}
    for number in range(2, n + 1):
        file = File().set("split.no", "u16", number - 1).set("split.count", "u16", n)
        made[number] = file.with_tensors(tensor(f"extra.{number}", (8,)), data=bytes(32))
    return made


def write(folder: Path, files: Parts, n: int = 3) -> Path:
    for number, file in files.items():
        file.write(folder / f"m-{number:05}-of-{n:05}.gguf")
    return folder / f"m-00001-of-{n:05}.gguf"


@pytest.mark.parametrize("named", [1, 2, 3])
def test_all_parts_are_read_as_one_whichever_is_named(tmp_path: Path, named: int) -> None:
    first = write(tmp_path, parts())
    header = read_model(first.with_name(f"m-0000{named}-of-00003.gguf"))
    assert header.path == first
    assert header.files == part_paths(first)
    assert [one.name for one in header.tensors] == [
        "token_embd.weight", "output_norm.weight", "scale", "extra.2", "extra.3"
    ]  # fmt: skip
    assert header.size == sum(path.stat().st_size for path in header.files)
    assert model_info(header).bytes == header.size


def test_a_model_in_one_file_has_no_parts(tmp_path: Path) -> None:
    path = model().write(tmp_path / "m-00001-of-00002.gguf")  # a name alone promises nothing
    assert read_model(path).files == (path,)


def rename(folder: Path) -> Path:
    return write(folder, parts()).rename(folder / "first.gguf")


def missing(*gone: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        return write(folder, {number: file for number, file in parts().items() if number not in gone})

    return make


def damaged(number: int, change: Callable[[File], object]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        files = parts()
        change(files[number])
        return write(folder, files)

    return make


def swapped(folder: Path) -> Path:
    files = parts()
    return write(folder, {1: files[1], 2: files[3], 3: files[2]})


BROKEN: dict[str, tuple[Callable[[Path], Path], type[LocalspecError], str]] = {
    "a part is missing": (missing(2), NotFoundError, "m-00002-of-00003.gguf is missing"),
    "the last is missing": (missing(3), NotFoundError, "m-00003-of-00003.gguf is missing"),
    "the name says nothing": (rename, IntegrityError, "its name does not say so"),
    "two are swapped": (swapped, IntegrityError, "says that it is part 3 of 3, and its name that it is 2 of 3"),
    "the first is another": (damaged(1, lambda f: f.set("split.no", "u16", 1)), IntegrityError, "part 2 of 3"),
    "another count": (damaged(2, lambda f: f.set("split.count", "u16", 4)), IntegrityError, "part 2 of 4"),
    "no number": (damaged(3, lambda f: f.without("split.no")), IntegrityError, "lacks the key split.no"),
    "a number of another type": (damaged(2, lambda f: f.set("split.no", "u32", 1)), IntegrityError, "instead of u16"),
    "a count of another type": (damaged(1, lambda f: f.set("split.count", "u32", 3)), IntegrityError, "instead of u16"),
    "no tensor count": (damaged(1, lambda f: f.without("split.tensors.count")), IntegrityError, "split.tensors.count"),
    "too few tensors": (
        damaged(1, lambda f: f.set("split.tensors.count", "i32", 9)), IntegrityError, "hold 5 tensors, and"
    ),
    "a tensor twice": (
        damaged(3, lambda f: f.with_tensors(tensor("extra.2", (8,)))), IntegrityError, "which an earlier part has"
    ),
    "a part cut off": (damaged(3, lambda f: f.with_tensors(tensor("x", (64,)))), IntegrityError, "is cut off"),
    "a part that is no GGUF": (damaged(2, lambda f: setattr(f, "magic", b"XXXX")), IntegrityError, "not a valid GGUF"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "error", "text"), BROKEN.values(), ids=BROKEN)
def test_broken_sets_are_refused(
    tmp_path: Path, make: Callable[[Path], Path], error: type[LocalspecError], text: str
) -> None:
    with pytest.raises(LocalspecError) as caught:
        read_model(make(tmp_path))
    assert type(caught.value) is error
    assert text in caught.value.message
    assert caught.value.hint
    assert (caught.value.message + caught.value.hint).isprintable()


WHOLE = [file.build() for file in parts().values()]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2), st.integers(0, 400), st.binary(min_size=1, max_size=12))
def test_any_damage_to_any_part_is_a_header_or_a_refusal(tmp_path: Path, number: int, at: int, junk: bytes) -> None:
    for index, whole in enumerate(WHOLE):
        content = whole[:at] + junk + whole[at + len(junk) :] if index == number else whole
        (tmp_path / f"m-{index + 1:05}-of-00003.gguf").write_bytes(content)
    refusal: LocalspecError | None = None
    try:
        header = read_model(tmp_path / "m-00001-of-00003.gguf")
        assert header.size == sum(path.stat().st_size for path in header.files)
    except LocalspecError as error:
        refusal = error
    if refusal is not None:
        assert refusal.exit_code in (3, 5)
        assert refusal.message.isprintable()
