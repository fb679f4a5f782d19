"""`localspec --version`: what is installed, and what llama.cpp can offload to."""

import dataclasses

from localspec import __version__
from localspec.errors import LocalspecError
from localspec.settings.lone_jobs import BuildFacts
from localspec.worker.lone_jobs import Unanswered, ask


@dataclasses.dataclass(frozen=True, slots=True)
class EngineFacts:
    llama_cpp: str = ""
    gpu: str = ""
    reason: str = ""
    binding: str = ""


def binding_version() -> str:
    from importlib import metadata  # late: llama.cpp's process knows it, too

    try:
        return metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        return "not installed"


def version_line() -> str:
    engine = ask_engine()
    binding = engine.binding or binding_version()
    tail = f"not available ({engine.reason})" if engine.reason else f"{engine.llama_cpp} · GPU: {engine.gpu}"
    separator = ": " if engine.reason else " "
    return f"localspec {__version__} · llama-cpp-python {binding} · llama.cpp{separator}{tail}"


def ask_engine() -> EngineFacts:
    try:
        facts = ask(BuildFacts())
        gpus = [name for name in facts["devices"] if not name.startswith("CPU")]
        gpu = ", ".join(gpus) if facts["gpu_offload"] and gpus else "none"
        return EngineFacts(str(facts["llama_cpp"]), gpu, binding=str(facts["llama_cpp_python"]))
    except Unanswered as error:
        return EngineFacts(reason=error.reason)
    except LocalspecError as error:
        return EngineFacts(reason=error.message)
    except (KeyError, TypeError) as error:
        return EngineFacts(reason=type(error).__name__)
