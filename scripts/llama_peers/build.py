"""Build llama-server and llama-bench from the sdist of llama-cpp-python, once, in a folder outside the repository."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

TARGETS = ("llama-server", "llama-bench")
OPTIONS = (
    "CMAKE_BUILD_TYPE=Release", "BUILD_SHARED_LIBS=OFF", "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_EXAMPLES=OFF",
    "LLAMA_BUILD_APP=OFF", "LLAMA_BUILD_UI=OFF", "LLAMA_USE_PREBUILT_UI=OFF", "LLAMA_OPENSSL=OFF",
)  # fmt: skip


@dataclass(frozen=True)
class Peers:
    """The two programs."""

    server: Path
    bench: Path


def build(folder: Path, jobs: int) -> Peers:
    """Return the programs below `folder`, after downloading and compiling what is not there; takes minutes once."""
    programs = [folder / "build" / "bin" / name for name in TARGETS]
    if not all(program.exists() for program in programs):
        source = _source(folder)
        options = [f"-D{option}" for option in OPTIONS]
        _run(["cmake", "-S", str(source), "-B", str(folder / "build"), *options])
        _run(["cmake", "--build", str(folder / "build"), f"-j{jobs}", "--target", *TARGETS])
    return Peers(*programs)


def _source(folder: Path) -> Path:
    """Return llama.cpp's source of the version that is installed here."""
    wanted = version("llama-cpp-python")
    unpacked = folder / "source"
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
