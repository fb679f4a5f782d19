"""A model's own early exit as a file: the chosen layers with the final norm and the head, made once and kept.

LayerSkip (arXiv 2404.16710) drafts with the first E layers, Draft & Verify (arXiv 2309.08168) with any set of them.
llama.cpp's quantiser copies a model without the layers that are named to it. It rewrites the layer count and nothing
else, so a model whose header says more of single layers, or whose layers are not alike, is refused.

Invariant: a file of this cache is whole or not there. It is written beside its place and renamed; one lock per folder
lets one process write at a time, so what an interrupted one left is known to be nobody's and is removed. What stays
of whole files, `derived_files` decides.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from localspec.errors import IncompatibleError, InternalError, ResourceError
from localspec.models.derived_files import identity, in_use, is_whole, made, require_space, unwritable
from localspec.models.gguf.header import Header
from localspec.sanitize import shown
from localspec.settings.stores import read_stored, write_stored

Layers = tuple[int, ...]  # indices of the layers that stay, ascending
Quantise = Callable[[Path, Path, Sequence[int]], int]  # source, target, layers to drop -> 0 for success

WHAT = "the early exit"  # in messages

_MARGIN = 2**20  # bytes beside the tensors: metadata, padding
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)", re.DOTALL)
_HARMLESS_ARRAYS = ("rope.dimension_sections",)  # of a fixed length that has nothing to do with layers
_COUNTING_KEYS = {  # keys that count layers; what is dropped would make them wrong
    "nextn_predict_layers": "prediction layers (NextN)",
    "leading_dense_block_count": "leading dense layers",
    "attention.shared_kv_layers": "layers that share a cache",
    "embedding_length_per_layer_input": "embeddings for each layer",
}


@dataclass(frozen=True, slots=True)
class Tuned:
    layers: Layers
    ratio: float


class Exits:
    def __init__(self, header: Header, folder: Path, quantise: Quantise | None = None) -> None:
        self.header = header
        self.folder = folder
        self.n_layers = n_layers(header)
        self._quantise = quantise or _prune

    def file(self, layers: Layers) -> Path:
        """Return the file of the model with these layers alone, made if it is not there yet. Raises IncompatibleError
        for a model whose layers cannot be dropped, ResourceError for a full disk or a folder that cannot be written."""
        require_prunable(self.header)
        tuned = self.tuned()

        def write(part: Path) -> None:
            dropped = [layer for layer in range(self.n_layers) if layer not in layers]
            require_space(self.folder, _size(self.header, dropped), f"{WHAT} of {self.header.name}")
            code = self._quantise(self.header.path, part, dropped)
            if code == 0 and is_whole(part):
                return
            name, free = self.header.name, shutil.disk_usage(self.folder).free
            if not os.access(self.header.path, os.R_OK):
                raise InternalError(f"{name} can no longer be read", hint="Check the path.")
            raise ResourceError(  # llama.cpp says only that it did not
                f"llama.cpp could not write the early exit of {name} to {shown(self.folder)} (code {code})",
                hint="check the space that is left there and quotas, or LOCALSPEC_HOME=FOLDER",
                detail={"needed_bytes": _size(self.header, dropped), "free_bytes": free},
            )

        keep = [] if tuned is None else [self.path(tuned.layers)]
        return made(self.path(layers), self.header, WHAT, write, keep)

    @contextmanager
    def held(self, layers: Layers) -> Iterator[Path]:
        """Give what `file` does, and keep other processes from removing it until it is loaded."""
        for is_last_try in (False, False, True):
            path = self.file(layers)
            with in_use(path) as is_there:  # it may have gone since
                if is_there or is_last_try:
                    yield path
                    return

    def path(self, layers: Layers) -> Path:
        digest = hashlib.sha256(",".join(map(str, layers)).encode()).hexdigest()[:12]
        return self.folder / f"{self._identity}-{digest}.gguf"

    def discard(self, layers: Layers) -> None:
        with suppress(OSError):
            self.path(layers).unlink(missing_ok=True)

    def tuned(self) -> Tuned | None:
        stored = read_stored(self._tuned_path, Tuned)
        if stored is None or not stored.layers:
            return None
        return stored if sorted(set(stored.layers) & set(range(self.n_layers))) == list(stored.layers) else None

    def paying(self) -> Layers | None:
        """Return the tuned layers if they were faster than plain decoding and their file is there; None is usual."""
        if not any(self.folder.glob("*.json")):
            return None
        tuned = self.tuned()
        if tuned is None or tuned.ratio <= 1.0 or not is_whole(self.path(tuned.layers)):
            return None
        return tuned.layers

    def store(self, best: Tuned) -> Path:
        try:
            write_stored(self._tuned_path, best)
        except OSError as error:
            raise unwritable(self.folder, WHAT, error) from error
        return self._tuned_path

    @property
    def _tuned_path(self) -> Path:
        return self.folder / f"{self._identity}.json"

    @cached_property
    def _identity(self) -> str:
        return identity(self.header)


def n_layers(header: Header) -> int:
    return header.number(f"{header.architecture}.block_count")


def require_prunable(header: Header) -> None:
    """Raise IncompatibleError, with the reason, for a model that is no longer sound without some of its layers."""
    why = _obstacle(header)
    if why:
        raise IncompatibleError(
            f"{header.name} has no early exit: {why}", hint="--draft FILE.gguf, or another method of: localspec methods"
        )


def _obstacle(header: Header) -> str:
    arch = header.architecture
    for key, what in _COUNTING_KEYS.items():
        if header.metadata.get(f"{arch}.{key}"):
            return f"it counts its {what} ({arch}.{key}), and the count would be wrong without some layers"
    for key, kind in header.types.items():
        if key.startswith(f"{arch}.") and kind.startswith("arr") and not key.endswith(_HARMLESS_ARRAYS):
            return f"it has a value for each layer ({shown(key)}), and the values would belong to the wrong ones"
    layers: dict[int, set[tuple[str, tuple[int, ...]]]] = {}
    for tensor in header.tensors:
        match = _BLOCK.fullmatch(tensor.name)
        if match:
            layers.setdefault(int(match[1]), set()).add((match[2], tuple(tensor.shape)))
    if set(layers) != set(range(n_layers(header))):
        return "its tensors are not named after its layers"
    if any(layer != layers[0] for layer in layers.values()):
        return "its layers are not alike"  # the quantiser numbers them anew, llama.cpp expects each kind at its place
    return "" if len(layers) > 1 else "it has a single layer"


def _prune(source: Path, target: Path, dropped: Sequence[int]) -> int:
    """Let llama.cpp copy `source` without some layers; it wants their indices sorted and ended by -1."""
    import llama_cpp  # brings the native library, which nothing else here needs

    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_quantize_default_params()
    params.only_copy = True
    indices = (ctypes.c_int32 * (len(dropped) + 1))(*sorted(dropped), -1)
    if dropped:
        params.prune_layers = ctypes.cast(indices, type(params.prune_layers))
    return int(llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(target), params))


def _size(header: Header, dropped: Sequence[int]) -> int:
    gone = tuple(f"blk.{layer}." for layer in dropped)
    n_bytes = sum(tensor.n_bytes for tensor in header.tensors if not tensor.name.startswith(gone))
    return header.data_offset + n_bytes + _MARGIN
