"""The catalogue: what comes with localspec is sound, a user's wins, and every mistake in one names file and entry."""

import tempfile
from pathlib import Path

import pytest

from localspec.errors import NotFoundError, UsageError
from localspec.models.catalog import BUILTIN, Catalog, load_catalog
from localspec.models.names import DraftChoice, HubName, PairName, PathName
from localspec.models.store import expand
from tests.recorded import recorded_expressions

MODEL = """
[models.big]
family = "tale"
repo = "org/big-GGUF"
about_gb = { Q8_0 = 2.0, Q4_K_M = 1.0 }
params = 1.5
license = "mit"
context = 4096
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "catalog.toml"


@pytest.fixture
def catalog(user: Path) -> Catalog:
    return load_catalog()


def test_it_has_the_families_people_run(catalog: Catalog) -> None:
    assert len({model.family for model in catalog.models.values()}) >= 25
    for name, draft in {
        "llama-3.3-70b": ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b"),
        "qwen3-8b": ("qwen3-0.6b", "qwen3-1.7b"),
        "llama-2-70b": ("llama-2-7b",),
    }.items():
        assert set(draft) <= set(catalog.models[name].drafts)


def test_every_entry_is_plausible(catalog: Catalog) -> None:
    """Bytes a weight between 2 and 9 bits, drafts smaller than their targets, and no pair claimed as tested."""
    for model in catalog.models.values():
        for quant, size in model.about_gb.items():
            assert 0.24 < size / model.params < 1.4, (model.name, quant)
        for draft in model.drafts:
            assert catalog.models[draft].size_gb < model.size_gb, (model.name, draft)
        assert not model.tested, "only a run of the pair proves it"
        assert len(model.repo.split("/")) == 2
    assert len({model.repo for model in catalog.models.values()}) == len(catalog.models)


def test_a_name_stands_for_target_and_first_draft(user: Path) -> None:
    target, draft = HubName("Qwen/Qwen3-8B-GGUF", quant="Q4_K_M"), HubName("Qwen/Qwen3-0.6B-GGUF", quant="Q8_0")
    assert expand("qwen3-8b") == expand("qwen3-8b+auto") == PairName(target, draft)
    assert expand("qwen3-8b+none") == expand("qwen3-8b", "none") == PairName(target, DraftChoice.NONE)
    assert expand("hf:qwen/qwen3-8b-gguf:Q8_0+auto").draft == draft
    assert expand("hf:Qwen/Qwen3-8B-GGUF").draft is DraftChoice.UNSET
    assert expand("x.gguf+qwen3-0.6b") == PairName(PathName("x.gguf"), draft)
    assert expand("qwen3-0.6b") == PairName(draft, DraftChoice.UNSET)


def test_a_users_catalogue_wins(user: Path) -> None:
    user.write_text(MODEL + '[pairs.qwen3-8b]\ntarget = "big"\ndraft = "./d.gguf"\n[pairs.mine]\ntarget = "qwen3-8b"\n')
    expected = PairName(HubName("org/big-GGUF", quant="Q8_0"), PathName("./d.gguf"))
    assert expand("qwen3-8b") == expand("mine") == expected
    assert load_catalog().models["big"].is_users


def test_a_pair_with_the_name_of_a_draft(user: Path) -> None:
    """The name means the pair; models of the catalogue are drafted for by the model that they meant."""
    user.write_text('[pairs."qwen3-0.6b"]\ntarget = "./mine.gguf"\n')
    catalog = load_catalog()
    draft = HubName("Qwen/Qwen3-0.6B-GGUF", quant="Q8_0")
    assert expand("qwen3-0.6b").target == PathName("./mine.gguf")
    assert expand("qwen3-8b").draft == expand("hf:Qwen/Qwen3-8B-GGUF+auto").draft == draft
    assert catalog.drafts_of(catalog.models["qwen3-8b"])[0].source == draft
    assert "qwen3-0.6b" not in catalog.models


def test_a_pair_as_the_draft_of_a_pair(user: Path) -> None:
    user.write_text(
        '[pairs.small]\ntarget = "./d.gguf"\n[pairs.a]\ntarget = "./t.gguf"\ndraft = "small"\n'
        '[pairs.b]\ntarget = "storyteller"\ndraft = "small"\n[pairs.c]\ntarget = "./t.gguf"\ndraft = "c"\n'
    )
    assert expand("a") == PairName(PathName("./t.gguf"), PathName("./d.gguf"))
    assert expand("b").draft == PathName("./d.gguf")
    with pytest.raises(UsageError, match="stand for each other"):
        expand("c")


def test_a_plus_in_a_path_needs_no_file(user: Path) -> None:
    """The drive that it lies on may be elsewhere today."""
    user.write_text('[pairs.a]\ntarget = "/mnt/t+1.gguf"\ndraft = "/mnt/d+1.gguf"\n')
    assert expand("a") == PairName(PathName("/mnt/t+1.gguf"), PathName("/mnt/d+1.gguf"))


def mistake(text: str) -> str:
    """Return what is said of a catalogue with this text."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "catalog.toml"
        file.write_text(text, "utf-8")
        with pytest.raises(UsageError) as caught:
            load_catalog(file)
        return f"{caught.value.message} | {caught.value.hint}".replace(folder, "…")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * (5 << 20), b"a = " + b"[" * 100_000])
def test_files_that_are_no_catalogue(user: Path, content: bytes) -> None:
    user.write_bytes(content)
    with pytest.raises(UsageError, match=r"catalog\.toml"):
        load_catalog()


def test_a_catalogue_that_is_a_directory(user: Path) -> None:
    user.mkdir()
    with pytest.raises(UsageError, match="cannot read"):
        load_catalog()


def test_names_that_stand_for_each_other(user: Path) -> None:
    user.write_text('[pairs.a]\ntarget = "b"\n[pairs.b]\ntarget = "a"\n')
    with pytest.raises(UsageError, match="stand for each other"):
        expand("a")


def test_a_name_of_a_name_that_is_gone(user: Path) -> None:
    user.write_text('[pairs.a]\ntarget = "gone"\n')
    with pytest.raises(NotFoundError, match="gone"):
        expand("a")


def test_the_built_in_catalogue_alone(tmp_path: Path) -> None:
    assert BUILTIN.is_file()
    assert load_catalog(tmp_path / "none.toml").pairs == {}


test_what_is_recorded = recorded_expressions(__file__, mistake)
