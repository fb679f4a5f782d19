"""llama.cpp's quantiser: another file of a model, in fewer bits, perhaps without some of its layers."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from localspec.backends.importance import Matrix
from localspec.backends.lib import LOG, api

_AT = re.compile(r"\[ *(\d+)/ *(\d+)\]")  # "[  12/ 291]" of each tensor in the log
_SIZE = re.compile(r"quant size += +([\d.]+) MiB")
_KEY = 127  # bytes of a key, and of a text


@dataclass(frozen=True, slots=True)
class QuantiseRecipe:
    """What is written: llama.cpp's mix `kind` (Q2_K, Q3_K_S...), other types of tensors whose name a pattern finds.

    `dropped` are the layers that are left out, `texts` go into the file's metadata.
    """

    kind: str
    others: tuple[tuple[str, str], ...] = ()
    dropped: tuple[int, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    threads: int = 0


def quantise(
    source: Path, target: Path, recipe: QuantiseRecipe, matrix: Matrix, on_progress: Callable[[float], None]
) -> int | None:
    """Write `target`; return its size in bytes as llama.cpp counts it, None where it could not write the file."""
    held: list[Any] = []  # what llama.cpp points to until it returns
    params = _params(recipe, matrix, held)
    LOG.clear()
    with LOG.forwarding(lambda line: _progress(line, on_progress)):
        code = api.llama_model_quantize(os.fsencode(source), os.fsencode(target), params)
    return None if code else _logged_size()


def size_of(source: Path, recipe: QuantiseRecipe, matrix: Matrix) -> int | None:
    """Return the bytes that a file would have, None where llama.cpp cannot make it. Nothing is written."""
    held: list[Any] = []
    params = _params(recipe, matrix, held)
    params.dry_run = True
    LOG.clear()
    code = api.llama_model_quantize(os.fsencode(source), os.fsencode(source.with_suffix(".none")), params)
    return None if code else _logged_size()


def _params(recipe: QuantiseRecipe, matrix: Matrix, held: list[Any]) -> Any:
    params = api.llama_model_quantize_default_params()
    params.nthread = recipe.threads
    params.ftype = getattr(api, f"LLAMA_FTYPE_MOSTLY_{recipe.kind}")
    params.allow_requantize = True
    if matrix:
        params.imatrix = _matrix(matrix, held)
    if recipe.others:
        params.tt_overrides = _types(recipe.others, held)
    if recipe.texts:
        params.kv_overrides = _texts(recipe.texts, held)
    if recipe.dropped:
        indices = (ctypes.c_int32 * (len(recipe.dropped) + 1))(*sorted(recipe.dropped), -1)
        held.append(indices)
        params.prune_layers = ctypes.cast(indices, type(params.prune_layers))
    return params


def _matrix(matrix: Matrix, held: list[Any]) -> Any:
    """Return the entries, ended by an empty one."""
    entries = (api.llama_model_imatrix_data * (len(matrix) + 1))()
    for entry, (name, values) in zip(entries, matrix.items(), strict=False):
        row = np.ascontiguousarray(values, np.float32)
        held.append(row)
        entry.name, entry.size = name.encode(), len(row)
        entry.data = row.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    held.append(entries)
    return entries


def _types(others: Sequence[tuple[str, str]], held: list[Any]) -> Any:
    entries = (api.llama_model_tensor_override * (len(others) + 1))()
    for entry, (pattern, kind) in zip(entries, others, strict=False):
        entry.pattern, entry.type = pattern.encode(), getattr(api, f"GGML_TYPE_{kind}")
    held.append(entries)
    return entries


def _texts(texts: Mapping[str, str], held: list[Any]) -> Any:
    entries = (api.llama_model_kv_override * (len(texts) + 1))()
    for entry, (key, text) in zip(entries, texts.items(), strict=False):
        entry.tag = api.LLAMA_KV_OVERRIDE_TYPE_STR
        entry.key, entry.value.val_str = key.encode()[:_KEY], text.encode()[:_KEY]
    held.append(entries)
    return entries


def _progress(line: str, on_progress: Callable[[float], None]) -> None:
    match = _AT.match(line.strip())
    if match and int(match[2]):
        on_progress(int(match[1]) / int(match[2]))


def _logged_size() -> int | None:
    matches = [_SIZE.search(line) for line in LOG.lines]
    sizes = [float(match[1]) for match in matches if match]
    return round(sizes[-1] * 2**20) if sizes else None
