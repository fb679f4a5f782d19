"""Scripts: what `--with` hands to pip, which is not run here, and that their imports exist."""

import ast
import importlib
import os
import platform
import shutil
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from localspec import BINDING

ROOT = Path(__file__).parents[1]
SHELL = sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file() and path.suffix == "")
RECORDER = """#!/usr/bin/env bash
name=${CXX:+${CXX##*/}}
name=${name:-system}
case "$*" in
    "-m pip cache dir") echo "${CACHE:?}" ;;
    "-c import llama_cpp") [ -z "${IS_BROKEN:-}" ] ;;
    *ziglang*) [ -z "${NO_ZIG:-}" ] ;;
    *) echo "CXX=$name CMAKE_ARGS=$CMAKE_ARGS $*" >> "$RECORD"
       echo "x.cpp:1: error: it is $name"
       case "${FAILS:-}" in *"$name"*) exit 3 ;; esac ;;
esac
"""
AMX = "flags : fpu amx_tile avx512f"
AVX2 = "flags : fpu avx2"


def bash(script: str, folder: Path, cpuinfo: str = AVX2, **env: str) -> subprocess.CompletedProcess[str]:
    """Run lines of bash after environment.sh, with a recorder for python and an environment of the test's own."""
    recorder = folder / "python"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    (folder / "cpuinfo").write_text(f"{cpuinfo}\n")
    lines = f"set -euo pipefail\nsource {ROOT}/scripts/environment.sh\nvenv={folder}\npython={recorder}\n"
    lines += f"cpuinfo={folder}/cpuinfo\ntick=0.1\n"
    return subprocess.run(
        ["bash", "-c", f"{lines}{script}"], capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "RECORD": str(folder / "record"), "CACHE": str(folder / "cache"), **env},
    )  # fmt: skip


def builds(folder: Path) -> list[str]:
    """Return what was handed to pip, a line for each build."""
    return (folder / "record").read_text().splitlines()


@pytest.fixture
def tools(tmp_path: Path) -> str:
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("bash", "cat", "cksum", "grep", "head", "sed", "sleep", "tail", "uname", "rm"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return str(folder)


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


@pytest.mark.parametrize("is_new", [True, False])
def test_headers_of_an_old_vulkan_end_before_anything_is_compiled(tmp_path: Path, is_new: bool) -> None:
    header = tmp_path / "include" / "vulkan" / "vulkan_core.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define VK_EXT_layer_settings 1\n" if is_new else "#define VK_HEADER_VERSION 239\n")
    done = bash('flags="-DGGML_VULKAN=on"; build', tmp_path, VULKAN_SDK=str(tmp_path))
    assert (done.returncode, (tmp_path / "record").exists()) == ((0, True) if is_new else (1, False))
    told = (
        f"--with vulkan needs Vulkan's headers of 1.3.272 or newer, and {header} is older: set VULKAN_SDK=FOLDER to the"
    )
    assert is_new or done.stderr == f"{told} folder of a newer Vulkan SDK.\n"
    header.unlink()
    assert bash('flags="-DGGML_VULKAN=on"; build', tmp_path, VULKAN_SDK=str(tmp_path)).returncode == 0


def test_other_flags_are_built_anew_and_the_same_ones_once(tmp_path: Path) -> None:
    done = bash('flags="-DGGML_RPC=on"; build; build', tmp_path, CMAKE_ARGS="-DGGML_BLAS=on")
    assert done.returncode == 0, done.stderr
    (line,) = builds(tmp_path)
    lean = f'-DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE="{ROOT}/scripts/llama_build.cmake"'
    assert line.startswith(f"CXX=system CMAKE_ARGS=-DGGML_BLAS=on {lean} -DGGML_RPC=on -m pip install")
    assert (ROOT / "scripts" / "llama_build.cmake").is_file()
    for word in ("--force-reinstall", "--no-deps", "--no-binary llama-cpp-python", "llama-cpp-python>="):
        assert word in line
    bash('flags="-DGGML_CUDA=on"; build', tmp_path)
    assert len(builds(tmp_path)) == 2
    bash('flags="-DGGML_CUDA=on"; build', tmp_path, IS_BROKEN="1")
    assert len(builds(tmp_path)) == 3


def test_wheels_of_another_compiler_processor_or_flag_are_not_taken(tmp_path: Path) -> None:
    """Each build has a cache of its own, and the same build the same one, from another checkout too."""
    for script, cpuinfo, env in (
        ("build", AVX2, {}),
        ("compiler=zig; build", AVX2, {}),
        ("compiler=system; build", AMX, {}),
        ("flags=-DGGML_RPC=on; build", AVX2, {}),
        ("build", AVX2, {"CXXFLAGS": "-O1"}),
    ):
        assert bash(script, tmp_path, cpuinfo, **env).returncode == 0
    caches = {word for line in builds(tmp_path) for word in line.split() if word.startswith("--cache-dir")}
    assert len(caches) == 5
    assert all(cache.startswith(f"--cache-dir={tmp_path}/cache/localspec/") for cache in caches)
    (tmp_path / ".built").unlink()
    bash("build", tmp_path)
    assert set(builds(tmp_path)[-1].split()) & caches


