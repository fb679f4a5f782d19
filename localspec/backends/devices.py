"""The devices llama.cpp can compute on, and the memory that is free on them and in this machine."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.backends.lib import function, ggml
from localspec.errors import NotFoundError

_count = function(ggml, "ggml_backend_dev_count", ctypes.c_size_t)
_get = function(ggml, "ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
_name = function(ggml, "ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
_description = function(ggml, "ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)
_registry = function(ggml, "ggml_backend_dev_backend_reg", ctypes.c_void_p, ctypes.c_void_p)
_registry_name = function(ggml, "ggml_backend_reg_name", ctypes.c_char_p, ctypes.c_void_p)
_by_name = function(ggml, "ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p)
_kind = function(ggml, "ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)
_memory = function(ggml, "ggml_backend_dev_memory", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

METAL = ("MTL", "Metal")
X86 = ("x86_64", "amd64")  # as platform.machine() says it
GPU, INTEGRATED = 1, 2  # GGML_BACKEND_DEVICE_TYPE_GPU and _IGPU


@dataclass(frozen=True, slots=True)
class Device:
    """A device of ggml: "CPU", "CUDA0"...; `free` bytes of its memory.

    `is_unified`: that is main memory. `is_remote`: it is reached over a network, `description` then says where.
    `is_integrated`: it is in an x86 processor, which has no more than one way to that memory.
    """

    name: str
    description: str
    is_gpu: bool
    free: int
    is_unified: bool = False
    is_remote: bool = False
    is_integrated: bool = False


def devices() -> tuple[Device, ...]:
    """Return what ggml was built for and found, in its order."""
    listed = []
    for at in range(_count()):
        handle = _get(at)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _memory(handle, ctypes.byref(free), ctypes.byref(total))
        name, description = _name(handle).decode("utf-8", "replace"), _description(handle).decode("utf-8", "replace")
        kind, registry = _kind(handle), _registry_name(_registry(handle)).decode("utf-8", "replace")
        listed.append(
            Device(
                name,
                description,
                kind in (GPU, INTEGRATED),
                free.value,
                is_unified=kind == INTEGRATED or (registry in METAL and platform.machine() == "arm64"),
                is_remote=registry == "RPC",
                is_integrated=kind == INTEGRATED and platform.machine().lower() in X86,
            )
        )
    return tuple(listed)


def offloading(candidates: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices that take layers: as in llama.cpp, an integrated GPU only where there is no other."""
    gpus = [device for device in candidates if device.is_gpu]
    discrete = [device for device in gpus if not (device.is_unified or device.is_remote)]
    return tuple(device for device in gpus if not (discrete and device.is_unified))


def handle_of(name: str) -> int:
    handle: int | None = _by_name(name.encode())
    if not handle:
        raise NotFoundError(f"llama.cpp has no device {name!r}", hint="localspec doctor lists the devices")
    return handle
