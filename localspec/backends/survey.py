"""What this machine offers, in one object: for plans and for `localspec doctor`, asked in a process of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from localspec.backends.build import build_info
from localspec.backends.cpus import physical_cores
from localspec.backends.devices import available_memory, devices, offloading
from localspec.backends.rpc import add_servers, has_rpc


def survey(servers: Sequence[str] = ()) -> dict[str, Any]:
    """Return a JSON object: versions, what llama.cpp was built with, devices with free memory, cores, main memory.

    Devices of the RPC `servers` count; raises what `add_servers` does.
    """
    add_servers(servers)
    found = devices()
    layers = offloading(found)
    return {
        **dataclasses.asdict(build_info()),
        "rpc": has_rpc(),
        "all": [{**dataclasses.asdict(device), "takes_layers": device in layers} for device in found],
        "cores": physical_cores(),
        "ram": available_memory(),
    }
