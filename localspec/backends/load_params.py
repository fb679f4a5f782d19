"""How a load says to llama.cpp which layers go where. `models/plan/layout_search.py` decides it, if there is a plan."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from localspec.backends.devices import Device, handle_of
from localspec.backends.lib import api, function, ggml
from localspec.backends.options import Placement

ALL_LAYERS = -1
RESERVE = 0.85  # of the free memory: the rest is for the context and llama.cpp's buffers
TYPICAL_LAYERS = 32  # the header is not read yet when this is asked; a wrong guess costs a little speed only
EXPERTS = r"\.ffn_(gate|up|down|gate_up)_(ch)?exps"

_cpu_buffer_type = function(ggml, "ggml_backend_cpu_buffer_type", ctypes.c_void_p)


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override: tensors whose name matches go into buffers of this type."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def gpu_layers(setting: str, n_bytes: int, devices: Sequence[Device]) -> int:
    """Return llama.cpp's `n_gpu_layers` for `setting` ("auto", "off", "all" or a number) and a file of `n_bytes`.

    For models that are placed without a plan.
    """
    if setting == "off" or not any(device.is_gpu for device in devices):
        return 0
    if setting == "all":
        return ALL_LAYERS
    if setting != "auto":
        return int(setting)
    room = RESERVE * sum(device.free for device in devices if device.is_gpu)
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
