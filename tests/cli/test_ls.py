"""`localspec ls`: what is here, what was used lately, and that nothing stays loaded."""

import json
from pathlib import Path

import pytest

from localspec.models.recent import remember_pair
from localspec.models.store import parse_pair
from localspec.settings.request import LoadSettings
from tests.cli.harness import needs_pair, run


@needs_pair
def test_pairs_that_were_used_lately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"LOCALSPEC_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    assert (
        run("ls", env=env)
        .stdout.decode()
        .endswith("\n\nno model is in memory; localspec run --keep-alive 10m leaves one there\n")
    )
    assert "names of pairs: localspec pairs list\n" in run("ls", env=env).stdout.decode()
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    pair, gone = parse_pair("storyteller"), tmp_path / "gone.gguf"
    remember_pair(LoadSettings(str(gone), None, "gone.gguf"), clock=lambda: 1e9)
    remember_pair(LoadSettings(str(pair.target.absolute()), str(pair.draft), "storyteller"), clock=lambda: 1.5e9)
    first, second = run("ls", env=env).stdout.decode().split("\n\n")[1].splitlines()[1:]
    assert first.split()[:2] == ["6.5", "MB"]
    assert first.endswith("  storyteller")
    assert second.split()[0] == "gone"
    assert str(gone) in second
    recent = json.loads(run("ls", "--json", env=env).stdout)["recent"]
    assert [(one["name"], one["is_here"]) for one in recent] == [("storyteller", True), ("gone.gguf", False)]
