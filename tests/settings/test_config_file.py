"""config.toml: every value by its key, one error for what is none, and changes that lose nothing."""

import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import ResourceError, UsageError
from localspec.settings.config_file import assign, config_file, read_configuration, remove
from tests.recorded import recorded_expressions


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    return tmp_path


def write(text: str | bytes) -> Path:
    config_file().write_bytes(text if isinstance(text, bytes) else text.encode())
    return config_file()


def entries(text: str | bytes) -> list[tuple[Any, ...]]:
    """Return key and value of each value of a file with this text."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", folder)
        config_file().parent.mkdir()
        write(text)
        try:
            return list(read_configuration().items())
        except UsageError as error:
            error.message = error.message.replace(folder, "…")
            raise


def test_no_file_says_nothing() -> None:
    assert read_configuration() == {}


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
    assert read_configuration() == {
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
    assign(("temp",), 2)
    file = config_file()
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


test_what_is_recorded = recorded_expressions(__file__, entries)
