"""Whether llama.cpp's AMX kernels work, found out by trying, since the wrong answer ends the process.

GCC before 11.5, 12.4 and 13.3 leaves out the stores to the tile configuration that ggml loads (its own bug 114098), and
some virtual machines announce AMX without letting it be used. Either way the first matrix product dies of SIGSEGV or
SIGILL. A child process tries it on a tiny model; the answer is kept for as long as library and kernel are the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import signal
import subprocess
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path

from localspec import BINDING
from localspec.backends.lib import api
from localspec.settings.folders import cache_folder
from localspec.settings.stores import read_stored, write_stored

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


@cache
def is_amx_broken() -> bool:
    """Return whether this build of llama.cpp uses AMX and dies of it on this machine."""
    if b"AMX_INT8 = 1" not in api.llama_print_system_info():
        return False
    note = cache_folder("amx") / f"{_identity()}.json"
    noted = read_stored(note, dict[str, bool])
    if noted and "is_broken" in noted:
        return noted["is_broken"]
    is_broken = _dies()
    if is_broken is None:
        return False
    with contextlib.suppress(OSError):  # a read-only cache: tried again next time
        write_stored(note, {"is_broken": is_broken})
    return is_broken


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
    libraries = sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in folder.glob("*ggml-cpu*"))
    facts = (str(folder), libraries, platform.release(), platform.processor() or platform.machine())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
