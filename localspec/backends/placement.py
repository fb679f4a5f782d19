"""How many layers go to a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.backends.devices import Device

ALL_LAYERS = -1
RESERVE = 0.85  # of the free memory: the rest is for the context and llama.cpp's buffers
TYPICAL_LAYERS = 32  # the header is not read yet when this is asked; a wrong guess costs a little speed only


def gpu_layers(setting: str, n_bytes: int, found: Sequence[Device]) -> int:
    """Return llama.cpp's `n_gpu_layers` for `setting` ("auto", "off", "all" or a number) and a file of `n_bytes`."""
    if setting == "off" or not any(device.is_gpu for device in found):
        return 0
    if setting == "all":
        return ALL_LAYERS
    if setting != "auto":
        return int(setting)
    room = RESERVE * sum(device.free for device in found if device.is_gpu)
    return ALL_LAYERS if n_bytes <= room else int(TYPICAL_LAYERS * room / n_bytes)
