"""Facts about the build of llama.cpp and this machine: for `--version`, for plans and for `localspec doctor`."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.backends.devices import devices, offloading
from localspec.backends.lib import BINDING_VERSION, api
from localspec.backends.limits import available_memory, physical_cores
from localspec.backends.rpc import add_servers, has_rpc


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
    all_devices = devices()
    layers = offloading(all_devices)
    return {
        **dataclasses.asdict(build_info()),
        "compiler": compiler(),
        "rpc": has_rpc(),
        "all": [{**dataclasses.asdict(device), "takes_layers": device in layers} for device in all_devices],
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
            if match := re.search(rb"(GCC): \([^)\0]*\) ([\d.]+)|(clang) version ([\d.]+)", code):
                return b" ".join(filter(None, match.groups())).decode()
            if b"NSt3__1" in code:
                return "clang, as zig's"
    return ""
