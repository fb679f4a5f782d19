"""Files named in a message: what is taken, what is left out and counted, and what stays text."""

import subprocess
from pathlib import Path

import pytest

from localspec.errors import PromptTooLongError, UsageError
from localspec.settings.text_files import is_binary
from localspec.ui import mentions
from localspec.ui.mentions import mention_completions, mentioned


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src" / ".git2").mkdir(parents=True)
    (tmp_path / "src" / "a.py").write_text("print(1)\n")
    (tmp_path / "src" / "b.py").write_text("print(2)\n")
    (tmp_path / "src" / "c.txt").write_text("text\n")
    (tmp_path / "src" / ".secret").write_text("KEY\n")
    (tmp_path / "src" / "picture.dat").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "two words.txt").write_text("blank\n")
    return tmp_path


def names(message: str) -> list[str]:
    return [each.name for each in mentioned(message).texts]


@pytest.mark.usefixtures("folder")
def test_names_that_are_files_are_taken_and_others_stay_text() -> None:
    assert names("compare @src/a.py, and @src/b.py.") == ["src/a.py", "src/b.py"]
    assert names("ask @anna about a@src/a.py and @*.rs") == []
    assert names('read @"two words.txt"') == ["two words.txt"]
    assert names("@src/a.py @src/a.py") == ["src/a.py"]
    assert names("@src/*.py") == ["src/a.py", "src/b.py"]


@pytest.mark.usefixtures("folder")
def test_a_folder_gives_its_texts_and_counts_the_rest() -> None:
    taken = mentioned("what is in @src/ ?")
    assert [each.name for each in taken.texts] == ["src/a.py", "src/b.py", "src/c.txt"]
    assert taken.left_out == {"hidden": 2, "binary": 1}
    assert taken.summary == "took 3 files: 23 B, about 8 tokens; left out: 2 hidden · 1 binary"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ("explain @missing.py, and @src/other.py.", ["missing.py", "src/other.py"]),
        ('read @"three words"', ["three words"]),
        ("all of @*.rs and @src/**/*.rs", ["*.rs", "src/**/*.rs"]),
        ("@src/a.py, and @src/a.py.", []),
        ("ask @anna, me@b.py, @staticmethod, @app.get('/') or @functools.cache", []),
    ],
)
def test_a_name_that_no_file_has_is_told(message: str, missing: list[str]) -> None:
    """It was sent as text, and nothing said so."""
    taken = mentioned(message)
    assert taken.missing == missing
    told = [line for line in taken.remarks if "there is no file" in line]
    assert told == [f"there is no file {name}: @{name} is sent as text" for name in missing]


@pytest.mark.parametrize("name", ["none", "bare/"])
def test_a_name_without_a_text_is_told(folder: Path, name: str) -> None:
    (folder / "none").touch()
    (folder / "bare").mkdir()
    assert f"{name} holds no text: nothing of it is sent" in mentioned(f"look at @{name}").remarks


def test_a_large_file_of_a_folder_that_is_no_text_is_left_out(folder: Path) -> None:
    with (folder / "src" / "model.gguf").open("wb") as file:
        file.write(b"GGUF\3\0\0\0" * 2000)
        file.truncate(mentions.MOST_BYTES + 1)
    assert mentioned("@src").left_out["binary"] == 2


def test_what_git_ignores_is_left_out(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".gitignore").write_text("b.py\n")
    taken = mentioned("@src")
    assert [each.name for each in taken.texts] == ["src/a.py", "src/c.txt"]
    assert taken.left_out["ignored by git"] == 1


@pytest.mark.usefixtures("folder")
def test_a_file_that_is_no_text_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match=r"src/picture\.dat is no text"):
        mentioned("@src/picture.dat")


@pytest.mark.usefixtures("folder")
def test_sizes_and_numbers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mentions, "MOST_FILES", 2)
    with pytest.raises(UsageError, match="more than 2 files"):
        mentioned("@src")
    monkeypatch.setattr(mentions, "MOST_FILES", 500)
    monkeypatch.setattr(mentions, "MOST_BYTES", 12)
    with pytest.raises(PromptTooLongError):
        mentioned("@src")


def test_texts_are_told_from_other_bytes() -> None:
    assert not is_binary(b"")
    assert not is_binary("schön, 日本".encode())
    assert not is_binary(b"one wrong \xff byte")
    assert not is_binary("ü".encode() * 5000), "a character that the look ends in is no wrong one"
    assert is_binary(b"GGUF\x03\0\0\0\0\0\0\0")
    assert is_binary(bytes(range(128, 256)) * 4)


@pytest.mark.usefixtures("folder")
def test_tab_completes_the_path_behind_an_at() -> None:
    assert mention_completions("look at @sr") == ["look at @src/"]
    assert mention_completions("@src/a") == ["@src/a.py"]
    assert mention_completions("me@src/a") == []
    assert mention_completions("@src/a.py and") == []


def test_a_path_with_a_blank_is_completed_in_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b file.py", "bin.py"):
        (tmp_path / name).write_text("x")
    (tmp_path / "my notes").mkdir()
    assert mention_completions("see @b") == ["see @b file.py", "see @bin.py"], "what is typed stays their beginning"
    assert mention_completions("see @b ") == mention_completions('see @"b f') == ['see @"b file.py"']
    assert mention_completions('@"b') == ['@"b file.py', '@"bin.py']
    assert mention_completions('@"bi') == ['@"bin.py"']
    assert mention_completions("@my") == ['@"my notes/']
    assert mention_completions('@"b file.py" and') == []
    assert mention_completions("no mention") == []


def test_what_holds_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert mentioned(f"@{tmp_path}/empty").summary == "took no file; left out: 1 empty"


def test_a_digit_is_a_token(tmp_path: Path) -> None:
    """Most vocabularies have one for each: a table of numbers has three times the tokens of as many bytes of prose."""
    (tmp_path / "n.csv").write_text("12.5,7.25\n" * 100)
    assert mentioned(f"@{tmp_path}/n.csv").summary.endswith("about 701 tokens")
