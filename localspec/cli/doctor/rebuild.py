"""The line that builds llama-cpp-python for a GPU, in the way this localspec was installed.

pip and uv keep wheels they once built and do not look at CMAKE_ARGS when they find one; so every line here goes past
that cache.
"""

from __future__ import annotations

import contextlib
import json
import platform
import shlex
import shutil
import sys
from pathlib import Path

from localspec import BINDING
from localspec.cli.doctor.gpus import Gpu

FLAGS = {
    "cuda": "-DGGML_CUDA=on",
    "vulkan": "-DGGML_VULKAN=on",
    "metal": "-DGGML_METAL=on",
    "rpc": "-DGGML_RPC=on",
    "native": "-DGGML_NATIVE=on",  # for the processor that builds it
}
BACKENDS = {"NVIDIA": "cuda", "AMD": "vulkan", "Intel": "vulkan", "Apple": "metal"}
WITH = ("rpc", "cuda", "vulkan")  # what scripts/localspec --with knows
COMPILERS = {"cuda": "nvcc", "vulkan": "glslc"}
SOURCES = {
    "nvcc": "the CUDA toolkit",
    "glslc": "the Vulkan SDK (on Debian: apt install libvulkan-dev glslc)",
}


def backend_for(gpu: Gpu) -> str:
    """Return llama.cpp's backend for a GPU."""
    return BACKENDS[gpu.maker]


def rebuild_line(backend: str, *, prefix: Path | None = None, checkout: Path | None = None) -> str:
    """Return the command for `backend`; `prefix` is the Python environment, `checkout` where its scripts/ would be."""
    prefix = prefix or Path(sys.prefix)
    checkout = checkout or Path(__file__).resolve().parents[3]
    if prefix == checkout / ".venv" and (checkout / "scripts" / "localspec").is_file() and backend in WITH:
        return f"./scripts/localspec --with {backend}"
    flags = FLAGS[backend]
    parts = prefix.parts
    if "uv" in parts and "tools" in parts:
        return _with(flags, f"uv tool install --reinstall --no-cache --with '{BINDING}' {_source(prefix)}")
    pip = f"install --no-cache-dir --force-reinstall --no-binary llama-cpp-python '{BINDING}'"
    if "pipx" in parts:
        return _with(flags, f"pipx runpip localspec {pip}")
    return _with(flags, f"{'py' if platform.system() == 'Windows' else sys.executable} -m pip {pip}")


def missing_compiler(backend: str) -> str:
    """Return what a build for `backend` needs and this machine lacks, "" if nothing."""
    tool = COMPILERS.get(backend)
    return "" if tool is None or shutil.which(tool) else f"{tool} is not on the PATH: install {SOURCES[tool]} first"


def _source(prefix: Path) -> str:
    """Return what installs localspec as in `prefix`: from the folder or address it came from, or else by its name."""
    for file in prefix.glob("lib/python*/site-packages/localspec-*.dist-info/direct_url.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return shlex.quote(f"localspec @ {json.loads(file.read_text())['url']}")
    return "localspec"


def _with(flags: str, command: str) -> str:
    if platform.system() == "Windows":
        quoted = command.replace("'", '"')
        return f'$env:CMAKE_ARGS="{flags}"; {quoted}'
    return f"CMAKE_ARGS={flags} {command}"
