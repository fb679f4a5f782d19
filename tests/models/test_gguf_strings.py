"""Arrays of strings in a header: their time is bounded while they are read."""

from pathlib import Path

import pytest

from localspec.errors import IntegrityError
from localspec.models.gguf import cursor as cursors
from localspec.models.gguf.header import read_header
from tests.models.gguf_files import model, words


def test_a_long_array_of_strings_looks_at_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least once in 10 000 strings: the time that ends inside the array ends the reading there."""
    ticks = []
    tick = cursors.HeaderCursor.tick

    def counted(self: cursors.HeaderCursor) -> None:
        ticks.append(self.pos)
        tick(self)

    monkeypatch.setattr(cursors.HeaderCursor, "tick", counted)
    few = model(words(500)).write(tmp_path / "few.gguf")
    many = model(words(100_000)).write(tmp_path / "many.gguf")
    read_header(few)
    n_few = len(ticks)
    ticks.clear()
    read_header(many)
    assert len(ticks) - n_few >= 100_000 // 10_000

    def late(self: cursors.HeaderCursor) -> None:
        raise self.bad("late")

    monkeypatch.setattr(cursors.HeaderCursor, "tick", late)
    with pytest.raises(IntegrityError, match="late"):
        read_header(model(words(100_001)).write(tmp_path / "other.gguf"))
