"""What a model of the catalogue consists of, about: its size is the catalogue's, its shape a typical one."""

import json
from pathlib import Path

import pytest

from localspec.models.catalog import load_catalog
from localspec.models.names import HubName
from localspec.models.plan.estimate import Estimate, estimate
from tests.cli.harness import assert_one_line, run
from tests.models.hollow import LLAMA_8B, LLAMA_70B, QWEN3_30B_A3B, Hollow
from tests.models.plan.examples import parts

CATALOG = load_catalog(Path("/nowhere/catalog.toml"))


def of(name: str) -> Estimate:
    found = estimate(CATALOG.models[name].source, CATALOG)
    assert found is not None
    return found


@pytest.mark.parametrize("name", sorted(CATALOG.models))
def test_every_model_of_the_catalogue_adds_up(name: str) -> None:
    found = of(name)
    shape = found.anatomy
    assert shape.weights == pytest.approx(found.bytes, rel=0.01)
    assert all(min(layer.dense, layer.k_entries) > 0 and layer.experts >= 0 for layer in shape.layers)
    if found.model.active:
        used = shape.weights - sum((1 - shape.used_share) * layer.experts for layer in shape.layers)
        assert used / shape.weights == pytest.approx(found.model.active / found.model.params, abs=0.1)


@pytest.mark.parametrize(
    ("name", "real"), [("llama-3.1-8b", LLAMA_8B), ("llama-3.1-70b", LLAMA_70B), ("qwen3-30b-a3b", QWEN3_30B_A3B)]
)
def test_it_is_near_the_real_shape(name: str, real: Hollow) -> None:
    about, exact = of(name).anatomy, parts(real)
    assert about.weights == pytest.approx(exact.weights, rel=0.15)
    assert about.kv_per_token("f16") == pytest.approx(exact.kv_per_token("f16"), rel=0.1)


def test_only_what_the_catalogue_lists_is_estimated() -> None:
    repo = CATALOG.models["qwen3-8b"].repo
    assert estimate(HubName(repo, quant="Q8_0"), CATALOG) == Estimate(CATALOG.models["qwen3-8b"], "Q8_0", 8_700_000_000)
    for unknown in (HubName(repo, quant="Q2_K"), HubName("a/b"), HubName(repo, file="x.gguf")):
        assert estimate(unknown, CATALOG) is None


def test_a_plan_before_the_download(tmp_path: Path) -> None:
    env = {"LOCALSPEC_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    args = ("plan", "llama-3.1-8b", "--vram", "8G", "--ram", "16G", "--bandwidth", "gpu=448,cpu=50")
    text = run(*args, env=env).stdout.decode()
    assert "\nAn estimate: these files are not on this machine." in text
    assert text.splitlines()[4].split()[1:4] == ["0.70?", "GPU0", "GPU0"]
    made = json.loads(run(*args, "--json", env=env).stdout)
    assert made["is_about"] is True
    assert made["pair"] == "llama-3.1-8b"
    assert_one_line(run("plan", "hf:a/b", env=env), 3, "hf:a/b is not on this machine", "localspec pull hf:a/b")


def test_facts_before_the_download(tmp_path: Path) -> None:
    env = {"LOCALSPEC_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    text = run("show", "qwen3-8b", env=env).stdout.decode()
    for words in ("about 5.0 GB, Q4_K_M", "about 8.19 billion", "32768 tokens", "localspec pull qwen3-8b"):
        assert words in text, words
    made = json.loads(run("show", "qwen3-8b", "--json", env=env).stdout)
    assert (made["is_here"], made["is_about"], made["bytes"]) == (False, True, 5_000_000_000)
    assert_one_line(run("show", "hf:a/b", env=env), 3, "hf:a/b is not on this machine")
