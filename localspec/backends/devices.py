"""The devices llama.cpp can compute on, and the memory that is free on them and in this machine.

Also here: how many layers go to a GPU, and how llama.cpp is told which layers go where.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localspec.backends.lib import api, function, ggml
from localspec.backends.options import Placement
from localspec.errors import NotFoundError

ALL_LAYERS = -1
RESERVE = 0.85  # of the free memory: the rest is for the context and llama.cpp's buffers
TYPICAL_LAYERS = 32  # the header is not read yet when this is asked; a wrong guess costs a little speed only
EXPERTS = r"\.ffn_(gate|up|down|gate_up)_(ch)?exps"

_cpu_buffer_type = function(ggml, "ggml_backend_cpu_buffer_type", ctypes.c_void_p)
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
    found = []
    for at in range(_count()):
        handle = _get(at)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _memory(handle, ctypes.byref(free), ctypes.byref(total))
        name, description = _name(handle).decode("utf-8", "replace"), _description(handle).decode("utf-8", "replace")
        kind, registry = _kind(handle), _registry_name(_registry(handle)).decode("utf-8", "replace")
        found.append(
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
    return tuple(found)


def offloading(found: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices that take layers: as in llama.cpp, an integrated GPU only where there is no other."""
    gpus = [device for device in found if device.is_gpu]
    discrete = [device for device in gpus if not (device.is_unified or device.is_remote)]
    return tuple(device for device in gpus if not (discrete and device.is_unified))


def handle_of(name: str) -> int:
    """Return ggml's handle of the device called `name`."""
    handle: int | None = _by_name(name.encode())
    if not handle:
        raise NotFoundError(f"llama.cpp has no device {name!r}", hint="localspec doctor lists the devices")
    return handle


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override: tensors whose name matches go into buffers of this type."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def gpu_layers(setting: str, n_bytes: int, found: Sequence[Device]) -> int:
    """Return llama.cpp's `n_gpu_layers` for `setting` ("auto", "off", "all" or a number) and a file of `n_bytes`.

    For models that are placed without a plan.
    """
    if setting == "off" or not any(device.is_gpu for device in found):
        return 0
    if setting == "all":
        return ALL_LAYERS
    if setting != "auto":
        return int(setting)
    room = RESERVE * sum(device.free for device in found if device.is_gpu)
    return ALL_LAYERS if n_bytes <= room else int(TYPICAL_LAYERS * room / n_bytes)


def place(params: Any, placement: Placement) -> object:
    """Write a placement into llama_model_params; return what must live as long as the model.

    Devices that get nothing are not named, and so take no buffers. llama.cpp splits its layers by shares: whole numbers
    of layers over their sum come out as these numbers.
    """
    handles = (ctypes.c_void_p * (len(placement.devices) + 1))(*map(handle_of, placement.devices), None)
    shares = (ctypes.c_float * api.llama_max_devices())(*placement.counts)
    overrides = (_Override * 2)()  # the last is empty and ends the list
    params.devices = ctypes.cast(handles, ctypes.c_void_p)
    params.tensor_split = ctypes.cast(shares, ctypes.POINTER(ctypes.c_float))
    if placement.cpu_experts:
        layers = "|".join(map(str, range(placement.cpu_experts)))
        overrides[0] = _Override(rf"^blk\.({layers}){EXPERTS}".encode(), _cpu_buffer_type())
        params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    return handles, shares, overrides
