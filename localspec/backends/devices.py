"""The devices llama.cpp can compute on, and the memory that is free on them and in this machine."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from localspec.backends.lib import function, ggml

_count = function(ggml, "ggml_backend_dev_count", ctypes.c_size_t)
_get = function(ggml, "ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
_name = function(ggml, "ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
_description = function(ggml, "ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)
_kind = function(ggml, "ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)
_memory = function(ggml, "ggml_backend_dev_memory", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

GPU_KINDS = (1, 2)  # GGML_BACKEND_DEVICE_TYPE_GPU and _IGPU


@dataclass(frozen=True, slots=True)
class Device:
    """A device of ggml: "CPU", "CUDA0"...; `free` bytes of its memory."""

    name: str
    description: str
    is_gpu: bool
    free: int


def devices() -> tuple[Device, ...]:
    """Return what ggml was built for and found, in its order."""
    found = []
    for at in range(_count()):
        handle = _get(at)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _memory(handle, ctypes.byref(free), ctypes.byref(total))
        name, description = _name(handle).decode("utf-8", "replace"), _description(handle).decode("utf-8", "replace")
        found.append(Device(name, description, _kind(handle) in GPU_KINDS, free.value))
    return tuple(found)


def available_memory() -> int | None:
    """Return the bytes of main memory this process could still take; None where the system does not say."""
    limits = [limit for limit in (_meminfo(), _cgroup_room()) if limit is not None]
    if limits:
        return min(limits)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _cgroup_room() -> int | None:
    """Return what the control group's limit leaves; page cache of the group counts as used, so this is cautious."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        return int(limit) - int((group / "memory.current").read_text()) if limit.isdecimal() else None
    except OSError:
        return None
