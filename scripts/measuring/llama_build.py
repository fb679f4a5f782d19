"""Build llama-server and llama-bench from the sdist of llama-cpp-python, once, in a folder outside the repository."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

TARGETS = ("llama-server", "llama-bench")
OPTIONS = (
    "CMAKE_BUILD_TYPE=Release", "BUILD_SHARED_LIBS=OFF", "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_EXAMPLES=OFF",
    "LLAMA_BUILD_APP=OFF", "LLAMA_BUILD_UI=OFF", "LLAMA_USE_PREBUILT_UI=OFF", "LLAMA_OPENSSL=OFF",
)  # fmt: skip
X86 = {  # llama.cpp's build options, and how its system information calls them
    "SSE42": "SSE3", "AVX": "AVX", "AVX2": "AVX2", "FMA": "FMA", "F16C": "F16C", "BMI2": "BMI2",
    "AVX_VNNI": "AVX_VNNI", "AVX512": "AVX512", "AVX512_VBMI": "AVX512_VBMI", "AVX512_VNNI": "AVX512_VNNI",
    "AVX512_BF16": "AVX512_BF16", "AMX_TILE": "AMX_INT8", "AMX_INT8": "AMX_INT8", "AMX_BF16": "AMX_BF16",
}  # fmt: skip


def build(folder: Path, jobs: int) -> tuple[Path, Path]:
    """Return llama-server and llama-bench of the llama.cpp that is installed here, below `folder`.

    What is not there is downloaded and compiled, which takes minutes; other versions keep folders of their own.
    """
    wanted = version("llama-cpp-python")
    below = folder / f"build-{wanted}"
    programs = [below / "bin" / name for name in TARGETS]
    if not all(program.exists() for program in programs):
        source = _source(folder, wanted)
        options = [f"-D{option}" for option in (*OPTIONS, *features())]
        _run(["cmake", "-S", str(source), "-B", str(below), *options])
        _run(["cmake", "--build", str(below), f"-j{jobs}", "--target", *TARGETS])
    server, bench = programs
    return server, bench


def features() -> list[str]:
    """Return the options that give the instruction sets of the llama.cpp that is installed, so that kernels are equal.

    A build for the very processor may differ, and has crashed: virtual machines report AMX and do not grant it.
    """
    import llama_cpp

    info = llama_cpp.llama_print_system_info().decode()
    has = {
        name.strip(): value.strip() == "1"
        for name, _, value in (part.partition("=") for part in re.split(r"[|:]", info))
    }
    if not has.get("AVX"):
        return []  # no x86: what the compiler finds is what both have
    return [
        "GGML_NATIVE=OFF",
        *(f"GGML_{name}={'ON' if has.get(info_name) else 'OFF'}" for name, info_name in X86.items()),
    ]


def _source(folder: Path, wanted: str) -> Path:
    """Return llama.cpp's source as it comes with that version of llama-cpp-python."""
    unpacked = folder / f"source-{wanted}"
    if not unpacked.exists():
        archive = folder / f"llama_cpp_python-{wanted}.tar.gz"
        folder.mkdir(parents=True, exist_ok=True)
        if not archive.exists():
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-d", str(folder)]
            _run([*pip, f"llama-cpp-python=={wanted}"])
        with tarfile.open(archive) as tar:
            tar.extractall(folder / "unpacking", filter="data")
        (inner,) = (folder / "unpacking").iterdir()
        inner.rename(unpacked)
    return unpacked / "vendor" / "llama.cpp"


def _run(command: list[str]) -> None:
    print("+", " ".join(command), file=sys.stderr, flush=True)
    subprocess.run(command, check=True, stdout=sys.stderr)
