"""`localspec --version`: what is installed, and what llama.cpp can offload to."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from importlib import metadata

from localspec import __version__

_ASK = """
import dataclasses, json
from localspec.backends.build import build_info
print(json.dumps(dataclasses.asdict(build_info())))
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Engine:
    """What is known of llama.cpp; `reason` says why it cannot be loaded."""

    llama_cpp: str = ""
    gpu: str = ""
    reason: str = ""


def version_line() -> str:
    """Return the line of versions."""
    try:
        binding = metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        binding = "not installed"
    engine = ask_engine()
    tail = f"not available ({engine.reason})" if engine.reason else f"{engine.llama_cpp} · GPU: {engine.gpu}"
    separator = ": " if engine.reason else " "
    return f"localspec {__version__} · llama-cpp-python {binding} · llama.cpp{separator}{tail}"


def ask_engine() -> Engine:
    """Ask llama.cpp in a process of its own: loading it may print, crash, or need a library that is not there."""
    command = [sys.executable, "-P", "-c", _ASK]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        facts = json.loads(done.stdout.splitlines()[-1])
        gpus = [name for name in facts["devices"] if not name.startswith("CPU")]
        return Engine(str(facts["llama_cpp"]), ", ".join(gpus) if facts["gpu_offload"] and gpus else "none")
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        return Engine(reason=lines[-1] if lines else f"status {error.returncode}")
    except (OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired) as error:
        return Engine(reason=type(error).__name__)
