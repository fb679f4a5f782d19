"""Facts about the build of llama.cpp and this machine: for `--version`, for plans and for `localspec doctor`.

Also here: whether llama.cpp's AMX kernels work, found out by trying, since the wrong answer ends the process.

GCC before 11.5, 12.4 and 13.3 leaves out the stores to the tile configuration that ggml loads (its own bug 114098), and
some virtual machines announce AMX without letting it be used. Either way the first matrix product dies of SIGSEGV or
SIGILL. A child process tries it on a tiny model; the answer is kept for as long as library and kernel are the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from localspec import BINDING
from localspec.backends.devices import devices, offloading
from localspec.backends.lib import BINDING_VERSION, api
from localspec.backends.limits import available_memory, physical_cores
from localspec.backends.rpc import add_servers, has_rpc
from localspec.settings.folders import cache_folder

FLAGS = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
_PIP = f"{sys.executable} -m pip install --force-reinstall --no-deps --no-cache-dir '{BINDING}'"
WITHOUT_AMX = f'CFLAGS="{FLAGS}" CXXFLAGS="{FLAGS}" {_PIP}'
CRASHES = (signal.SIGSEGV, signal.SIGILL, signal.SIGBUS)
_TRY = """
import sys
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.options import LoadOptions
with Model(sys.argv[1], LoadOptions(n_ctx=64, threads=2, gpu="off", repack=True)) as model:
    LlamaBackend(model).prefill(list(range(40)), lambda: False)
"""


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """Versions of the binding and of llama.cpp, and what it was built to compute on."""

    llama_cpp_python: str
    llama_cpp: str
    gpu_offload: bool
    devices: tuple[str, ...]
    system_info: str


def build_info() -> BuildInfo:
    """Return the facts; loads no model."""
    return BuildInfo(
        llama_cpp_python=BINDING_VERSION,
        llama_cpp=api.llama_version().decode(),
        gpu_offload=bool(api.llama_supports_gpu_offload()),
        devices=tuple(f"{device.name} ({device.description})" for device in devices()),
        system_info=api.llama_print_system_info().decode("utf-8", "replace").strip(),
    )


def machine_facts(servers: Sequence[str] = ()) -> dict[str, Any]:
    """Return a JSON object: versions, what llama.cpp was built with, devices with free memory, cores, main memory.

    Devices of the RPC `servers` count; raises what `add_servers` does.
    """
    add_servers(servers)
    found = devices()
    layers = offloading(found)
    return {
        **dataclasses.asdict(build_info()),
        "compiler": compiler(),
        "rpc": has_rpc(),
        "all": [{**dataclasses.asdict(device), "takes_layers": device in layers} for device in found],
        "cores": physical_cores(),
        "ram": available_memory(),
    }


def compiler() -> str:
    """Return the compiler of llama.cpp as its files name it, such as "GCC 12.2.0"; "" where they do not.

    zig's clang leaves no name, but its C++ library.
    """
    for name in ("libggml-cpu.so", "libllama.so"):
        with contextlib.suppress(OSError):
            code = (Path(api._lib._name).parent / name).read_bytes()
            if found := re.search(rb"(GCC): \([^)\0]*\) ([\d.]+)|(clang) version ([\d.]+)", code):
                return b" ".join(filter(None, found.groups())).decode()
            if b"NSt3__1" in code:
                return "clang, as zig's"
    return ""


@cache
def is_amx_broken() -> bool:
    """Return whether this build of llama.cpp uses AMX and dies of it on this machine."""
    if b"AMX_INT8 = 1" not in api.llama_print_system_info():
        return False
    note = cache_folder("amx") / f"{_identity()}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return bool(json.loads(note.read_text(encoding="utf-8"))["is_broken"])
    found = _dies()
    if found is None:
        return False
    with contextlib.suppress(OSError):  # a read-only cache: tried again next time
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({"is_broken": found}), encoding="utf-8")
    return found


def _dies() -> bool | None:
    """Run the trial; None where it found nothing out: it could not run, or was ended by somebody else."""
    model = Path(str(files("localspec.models"))) / "storyteller" / "draft-q8_0.gguf"
    command = [sys.executable, "-P", "-c", _TRY, str(model)]
    try:
        status = subprocess.run(command, capture_output=True, timeout=60).returncode
    except (OSError, subprocess.TimeoutExpired):
        return None
    return True if -status in CRASHES else False if status == 0 else None


def _identity() -> str:
    """Return what the answer depends on, as a file name: the library's files, the kernel and the processor."""
    folder = Path(str(files("llama_cpp"))) / "lib"
    libraries = sorted((one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in folder.glob("*ggml-cpu*"))
    facts = (str(folder), libraries, platform.release(), platform.processor() or platform.machine())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
