"""The list of pairs that were loaded last."""

from pathlib import Path

import pytest

from localspec.models.recent import MAX_PAIRS, recent_pairs, remember_pair
from localspec.models.store import parse_pair
from localspec.settings.folders import state_folder
from localspec.settings.request import LoadSettings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return tmp_path


def pair(name: str, draft: str | None = None) -> LoadSettings:
    return LoadSettings(f"/models/{name}.gguf", draft, name=f"{name}.gguf")


def test_the_last_one_comes_first_and_once() -> None:
    assert recent_pairs() == []
    for at, name in enumerate(["a", "b", "a"]):
        remember_pair(pair(name), clock=lambda at=at: float(at))
    assert [(each.name, each.used) for each in recent_pairs()] == [("a.gguf", 2.0), ("b.gguf", 1.0)]


def test_a_pair_is_its_files() -> None:
    remember_pair(pair("a"))
    remember_pair(pair("a", "/models/d.gguf"))
    assert [each.draft for each in recent_pairs()] == ["/models/d.gguf", None]


def test_a_name_is_kept_as_a_name_and_a_path_as_an_absolute_one(home: Path) -> None:
    """Either finds the same files again, from any folder."""
    bundled = parse_pair("storyteller")
    remember_pair(LoadSettings(str(bundled.target), str(bundled.draft), name="storyteller"))
    remember_pair(pair("a"))
    assert [each.pair for each in recent_pairs()] == ["/models/a.gguf+none", "storyteller"]
    assert [each.is_here for each in recent_pairs()] == [False, True]


def test_the_list_stays_short() -> None:
    for at in range(MAX_PAIRS + 3):
        remember_pair(pair(f"m{at}"))
    assert len(recent_pairs()) == MAX_PAIRS


@pytest.mark.parametrize("content", ["", "{", "{}", "[1]", '[{"pair": "a"}]', "null", "\xff", 100_000 * "["])
def test_a_damaged_file_costs_the_list_and_nothing_else(content: str) -> None:
    path = state_folder("recent.json")
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode("latin-1"))
    assert recent_pairs() == []
    remember_pair(pair("a"))
    assert len(recent_pairs()) == 1


def test_values_of_another_type_are_left_out() -> None:
    remember_pair(pair("a"))
    path = state_folder("recent.json")
    path.write_text(path.read_text("utf-8").replace('"/models/a.gguf"', "7"), "utf-8")
    assert recent_pairs() == []


def test_a_folder_that_cannot_be_written_stops_nothing(home: Path) -> None:
    (home / "home").mkdir()
    (home / "home" / "state").write_text("", "utf-8")
    remember_pair(pair("a"))
    assert recent_pairs() == []


def test_only_the_owner_reads_it() -> None:
    remember_pair(pair("a"))
    assert state_folder("recent.json").stat().st_mode & 0o77 == 0
