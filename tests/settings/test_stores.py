"""Small files that are stored: what is written is read again, and lies there as JSON."""

from pathlib import Path

from localspec.settings.stores import read_stored, write_stored


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    write_stored(path, {"is_broken": True})
    assert path.read_text() == '{\n "is_broken": true\n}\n'
    assert read_stored(path, dict[str, bool]) == {"is_broken": True}
