"""`localspec doctor`: on this machine, on one without llama.cpp, and its parts on machines that are not here."""

import json
import platform
from pathlib import Path

import pytest

from localspec.cli.doctor import command as doctor
from localspec.cli.doctor.command import _devices as devices_found
from localspec.cli.doctor.gpus import Gpu, backend_for, gpus, rebuild_line
from tests.cli.harness import assert_one_line, localspec, run


def test_this_machine() -> None:
    done = run("doctor")
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode()
    for name in ("versions", "engine", "devices", "memory", "figures", "models", "cache", "terminal"):
        assert f" {name}" in text, name


def test_json(tmp_path: Path) -> None:
    wire = json.loads(run("doctor", "--json", env={"LOCALSPEC_HOME": str(tmp_path)}).stdout)
    assert wire["ok"]
    checks = {one["name"]: one for one in wire["checks"]}
    assert checks["engine"]["facts"]["llama_cpp"]
    assert any(one["name"] == "CPU" for one in checks["devices"]["facts"]["devices"])
    assert checks["figures"]["state"] == "note"
    assert checks["figures"]["hint"] == "localspec calibrate --machine"
    assert checks["cache"]["facts"]["path"].startswith(str(tmp_path))
    assert checks["settings"]["facts"] == {"path": str(tmp_path / "config" / "config.toml")}


