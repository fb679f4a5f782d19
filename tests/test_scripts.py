"""Scripts: what `--with` hands to pip, which is not run here, and that their imports exist."""

from __future__ import annotations

import ast
import importlib
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from localspec import BINDING

ROOT = Path(__file__).parents[1]
SHELL = sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file() and path.suffix == "")
RECORDER = """#!/usr/bin/env bash
if [ "$1" = -c ]; then echo 0.3.36; exit; fi
echo "CMAKE_ARGS=$CMAKE_ARGS $*" >> "$RECORD"
exit ${FAILS:-0}
"""


def bash(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run lines of bash after environment.sh, with a recorder for python and an environment of the test's own."""
    recorder = folder / "python"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    lines = f"set -euo pipefail\nsource {ROOT}/scripts/environment.sh\nvenv={folder}\npython={recorder}\n{script}"
    return subprocess.run(
        ["bash", "-c", lines], capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "RECORD": str(folder / "record"), **env},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("names", "flags"),
    [("rpc", "-DGGML_RPC=on"), ("cuda", "-DGGML_CUDA=on"), ("vulkan,rpc", "-DGGML_VULKAN=on -DGGML_RPC=on")],
)
def test_names_become_flags(tmp_path: Path, names: str, flags: str) -> None:
    assert bash(f"cmake_flags {names}", tmp_path).stdout.strip() == flags


@pytest.mark.parametrize("names", ["", "metal", "rpc,nonsense", ","])
def test_unknown_names_stop_before_anything_is_installed(tmp_path: Path, names: str) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "localspec", "--with", names], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "--with takes rpc, cuda and vulkan" in done.stderr


def test_a_rebuild_goes_past_pips_cache_and_happens_once(tmp_path: Path) -> None:
    twice = 'rebuild "-DGGML_RPC=on"; rebuild "-DGGML_RPC=on"'
    done = bash(twice, tmp_path, CMAKE_ARGS="-DGGML_BLAS=on")
    assert done.returncode == 0, done.stderr
    (line,) = (tmp_path / "record").read_text().splitlines()
    lean = f'-DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE="{ROOT}/scripts/llama_build.cmake"'
    assert line.startswith(f"CMAKE_ARGS=-DGGML_BLAS=on {lean} -DGGML_RPC=on -m pip install")
    assert (ROOT / "scripts" / "llama_build.cmake").is_file()
    for word in (
        "--no-cache-dir",
        "--force-reinstall",
        "--no-deps",
        "--no-binary llama-cpp-python",
        "llama-cpp-python==",
    ):
        assert word in line
    bash('rebuild "-DGGML_CUDA=on"', tmp_path)
    assert len((tmp_path / "record").read_text().splitlines()) == 2


def test_a_build_that_fails_is_said_and_tried_again(tmp_path: Path) -> None:
    for attempt in (1, 2):
        done = bash('rebuild "-DGGML_RPC=on"', tmp_path, FAILS="3")
        assert done.returncode == 1
        assert "The installation failed" in done.stderr
        assert len((tmp_path / "record").read_text().splitlines()) == attempt


@pytest.mark.parametrize(("words", "extra"), [(["serve", "x"], "serve"), (["run", "serve"], ""), ([], "")])
def test_the_server_brings_its_packages(tmp_path: Path, words: list[str], extra: str) -> None:
    (tmp_path / "environment.sh").write_text('prepare() { echo "extra:${1:-}"; exit; }\n')
    script = tmp_path / "localspec"
    script.write_text((ROOT / "scripts" / "localspec").read_text())
    done = subprocess.run(["bash", script, *words], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"extra:{extra}\n"


def test_what_is_installed_anew_is_what_is_needed() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert BINDING in needed


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").rglob("*.py")), ids=lambda path: path.stem)
def test_what_a_script_imports_of_localspec_exists(path: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("localspec"):
            module = importlib.import_module(str(node.module))
            names = [f"{node.module}.{alias.name}" for alias in node.names if not hasattr(module, alias.name)]
            missing += [name for name in names if find_spec(name) is None]
    assert not missing


@pytest.mark.parametrize(
    "script", [path for path in SHELL if "environment.sh" in path.read_text()], ids=lambda path: path.name
)
def test_a_script_runs_through_a_link(script: Path, tmp_path: Path) -> None:
    """As where ~/bin has a link to it; the link may be relative, and to another link."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "first").symlink_to(script)
    (tmp_path / "bin" / "second").symlink_to("../first")
    text = script.read_text()
    begin = next(line for line in text.splitlines() if line.startswith("source "))
    probe = tmp_path / "probe"
    probe.write_text(
        f'set -euo pipefail\n{begin}\necho "$root"\n'.replace("${BASH_SOURCE[0]}", str(tmp_path / "bin/second"))
    )
    done = subprocess.run(["bash", str(probe)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == (f"{ROOT}\n", "")