@pytest.mark.parametrize(
    ("script", "cpuinfo", "env", "expected"),
    [
        ("", AVX2, {}, "system"),
        ("", AMX, {}, "zig"),
        ("compiler=system;", AMX, {}, "system"),
        ("compiler=zig;", AVX2, {}, "zig"),
        ("flags=-DGGML_CUDA=on;", AMX, {}, "system"),
        ("", AMX, {"CXX": "clang++"}, "system"),
    ],
)
def test_the_best_compiler_is_taken(
    tmp_path: Path, script: str, cpuinfo: str, env: dict[str, str], expected: str
) -> None:
    found = bash(f"has_compiler() {{ true; }}\n{script} best_compiler", tmp_path, cpuinfo, **env)
    assert found.stdout.split()[0] == expected


def test_without_a_compiler_zig_is_taken(tmp_path: Path, tools: str) -> None:
    done = bash("build", tmp_path, PATH=tools)
    assert done.returncode == 0, done.stderr
    assert "with zig" in done.stderr
    assert "there is no C++ compiler" in done.stderr
    (line,) = builds(tmp_path)
    assert "scripts/zig-ar" in line, "a machine without a compiler has no ar either"
    assert line.startswith("CXX=zig-c++ ")


@pytest.mark.parametrize(("cpuinfo", "order"), [(AMX, ["zig-c++", "system"]), (AVX2, ["system", "zig-c++"])])
def test_a_build_that_fails_leaves_it_to_the_other_compiler(tmp_path: Path, cpuinfo: str, order: list[str]) -> None:
    done = bash("has_compiler() { true; }\nbuild; build", tmp_path, cpuinfo, FAILS=order[0])
    assert done.returncode == 0, done.stderr
    assert f"That failed: x.cpp:1: error: it is {order[0]}" in done.stderr
    assert [line.split()[0] for line in builds(tmp_path)[:2]] == [f"CXX={name}" for name in order]


def test_where_zig_cannot_be_had_the_system_compiles(tmp_path: Path) -> None:
    done = bash("has_compiler() { true; }\nbuild", tmp_path, AMX, NO_ZIG="1")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in builds(tmp_path)] == ["CXX=system"]


@pytest.mark.parametrize("name", ["system", "zig"])
def test_a_named_compiler_that_fails_is_said_and_tried_again(tmp_path: Path, name: str) -> None:
    for attempt in (1, 2):
        done = bash(f"compiler={name}; build", tmp_path, FAILS="zig-c++ system")
        assert done.returncode == 1
        assert "The installation failed" in done.stderr
        assert len(builds(tmp_path)) == attempt


@pytest.mark.parametrize("name", ["", "gcc"])
def test_unknown_compilers_stop_before_anything_is_installed(name: str) -> None:
    command = [ROOT / "scripts" / "localspec", "--compiler", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "--compiler takes system or zig" in done.stderr


@pytest.mark.parametrize(("name", "words"), [("cc", "cc -g0"), ("c++", "c++ -g0"), ("ar", "ar"), ("ranlib", "ranlib")])
def test_what_is_passed_on_to_zig(name: str, words: str) -> None:
    """Without -g0 zig writes debug information unasked; a -g of the caller comes later and wins."""
    env = {**os.environ, "PYTHON": "echo"}
    done = subprocess.run([ROOT / "scripts" / f"zig-{name}", "-g", "a b"], env=env, capture_output=True, text=True)
    assert done.stdout == f"-I -m ziglang {words} -g a b\n"


GXX = shutil.which("g++")


@pytest.mark.skipif(GXX is None or platform.machine() != "x86_64", reason="needs GCC for x86-64")
def test_all_of_the_configuration_of_amx_tiles_is_stored(tmp_path: Path) -> None:
    """GCC 12.2 alone drops the store of the rows, since it takes the configuration for 8 bytes long."""
    source = tmp_path / "tiles.cpp"
    source.write_text(
        "#include <immintrin.h>\nstruct Tiles { char palette, start, rest[46]; unsigned char rows[16]; };\n"
        "void load(int n) { Tiles tiles = {1}; tiles.rows[12] = n; _tile_loadconfig(&tiles); }\n"
    )
    header = ["-include", str(ROOT / "scripts" / "gcc_amx.h")]
    assert GXX is not None
    command = [GXX, "-O3", "-mamx-tile", "-mavx2", *header, "-S", "-o", "-", str(source)]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "movb\t%dil" in code


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
