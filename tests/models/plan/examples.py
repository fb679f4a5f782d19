"""Real shapes and machines to place them on; figures are given, as with `localspec plan --bandwidth`."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from localspec.models.gguf.header import read_header
from localspec.models.gguf.layer_sizes import Anatomy, anatomy
from localspec.models.plan.machine import Rates, flat
from localspec.models.plan.models import Models
from tests.models.hollow import LLAMA_1B, LLAMA_8B, LLAMA_70B, QWEN3_30B_A3B, Hollow, write

GIB = 2**30


def gbps(figure: float) -> Rates:
    return flat(figure * 1e9, "given")


@cache
def parts(shape: Hollow) -> Anatomy:
    with TemporaryDirectory() as folder:
        return anatomy(read_header(write(Path(folder) / "m.gguf", shape)))


def pair(target: Hollow, draft: Hollow | None) -> Models:
    return Models(parts(target), None if draft is None else parts(draft), 131_072, 131_072)


def of_70b() -> Models:
    return pair(LLAMA_70B, LLAMA_1B)


def of_8b() -> Models:
    return pair(LLAMA_8B, LLAMA_1B)


def of_experts() -> Models:
    return pair(QWEN3_30B_A3B, LLAMA_1B)
