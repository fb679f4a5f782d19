"""Paths are completed as a shell does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.bench.whole_text import read_text
from localspec.chat.conversation_files import load
from localspec.errors import NotFoundError
from localspec.settings.structure import grammar_text, schema_text
from localspec.settings.text_files import nearest_file
from localspec.settings.values import check_paths
from localspec.ui.files import is_path, path_completions, read_regular
from localspec.ui.inputs import Inputs


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models" / "inner").mkdir(parents=True)
    (tmp_path / "models" / ".hidden").mkdir()
    for name in ("big.gguf", "small.GGUF", "notes.txt"):
        (tmp_path / "models" / name).write_text("", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("mod", ["models/"]),
        ("models/", ["models/big.gguf", "models/inner/", "models/small.GGUF"]),
        ("models/b", ["models/big.gguf"]),
        ("~/models/s", ["~/models/small.GGUF"]),
        ("models/.", ["models/.hidden/"]),
        ("nowhere/", []),
        ("models/big.gguf/", []),
        ("models/\0", []),
    ],
)
def test_models_and_folders(typed: str, found: list[str]) -> None:
    assert path_completions(typed, (".gguf",)) == found


def test_any_file_and_an_absolute_path(folder: Path) -> None:
    assert path_completions(f"{folder}/models/n") == [f"{folder}/models/notes.txt"]


def test_a_link_to_itself_is_no_folder(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    assert path_completions("lo") == ["loop"]


@pytest.mark.parametrize(("typed", "is_one"), [("./a", True), ("models/", True), ("/", True), ("~/x", True),
                                               ("hf:a/b", False), ("qwen3", False), ("", False)])  # fmt: skip
def test_what_is_a_path(typed: str, is_one: bool) -> None:
    assert is_path(typed) == is_one


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("models/nots.txt", "Did you mean 'models/notes.txt'?"),
        ("~/models/Notes.txt", "Did you mean '~/models/notes.txt'?"),
        ("models/other.py", "the name of a text file"),
        ("nowhere/notes.txt", "the name of a text file"),
        ("models", "the name of a text file"),
    ],
)
def test_a_missing_file_is_told_with_the_nearest(typed: str, hint: str) -> None:
    """A folder is no missing file."""
    with pytest.raises(NotFoundError) as caught:
        read_regular(typed, 100)
    assert caught.value.hint == hint


def test_in_a_folder_of_very_many_none_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comparison takes a tenth of a millisecond, and a chat waits."""
    for most, near in ((4, "models/notes.txt"), (3, "")):  # big.gguf, inner, notes.txt, small.GGUF
        monkeypatch.setattr("localspec.settings.text_files.MOST_NEAR", most)
        assert nearest_file("models/nots.txt") == near


@pytest.mark.parametrize(
    "read",
    [
        lambda path: read_text(path, said="--suite X", hint="Check the path."),
        lambda path: Inputs(100).file(str(path)),
        load,
        lambda path: schema_text(str(path)),
        lambda path: schema_text(f"@{path}"),
        lambda path: grammar_text(str(path)),
        lambda path: check_paths("--corpus", (str(path),)),
    ],
)
def test_every_reader_of_a_text_tells_the_nearest(read: Callable[[Path], object], folder: Path) -> None:
    with pytest.raises(NotFoundError, match=r"cannot read|there is no file") as caught:
        read(folder / "models" / "nots.txt")
    assert caught.value.hint == f"Did you mean '{folder}/models/notes.txt'?"