@pytest.mark.parametrize(
    ("built", "processor", "lacks"),
    [
        ("AVX2", "fpu avx2", ""),
        ("SSE3", "fpu avx2", "the build does not use AVX2 of this processor"),
        ("AVX2", "fpu avx2 avx512f amx_int8", "the build does not use AVX512 and AMX_INT8 of this processor"),
        ("AVX2", "", ""),
    ],
)
def test_a_build_without_the_vectors_of_its_processor_is_told(
    built: str, processor: str, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_processor", processor.split)
    facts = {"rpc": False, "llama_cpp": "1", "gpu_offload": False, "compiler": "clang 22.1.8"}
    found = doctor._engine({"system_info": f"CPU : {built} = 1 | NEON = 0 | ", **facts})
    assert found.state == ("note" if lacks else "ok")
    assert lacks in found.message
    assert "built by clang 22.1.8 with" in found.message
    assert (found.hint == rebuild_line("native")) == bool(lacks)
    assert found.facts["features"] == [built]


def test_the_processor_is_asked_of_linux() -> None:
    if Path("/proc/cpuinfo").is_file() and platform.machine() == "x86_64":
        assert {"fpu", "sse2"} <= set(doctor._processor())


def test_without_llama_cpp(tmp_path: Path) -> None:
    """A library that cannot be imported: said, with the line that mends it, and exit code 3."""
    (tmp_path / "llama_cpp.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    from tests.cli.harness import ROOT

    done = localspec("doctor", "--json", env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert done.returncode == 3
    wire = json.loads(done.stdout)
    assert not wire["ok"]
    (engine,) = [one for one in wire["checks"] if one["name"] == "engine"]
    assert engine["state"] == "broken"
    assert "CUDA libraries are not found" in engine["message"]
    assert engine["hint"] == rebuild_line("native")
    assert {"models", "cache", "terminal"} <= {one["name"] for one in wire["checks"]}


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wire = json.loads(run("doctor", "--json", env={"LOCALSPEC_HOME": str(tmp_path / "file")}).stdout)
    (cache,) = [one for one in wire["checks"] if one["name"] == "cache"]
    assert cache["state"] == "note"
    assert "LOCALSPEC_HOME" in cache["hint"]


def test_models_are_where_the_hub_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the hub's variables moves them; one that it cannot read is told, and the rest is checked."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, below in (("HF_HUB_CACHE", ""), ("HF_HOME", "/hub"), ("XDG_CACHE_HOME", "/huggingface/hub")):
        wire = json.loads(localspec("doctor", "--json", env={name: str(tmp_path)}).stdout)
        (models,) = [one for one in wire["checks"] if one["name"] == "models"]
        assert models["facts"]["path"] == f"{tmp_path}{below}", name
    wire = json.loads(localspec("doctor", "--json", env={"HF_HUB_DOWNLOAD_TIMEOUT": "soon"}).stdout)
    (models,) = [one for one in wire["checks"] if one["name"] == "models"]
    assert "no valid value" in models["message"]
    assert any(one["name"] == "cache" for one in wire["checks"])


def test_servers_are_checked_only_where_named() -> None:
    assert_one_line(run("doctor", "--rpc", "nowhere"), 2, "is not HOST:PORT")
    done = run("doctor", "--rpc", "127.0.0.1:1", "--json")
    (rpc,) = [one for one in json.loads(done.stdout)["checks"] if one["name"] == "rpc"]
    assert rpc["state"] == "broken"
    assert done.returncode in (4, 6)  # not there, or a build without RPC


@pytest.mark.parametrize(
    ("vendor", "found"),
    [("0x10de", "NVIDIA"), ("0x1002", "AMD"), ("0x8086", "Intel"), ("0x1af4", None), ("", None), ("\udcff", None)],
)
def test_gpus_that_the_kernel_drives(tmp_path: Path, vendor: str, found: str | None) -> None:
    device = tmp_path / "card0" / "device"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n", "utf-8", "surrogateescape")
    (device / "device").write_text("0x2684\n")
    (tmp_path / "card0-HDMI-A-1").mkdir()
    (tmp_path / "card1").mkdir()
    makers = [gpu.maker for gpu in gpus(tmp_path)]
    assert (found in makers) == (found is not None)
    assert gpus(tmp_path / "none") == gpus(tmp_path / "none")


NVIDIA, INTEL = Gpu("NVIDIA", "NVIDIA Corporation GA106"), Gpu("Intel", "Intel device 0x46a6")
IRIS, RTX = ("Vulkan0", "Intel(R) Iris(R) Xe Graphics (ADL GT2)"), ("CUDA0", "NVIDIA GeForce RTX 3060")
DEVICES: dict[str, tuple[tuple[Gpu, ...], list[tuple[str, str]], str, str, str]] = {
    "none there": ((), [], "ok", "; no GPU is seen", ""),
    "none usable": ((NVIDIA,), [], "note", "cannot use NVIDIA Corporation GA106", "--with cuda|GGML_CUDA"),
    "all usable": ((NVIDIA,), [RTX], "ok", "RTX 3060", ""),
    "one without a driver": (
        (NVIDIA, INTEL), [IRIS], "note", "cannot use NVIDIA Corporation GA106: Vulkan", "the driver of NVIDIA",
    ),
    "one that another backend can use": (
        (NVIDIA, INTEL), [("SYCL0", "Intel(R) Arc(TM)")], "note", "cannot use NVIDIA", "--with cuda|GGML_CUDA",
    ),
    "the processor's own beside another": ((NVIDIA, INTEL), [RTX], "ok", "cannot use Intel device 0x46a6", ""),
    "of an unknown maker": ((NVIDIA,), [("Vulkan0", "Virtio-GPU Venus")], "ok", "Venus, 1.0 GB free)", ""),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "usable", "state", "words", "hint"), DEVICES.values(), ids=DEVICES)
def test_every_gpu_that_cannot_be_used_is_told(
    seen: tuple[Gpu, ...], usable: list[tuple[str, str]], state: str, words: str, hint: str
) -> None:
    free = {"free": 10**9, "is_remote": False}
    known = [{"name": "CPU", "description": "a processor", "is_gpu": False, **free}]
    known += [{"name": name, "description": text, "is_gpu": True, **free} for name, text in usable]
    (made,) = devices_found({"all": known}, seen)
    assert (made.state, words in made.message) == (state, True), made
    assert any(part in made.hint for part in hint.split("|")), made
    assert bool(made.hint) == bool(hint)


LINES = {
    "a checkout": ("cuda", "{checkout}/.venv", "./scripts/localspec --with cuda"),
    "pipx": (
        "vulkan",
        "/srv/x/.local/share/pipx/venvs/localspec",
        "=-DGGML_VULKAN=on pipx runpip localspec",
    ),
    "native": ("native", "{checkout}/.venv", "./scripts/localspec --compiler zig"),
    "uv": ("rpc", "/srv/x/.local/share/uv/tools/localspec", "CMAKE_ARGS=-DGGML_RPC=on uv tool install --reinstall"),
    "pip": ("cuda", "/opt/env", "-m pip install --no-cache-dir --force-reinstall --no-binary llama-cpp-python"),
}


@pytest.mark.parametrize(("backend", "prefix", "line"), LINES.values(), ids=LINES)
def test_the_line_that_rebuilds(tmp_path: Path, backend: str, prefix: str, line: str) -> None:
    """As this localspec was installed, past the cache of wheels."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "localspec").touch()
    told = rebuild_line(backend, prefix=Path(prefix.format(checkout=tmp_path)), checkout=tmp_path)
    assert line in told


def test_the_line_that_rebuilds_installs_from_where_it_came(tmp_path: Path) -> None:
    """Another package of that name may be in an index."""
    prefix = tmp_path / "uv" / "tools" / "localspec"
    assert rebuild_line("cuda", prefix=prefix).endswith("<0.4' localspec")
    facts = prefix / "lib" / "python3.11" / "site-packages" / "localspec-0.1.0.dist-info" / "direct_url.json"
    facts.parent.mkdir(parents=True)
    facts.write_text('{"dir_info": {}, "url": "file:///srv/my%20clone"}')
    assert rebuild_line("cuda", prefix=prefix).endswith("<0.4' 'localspec @ file:///srv/my%20clone'")


@pytest.mark.parametrize(("maker", "backend"), [("NVIDIA", "cuda"), ("AMD", "vulkan"), ("Apple", "metal")])
def test_what_a_gpu_needs(maker: str, backend: str) -> None:
    assert backend_for(Gpu(maker, "x")) == backend
