"""The GPUs that the system names, and the line that builds llama-cpp-python for one, as this localspec was installed.

pip and uv keep wheels they once built and do not look at CMAKE_ARGS when they find one; so every line here goes past
that cache. Nothing here fails.
"""

import contextlib
import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec import BINDING

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
    "glslc": "the Vulkan SDK (on Debian 13: apt install libvulkan-dev glslc spirv-headers)",
}
DRM = Path("/sys/class/drm")
PATIENCE = 5  # seconds for a tool of the system
_MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
INTEGRATED = ("Intel", "AMD")  # makers of processors too, whose own GPU is no reason to rebuild for beside another
_SIGNS = {  # in llama.cpp's names and descriptions of devices, in small letters
    "NVIDIA": ("nvidia", "cuda", "geforce", "tesla", "quadro"),
    "AMD": ("amd", "radeon", "rocm"),
    "Intel": ("intel", "sycl"),
    "Apple": ("apple", "metal", "mtl"),
}
_DISPLAY = re.compile(r"(?:VGA compatible|3D|Display) controller: (.+)")


@dataclass(frozen=True, slots=True)
class Gpu:
    maker: str
    name: str


def gpus(drm: Path = DRM) -> tuple[Gpu, ...]:
    if platform.system() == "Darwin":
        return _of_macos()
    named = _of_nvidia_smi() or _of_lspci()
    makers = {gpu.maker for gpu in named}
    return (*named, *(gpu for gpu in _of_drm(drm) if gpu.maker not in makers))


def unused(seen: Sequence[Gpu], usable: Sequence[str]) -> list[Gpu]:
    """Return those of the makers of which llama.cpp names no device; one whose maker is not known may be any."""
    makers = [
        {maker for maker, signs in _SIGNS.items() if any(sign in name.lower() for sign in signs)} for name in usable
    ]
    return [] if set() in makers else [gpu for gpu in seen if not any(gpu.maker in device for device in makers)]


def _of_nvidia_smi() -> tuple[Gpu, ...]:
    lines = _lines("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    return tuple(Gpu("NVIDIA", line.strip()) for line in lines if line.strip())


def _of_lspci() -> tuple[Gpu, ...]:
    gpus = []
    for line in _lines("lspci"):
        match = _DISPLAY.search(line)
        maker = next((name for name in _MAKERS.values() if match and name.lower() in match[1].lower()), None)
        if match and maker:
            gpus.append(Gpu(maker, match[1].strip()))
    return tuple(gpus)


def _of_drm(drm: Path) -> tuple[Gpu, ...]:
    """Return what the kernel drives; it gives numbers and no names."""
    gpus: dict[str, Gpu] = {}
    try:
        cards = sorted(path for path in drm.iterdir() if re.fullmatch(r"card\d+", path.name))
    except OSError:
        return ()
    for card in cards:
        try:
            vendor, device = ((card / "device" / name).read_text("ascii").strip() for name in ("vendor", "device"))
        except (OSError, UnicodeDecodeError):
            continue
        if vendor in _MAKERS:
            gpus.setdefault(f"{vendor}:{device}", Gpu(_MAKERS[vendor], f"{_MAKERS[vendor]} device {device}"))
    return tuple(gpus.values())


def _of_macos() -> tuple[Gpu, ...]:
    chip = next(iter(_lines("sysctl", "-n", "machdep.cpu.brand_string")), "")
    return (Gpu("Apple", chip.strip() or "Apple GPU"),) if platform.machine() == "arm64" or "Apple" in chip else ()


def _lines(*command: str) -> Sequence[str]:
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return done.stdout.decode("utf-8", "replace").splitlines() if done.returncode == 0 else ()


def backend_for(gpu: Gpu) -> str:
    return BACKENDS[gpu.maker]


def rebuild_line(backend: str, *, prefix: Path | None = None, checkout: Path | None = None) -> str:
    """Return the command for `backend`; `prefix` is the Python environment, `checkout` where its scripts/ would be."""
    prefix = prefix or Path(sys.prefix)
    checkout = checkout or Path(__file__).resolve().parents[3]
    if prefix == checkout / ".venv" and (checkout / "scripts" / "localspec").is_file() and backend in (*WITH, "native"):
        return f"./scripts/localspec {'--compiler zig' if backend == 'native' else f'--with {backend}'}"
    flags = f"CMAKE_ARGS={FLAGS[backend]}"
    parts = prefix.parts
    if "uv" in parts and "tools" in parts:
        return f"{flags} uv tool install --reinstall --no-cache --with '{BINDING}' {_source(prefix)}"
    pip = f"install --no-cache-dir --force-reinstall --no-binary llama-cpp-python '{BINDING}'"
    if "pipx" in parts:
        return f"{flags} pipx runpip localspec {pip}"
    return f"{flags} {sys.executable} -m pip {pip}"


def missing_compiler(backend: str) -> str:
    tool = COMPILERS.get(backend)
    return "" if tool is None or shutil.which(tool) else f"{tool} is not on the PATH: install {SOURCES[tool]} first"


def _source(prefix: Path) -> str:
    for file in prefix.glob("lib/python*/site-packages/localspec-*.dist-info/direct_url.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return shlex.quote(f"localspec @ {json.loads(file.read_text())['url']}")
    return "localspec"
