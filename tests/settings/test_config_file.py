"""config.toml: every value with its line, one error for what is none, and changes that lose nothing."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from localspec.errors import ResourceError, UsageError
from localspec.settings.config_file import MAX_BYTES, assign, config_file, read_configuration, remove


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    return tmp_path


def write(text: str | bytes) -> Path:
    config_file().write_bytes(text if isinstance(text, bytes) else text.encode())
    return config_file()


def test_no_file_says_nothing() -> None:
    assert read_configuration().entries == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("temp = 0.5\n", [(("temp",), 0.5, 1)]),
        ("\n# why\n\ntemp = 0.5 # cold", [(("temp",), 0.5, 4)]),
        ("temp = 0\r\n[run]\r\nseed = 3\r\n", [(("temp",), 0, 1), (("run", "seed"), 3, 3)]),
        ("[early-exit.tune]\nskips = 1\n", [(("early-exit", "tune", "skips"), 1, 2)]),
        ("run.temp = 1.0\nchat = { temp = 0.1, seed = 2 }\n",
         [(("run", "temp"), 1.0, 1), (("chat", "temp"), 0.1, 2), (("chat", "seed"), 2, 2)]),
        ('stop = [\n  "a", # one\n  "]",\n]\ntemp = 1\n', [(("stop",), ["a", "]"], 1), (("temp",), 1, 5)]),
        ('system = """\n[run]\ntemp = 5\n"""\nseed = 1\n', [(("system",), "[run]\ntemp = 5\n", 1), (("seed",), 1, 5)]),
        ("\ufefftemp = 1\n", [(("temp",), 1, 1)]),
        ('"a b" = 1\n', [(("a b",), 1, 1)]),
    ],
)  # fmt: skip
def test_values_have_their_lines(text: str, found: list[tuple[tuple[str, ...], object, int]]) -> None:
    write(text)
    assert [(entry.path, entry.value, entry.line) for entry in read_configuration().entries] == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("temp = 1\nmodel = 'x\n", ":2: this is not TOML"),
        ("temp 1\n", ":1:6: this is not TOML"),
        ("a = 1\na = 2\n", ":2:6: this is not TOML"),
        ("b = 1\na = [1,\n2\n", ":2: this is not TOML"),
        ("a = " + "[" * 5000, ": this is not TOML"),
        (b"temp = 1\n\xff\n", ":2: this is not a text of UTF-8"),
        ("# " + "x" * MAX_BYTES, "longer than 64 KiB"),
    ],
)
def test_what_is_no_configuration_is_one_error(text: str | bytes, words: str) -> None:
    file = write(text)
    with pytest.raises(UsageError) as caught:
        read_configuration()
    assert str(file) in caught.value.message
    assert words in caught.value.message


def test_a_folder_is_no_configuration(home: Path) -> None:
    config_file().mkdir()
    with pytest.raises(UsageError, match="not a file"):
        read_configuration()


MINE = """\
# all of this is mine
temp = 0.5   # cold

# what I ask
[run]
seed = 7
"""


def test_setting_keeps_everything_else() -> None:
    write(MINE)
    assign(("temp",), 0.9)
    assign(("run", "top-k"), 5)
    assign(("ctx",), 512)
    assign(("early-exit", "tune", "skips"), 1)
    text = config_file().read_text()
    assert "temp = 0.9   # cold" in text
    for line in ("# all of this is mine", "# what I ask", "seed = 7"):
        assert line in text.splitlines()
    values = {entry.path: entry.value for entry in read_configuration().entries}
    assert values == {
        ("temp",): 0.9,
        ("ctx",): 512,
        ("run", "seed"): 7,
        ("run", "top-k"): 5,
        ("early-exit", "tune", "skips"): 1,
    }


def test_what_was_set_and_unset_leaves_the_file_as_it_was() -> None:
    write(MINE)
    assign(("chat", "temp"), 1.5)
    remove(("chat", "temp"))
    assert config_file().read_text().strip() == MINE.strip()


def test_a_comment_keeps_its_table() -> None:
    write("[run]\n# I had seed = 7 here\nseed = 7\n")
    remove(("run", "seed"))
    assert config_file().read_text() == "[run]\n# I had seed = 7 here\n"


def test_a_link_stays_a_link_and_modes_stay(home: Path) -> None:
    real = home / "dotfiles.toml"
    real.write_text("temp = 1\n")
    real.chmod(0o640)
    config_file().symlink_to(real)
    assign(("temp",), 2)
    assert config_file().is_symlink()
    assert real.read_text() == "temp = 2\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_new_file_is_its_owners() -> None:
    file = assign(("temp",), 2)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_where_nothing_can_be_written_the_file_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(MINE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ResourceError, match="No space left"):
        assign(("temp",), 2)
    assert file.read_text() == MINE
    assert list(file.parent.iterdir()) == [file]
