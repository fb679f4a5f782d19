"""Tiny random models, changed copies of models, and shapes of trees, for tests on the real llama.cpp."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from localspec.backends.llama_cpp import LoadOptions
from tests.weights.random_gguf import Shape, write_random_gguf
from tests.weights.read_gguf import read_gguf

TINY = Shape(vocab=512, width=64, layers=3, heads=4, kv_heads=2, ff=128, ctx=1024, quant="F32")
MAMBA = Shape(arch="mamba", vocab=512, width=64, layers=2, ctx=1024, quant="F32")
JAMBA = Shape(arch="jamba", vocab=512, width=64, layers=2, heads=4, kv_heads=2, ff=128, ctx=1024, quant="F32")
SLIDING = Shape(arch="gemma3", vocab=512, width=64, layers=6, heads=4, kv_heads=2, ff=128, window=16, quant="F32")

# With F32 cells and without flash attention, float noise is only the order of sums.
EXACT = LoadOptions(threads=1, kv_type="f32", flash_attn="off", n_ctx=512, n_batch=64)

STORYTELLER = Path(__file__).parents[2] / "models" / "storyteller"

_FOLDER = TemporaryDirectory(prefix="localspec-models-")


@cache
def random_gguf(shape: Shape = TINY, seed: int = 0) -> Path:
    """Return a random model of `shape`, written once per test run."""
    name = f"{shape.arch}-{shape.vocab}-{shape.width}-{shape.layers}-{shape.experts}-{shape.quant}-{seed}.gguf"
    return write_random_gguf(Path(_FOLDER.name) / name, shape, seed)


def copied(
    source: Path,
    path: Path,
    changes: Mapping[str, Callable[[Any], Any]],
    *,
    numbers: Mapping[str, int] | None = None,
    without: Collection[str] = (),
    template: str = "",
    texts: Mapping[str, str] | None = None,
    tensors: Mapping[str, NDArray[np.float32]] | None = None,
) -> Path:
    """Write the llama model `source` again: values changed by key, more of three kinds, no keys `without`.

    A `template` is a chat template for a model that has none.
    """
    reader, writer = read_gguf(source), gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", *without):
            continue
        kind, value = field.types[0], field.contents()
        if field.name in changes:
            value = changes[field.name](value)
        writer.add_key_value(field.name, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for key, number in (numbers or {}).items():
        writer.add_uint32(key, number)
    for key, text in (texts or {}).items():
        writer.add_string(key, text)
    if template:
        writer.add_chat_template(template)
    for name, data in (tensors or {}).items():
        writer.add_tensor(name, data)
    for item in reader.tensors:
        writer.add_tensor(item.name, item.data, raw_dtype=item.tensor_type)
    return written(writer, path)


def written(writer: gguf.GGUFWriter, path: Path) -> Path:
    """Write what was added to `writer` into its file, which is at `path`; return that."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def never() -> bool:
    return False


def path_to(parents: Sequence[int], node: int) -> tuple[int, ...]:
    """Return the nodes from the first level of a tree down to `node`; () for -1."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return tuple(reversed(path))


def full_tree(width: int, depth: int) -> list[int]:
    """Return the parents, level by level, of a tree whose every inner node has `width` children."""
    parents: list[int] = []
    level = [-1]
    for _ in range(depth):
        start = len(parents)
        parents += [parent for parent in level for _ in range(width)]
        level = list(range(start, len(parents)))
    return parents


def levels(parents: Sequence[int]) -> list[list[int]]:
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return [[node for node, at in enumerate(depths) if at == depth] for depth in range(max(depths) + 1)]


TREES: dict[str, list[int]] = {
    "one": [-1],
    "chain": [-1, 0, 1, 2, 3],
    "long chain": list(range(-1, 39)),
    "siblings": [-1, -1, -1],
    "fork at the root": [-1, 0, 0],
    "fork at the end": [-1, 0, 1, 1, 1, 1],
    "binary": full_tree(2, 3),
    "ternary": full_tree(3, 2),
    "wide": [-1, 0, 0, 0, 0],
    "comb": [-1, 0, 0, 1, 1, 3, 3, 5, 5, 7, 7],
    "depth first": [-1, 0, 1, 2, 1, 0, 5, 6, -1, 8],
    "sixteen": [-1, 0, 0, 0, 0, 1, 1, 2, 2, 3, 5, 5, 6, 10, 10, 12],
    "forest": [-1, -1, 0, 1, 0, 1, 2, 3],
}
