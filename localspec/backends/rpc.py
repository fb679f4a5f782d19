"""Devices of other machines through ggml's RPC backend, where llama.cpp was built with it.

The backend aborts the process when a server does not answer, so each is first asked for a connection, with a limit.
The protocol has neither authentication nor encryption.
"""

from __future__ import annotations

import ctypes
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from localspec.backends.devices import devices, handle_of
from localspec.backends.lib import api, function, ggml
from localspec.backends.limits import physical_cores
from localspec.errors import IncompatibleError, NetworkError, UsageError

CONNECT = 5.0  # seconds
PR_SET_PDEATHSIG = 1
_START = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
REBUILD = "./scripts/localspec --with rpc, or CMAKE_ARGS=-DGGML_RPC=on with pip install (see: localspec doctor)"

_registry_by_name = function(ggml, "ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)
_procedure = function(ggml, "ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_register = function(ggml, "ggml_backend_register", None, ctypes.c_void_p)

_added: set[str] = set()  # ggml's list of devices is one per process and only grows


def has_rpc() -> bool:
    return bool(api.llama_supports_rpc())


def add_servers(endpoints: Sequence[str]) -> None:
    """Make the devices of these servers ("host:port") devices of this process.

    Raises IncompatibleError for a build without RPC, UsageError for a malformed endpoint, and NetworkError for a server
    that cannot be reached.
    """
    new = [endpoint for endpoint in dict.fromkeys(endpoints) if endpoint not in _added]
    if not new:
        return
    _require()
    for endpoint in new:
        _connect(endpoint)
    add = _function("ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p)
    for endpoint in new:
        registry = add(endpoint.encode())
        if not registry:
            raise NetworkError(f"the RPC server {endpoint} has no device", hint="localspec rpc-serve, on that machine")
        _register(registry)
        _added.add(endpoint)


def serving(endpoint: str, names: Sequence[str] = (), threads: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the devices that will be served at `endpoint`, then serve them until the process ends.

    `names` are GPUs where there are any, else the CPU. Raises IncompatibleError, NotFoundError for a device that is not
    there, and NetworkError for an address that is taken or not this machine's.
    """
    _require()
    host, port = split_endpoint(endpoint)
    by_name = {device.name: device for device in devices()}
    if not names:
        names = [name for name, device in by_name.items() if device.is_gpu] or ["CPU"]
    handles = (ctypes.c_void_p * len(names))(*map(handle_of, names))
    _check_free(host, port)
    yield {
        "endpoint": endpoint,
        "devices": [{"name": n, "description": by_name[n].description, "free": by_name[n].free} for n in names],
    }
    die_with_parent()
    start = _function("ggml_backend_rpc_start_server", None, *_START)
    start(endpoint.encode(), None, threads or physical_cores(), len(names), ctypes.cast(handles, ctypes.c_void_p))
    raise NetworkError(f"ggml's RPC server at {endpoint} ended", hint="localspec rpc-serve --port with another number")


def die_with_parent() -> None:
    """Ask Linux to end this process with the one that started it: the server would go on without it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _check_free(host: str, port: int) -> None:
    """Raise NetworkError where the address cannot be listened at: ggml's server ends without a message."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NetworkError(
            f"cannot serve at {host}:{port}: {reason}", hint="another --port, or an address of this machine for --host"
        ) from error


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Return host and port of "host:port"; raises UsageError."""
    host, colon, port = endpoint.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 2**16):
        raise UsageError(f"{endpoint!r} is not HOST:PORT", hint="--rpc 192.168.1.20:50052")
    return host, int(port)


def _connect(endpoint: str) -> None:
    host, port = split_endpoint(endpoint)
    try:
        socket.create_connection((host, port), CONNECT).close()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NetworkError(
            f"the RPC server {endpoint} cannot be reached: {reason}",
            hint=f"on that machine: localspec rpc-serve --port {port}; localspec doctor --rpc {endpoint} checks it",
            detail={"endpoint": endpoint},
        ) from error


def _require() -> None:
    if not has_rpc():
        raise IncompatibleError("this build of llama.cpp has no RPC backend", hint=REBUILD)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    registry = _registry_by_name(b"RPC")
    address = _procedure(registry, name.encode()) if registry else None
    if not address:
        raise IncompatibleError(f"this build of llama.cpp has no {name}", hint=REBUILD)
    return ctypes.CFUNCTYPE(result, *arguments)(address)
