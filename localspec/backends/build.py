"""What this installation of llama.cpp is and can do, for `--version`."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.backends.devices import devices
from localspec.backends.lib import BINDING_VERSION, api


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
