"""What can be chosen from: the catalogue, the hub's cache, the files of a folder."""

import hashlib
from pathlib import Path

import pytest
from huggingface_hub import constants

from localspec.errors import NotFoundError
from localspec.models.available import AvailablePair, find, is_here, listed, offers, whole_models
from localspec.models.catalog import load_catalog
from localspec.models.hub.cache import Cache
from localspec.models.names import parse
from localspec.models.recent import remember_pair
from localspec.models.store import PairRef, expand
from localspec.models.user_catalog import add
from localspec.settings.request import LoadSettings
from tests.cli.harness import PAIR
from tests.hub.models import parts

COMMIT = "0" * 40
CACHED = "hf:tales/storyteller-GGUF@0000000:Q8_0"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def cached(repo: str, name: str, data: bytes) -> None:
    cache = Cache()
    blob = cache.blob(repo, hashlib.sha256(data).hexdigest())
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    cache.publish(repo, COMMIT, name, blob)
    cache.set_ref(repo, "main", COMMIT)


def offered(folder: Path | None = None) -> dict[str, AvailablePair]:
    return {offer.name: offer for offer in offers(load_catalog(), folder)}


def test_the_catalogue_is_offered_with_what_it_says() -> None:
    found = offered()
    assert next(iter(found)) == "storyteller"
    assert found["storyteller"].where == "here"
    assert found["storyteller"].bytes == sum(
        (PAIR / f"{name}-q8_0.gguf").stat().st_size for name in ("target", "draft")
    )
    big = found["qwen3-8b"]
    assert (big.where, big.is_about, big.draft) == ("hub", True, "qwen3-0.6b")
    assert big.target_bytes > big.draft_bytes > 10**8
    assert not big.is_tested


def test_what_is_cached_is_offered_before_what_is_not() -> None:
    cached("tales/storyteller-GGUF", "storyteller-Q8_0.gguf", (PAIR / "target-q8_0.gguf").read_bytes())
    names = list(offered())
    assert names[:2] == ["storyteller", CACHED]
    assert [str(name) for name, _ in whole_models(Cache())] == [CACHED]


def test_a_pair_of_ones_own_is_here_when_both_models_are() -> None:
    pair = "hf:tales/storyteller-GGUF:Q8_0+hf:tales/draft-GGUF:Q8_0"
    add("tales", parse(pair))
    assert offered()["tales"].where == "hub"
    cached("tales/storyteller-GGUF", "storyteller-Q8_0.gguf", (PAIR / "target-q8_0.gguf").read_bytes())
    assert not is_here(expand("tales"))
    cached("tales/draft-GGUF", "draft-Q8_0.gguf", (PAIR / "draft-q8_0.gguf").read_bytes())
    mine = offered()["tales"]
    assert (mine.where, mine.origin, mine.is_about) == ("here", "yours", False)
    assert mine.target_bytes == (PAIR / "target-q8_0.gguf").stat().st_size


def test_files_of_a_folder_whatever_they_are_called(home: Path) -> None:
    folder = home / "mine"
    folder.mkdir()
    for name in ("a+b.gguf", "[red] c.gguf", "mmproj-d.gguf", "notes.txt", "e-00002-of-00003.gguf"):
        (folder / name).symlink_to(PAIR / "target-q8_0.gguf")
    (folder / "small.gguf").symlink_to(PAIR / "draft-q8_0.gguf")
    found = {name: offer for name, offer in offered(folder).items() if offer.origin == "file"}
    assert sorted(found) == ["[red] c.gguf", "a+b.gguf", "small.gguf"]
    pair = find(found["a+b.gguf"])
    assert pair.target == folder / "a+b.gguf"
    assert pair.draft is not None, "the small one fits"
    assert pair.draft.name == "small.gguf"
    assert offered(home / "not there").keys() == offered().keys()


def test_a_model_in_parts_is_one_offer_and_gets_a_draft(home: Path) -> None:
    folder = home / "mine"
    folder.mkdir()
    for name, data in parts().items():
        (folder / name).write_bytes(data)
    first = next(iter(parts()))
    (folder / "small.gguf").symlink_to(PAIR / "draft-q8_0.gguf")
    found = {name: offer for name, offer in offered(folder).items() if offer.origin == "file"}
    assert sorted(found) == ["small.gguf", first]
    assert found[first].bytes == sum(map(len, parts().values()))
    assert find(found[first]).draft == folder / "small.gguf"
    (folder / max(parts())).unlink()
    assert first not in offered(folder), "a part is missing"
    assert "small.gguf" in offered(folder)


def test_a_target_that_nothing_can_be_compared_with_is_found_without_a_draft(home: Path) -> None:
    """What is wrong with it is said when it is loaded."""
    (home / "t.gguf").write_bytes(b"no model")
    assert find(f"{home}/t.gguf") == PairRef(home / "t.gguf", None, "t.gguf")


def test_what_is_written_down_is_found_as_everywhere() -> None:
    assert find("storyteller").name == "storyteller"
    with pytest.raises(NotFoundError, match="no pair called"):
        find("storytelller")


def test_words_are_looked_for_in_what_is_known() -> None:
    offer = offered()["qwen3-8b"]
    assert offer.has([])
    assert offer.has(["qwen3", "apache"])
    assert not offer.has(["qwen3", "gemma"])


def remembered(target: Path, draft: Path | None = None, name: str = "") -> None:
    remember_pair(LoadSettings(str(target), None if draft is None else str(draft), name=name or target.name))


def test_a_file_has_one_row_named_without_its_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders called models are looked at, and so is the one that the picker was opened in: it is the same file."""
    folder = home / "models"
    folder.mkdir()
    (folder / "a-model-q8_0.gguf").write_bytes((PAIR / "draft-q8_0.gguf").read_bytes())
    monkeypatch.chdir(home)
    here = [offer for offer in listed(load_catalog(), folder) if offer.where == "here"]
    assert [offer.name for offer in here] == ["storyteller", "a-model-q8_0.gguf"]
    assert find(here[1]).target.name == "a-model-q8_0.gguf"


@pytest.mark.parametrize(
    ("draft", "name", "rows"),
    [
        (None, "a.gguf", [("a.gguf", ""), ("d.gguf", "")]),
        ("d.gguf", "a.gguf+d.gguf", [("a.gguf", "d.gguf"), ("d.gguf", "")]),
        (None, "a.gguf+none", [("a.gguf", "none"), ("a.gguf", ""), ("d.gguf", "")]),
    ],
)
def test_what_was_loaded_last_has_one_row(
    home: Path, draft: str | None, name: str, rows: list[tuple[str, str]]
) -> None:
    """Only a pair that was told to have no draft leaves its target another row: a draft may be wanted again."""
    for each in ("a.gguf", "d.gguf"):
        (home / each).write_bytes(b"GGUF")
    remembered(home / "a.gguf", home / draft if draft else None, name)
    found = [(offer.name, offer.draft) for offer in listed(load_catalog(), home) if offer.where == "here"]
    assert [row for row in found if row[0] != "storyteller"] == rows


def test_files_of_one_name_are_told_apart_by_their_folders(home: Path) -> None:
    for each in ("one", "two"):
        (home / each).mkdir()
        (home / each / "a.gguf").write_bytes(b"GGUF")
    remembered(home / "one" / "a.gguf")
    names = [offer.name for offer in listed(load_catalog(), home / "two")]
    assert [name for name in names if name.endswith("a.gguf")] == ["one/a.gguf", "two/a.gguf"]
