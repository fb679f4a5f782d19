"""Paths are completed as a shell does."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.ui.files import is_path, path_completions


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


@pytest.mark.parametrize(("typed", "is_one"), [("./a", True), ("models/", True), ("/", True), ("~/x", True),
                                               ("hf:a/b", False), ("qwen3", False), ("", False)])  # fmt: skip
def test_what_is_a_path(typed: str, is_one: bool) -> None:
    assert is_path(typed) == is_one
