"""LoRA adapters of a loaded model."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localspec.backends.lib import LOG, api
from localspec.errors import IncompatibleError


class Adapters:
    """The adapters in `files`, each with its scale, on the model `handle`, which frees them when it is closed.

    `path` names the model. Raises IncompatibleError for an adapter of another model.
    """

    def __init__(self, handle: Any, path: Path, files: Sequence[tuple[str, float]]) -> None:
        self._scales = [scale for _, scale in files]
        self._handles = []
        for file, _ in files:
            LOG.clear()
            adapter = api.llama_adapter_lora_init(handle, os.fsencode(file))
            if not adapter:  # a pointer, which is never None
                raise IncompatibleError(
                    f"the LoRA {file} does not fit {path.name}: {LOG.reason()}",
                    hint="--lora FILE of a LoRA that was trained on this target",
                )
            self._handles.append(adapter)

    def apply(self, context: Any) -> None:
        """Let them act in a context of the model."""
        n = len(self._handles)
        if n:
            handles = (api.llama_adapter_lora_p_ctypes * n)(*self._handles)
            code = api.llama_set_adapters_lora(context, handles, n, (ctypes.c_float * n)(*self._scales))
            assert code == 0, "adapters of this very model are never refused"
