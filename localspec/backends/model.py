"""A GGUF file that llama.cpp has loaded: weights and metadata, without a context."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from localspec.backends import amx
from localspec.backends.devices import devices, offloading
from localspec.backends.lib import LOG, api
from localspec.backends.limits import available_memory
from localspec.backends.load_params import gpu_layers, place
from localspec.backends.mapped_file import released
from localspec.backends.memory import ContextShape, check_weights
from localspec.backends.options import LoadOptions
from localspec.backends.tokenizer import Tokenizer
from localspec.engine.closing import Closing
from localspec.errors import (
    IncompatibleError,
    IntegrityError,
    LocalspecError,
    NotFoundError,
    ResourceError,
    tells_out_of_memory,
)

Progress = Callable[[float], None]  # told the fraction loaded, 0 to 1; what it raises stops the load


class Closeable(Protocol):
    """What must be closed before the weights it uses."""

    def close(self) -> None: ...


class Model(Tokenizer, Closing):
    """Weights and vocabulary of one GGUF model; closing it closes the backends on it first.

    `state_width` is that of the hidden state which each token of a pass comes with: 0, but for draft heads.

    `n_bytes` is the size of all its files, and `shape` decides the size of its contexts, both as the header says.
    Without them the size is that of the one file, and the shape follows from what llama.cpp tells.
    """

    state_width = 0

    def __init__(
        self,
        path: str | Path,
        options: LoadOptions | None = None,
        on_progress: Progress | None = None,
        *,
        n_bytes: int | None = None,
        shape: ContextShape | None = None,
    ) -> None:
        self.path = Path(path)
        self.options = options or LoadOptions()
        self.handle: Any = None
        self._users: WeakSet[Closeable] = WeakSet()
        n_bytes = max(self._file_bytes(), n_bytes or 0)
        if not self.options.mmap and not api.llama_supports_gpu_offload():
            check_weights(n_bytes, available_memory())
        placement = self.options.placement
        self.n_gpu_layers = (
            gpu_layers(self.options.gpu, n_bytes, offloading(devices())) if placement is None else sum(placement.counts)
        )
        self._placed: object = None  # arrays that llama.cpp goes on pointing to
        self.handle = self._load(on_progress)
        self._check_decoder()
        self._adapters = [self._adapter(file) for file, _ in self.options.adapters]
        super().__init__(self.handle, self.options.n_masks)
        self.n_ctx_train: int = api.llama_model_n_ctx_train(self.handle)
        self.n_layers: int = api.llama_model_n_layer(self.handle)
        self.n_bytes: int = api.llama_model_size(self.handle)
        self.is_stateful: bool = api.llama_model_is_recurrent(self.handle) or api.llama_model_is_hybrid(self.handle)
        self.context_shape = self._even_shape() if shape is None else shape

    @property
    def device_names(self) -> tuple[str, ...]:
        if self.options.placement is not None:
            return ("CPU", *self.options.placement.devices)
        return tuple(device.name for device in devices() if not device.is_gpu or self.n_gpu_layers)

    @property
    def architecture(self) -> str:
        return self.metadata("general.architecture") or ""

    @property
    def template_names(self) -> tuple[str, ...]:
        start = "tokenizer.chat_template."
        keys = (self._key(index) for index in range(api.llama_model_meta_count(self.handle)))
        return tuple(key.removeprefix(start) for key in keys if key is not None and key.startswith(start))

    def template(self, name: str | None) -> str | None:
        """Return the jinja source of a chat template by its name, the default one for None; None without it."""
        for asked in (None, b"default") if name is None else (name.encode(),):
            text: bytes | None = api.llama_model_chat_template(self.handle, asked)
            if text is not None:
                return text.decode("utf-8", "replace")
        return None

    def _key(self, index: int) -> str | None:
        return self._string(lambda buffer, size: api.llama_model_meta_key_by_index(self.handle, index, buffer, size))

    def metadata(self, key: str) -> str | None:
        """Return a metadata value as llama.cpp prints it, None where the file has no such key."""
        return self._string(lambda buffer, size: api.llama_model_meta_val_str(self.handle, key.encode(), buffer, size))

    def serve(self, user: Closeable) -> None:
        """Have a user of the weights closed before they are freed."""
        self._users.add(user)

    def close(self) -> None:
        """Free the weights, and the contexts on them before. Idempotent."""
        for user in list(self._users):
            user.close()
        if self.handle is not None:
            self._free()
            self.handle = None

    def _free(self) -> None:
        api.llama_model_free(self.handle)

    def _file_bytes(self) -> int:
        if not self.path.exists():
            raise NotFoundError(f"there is no file {self.path}", hint="Check the path.")
        if not self.path.is_file():
            raise NotFoundError(f"{self.path} is not a file", hint="name a .gguf file")
        if not os.access(self.path, os.R_OK):
            raise NotFoundError(f"{self.path} may not be read by this user", hint=f"chmod u+r {self.path}")
        return self.path.stat().st_size

    def _load(self, on_progress: Progress | None) -> Any:
        LOG.clear()
        params = api.llama_model_default_params()
        params.n_gpu_layers = self.n_gpu_layers
        if self.options.placement is not None:
            self._placed = place(params, self.options.placement)
        mode = [name for name, is_on in (("MMAP", self.options.mmap), ("MLOCK", self.options.mlock)) if is_on]
        params.load_mode = getattr(api, f"LLAMA_LOAD_MODE_{'_'.join(mode) or 'NONE'}")
        params.use_extra_bufts = self.is_repacked
        self.prepare_weights(params)

        raised: list[BaseException] = []

        def progress(fraction: float, _data: object) -> bool:
            try:
                if on_progress is not None:
                    on_progress(fraction)
            except BaseException as error:  # it cannot pass through C: the load is stopped and it goes on from here
                raised.append(error)
            return not raised

        params.progress_callback = api.llama_progress_callback(progress)
        with released(self.is_repacked and self.options.mmap and not self.options.mlock):
            handle = api.llama_model_load_from_file(os.fsencode(self.path), params)
        if raised:
            api.llama_model_free(handle)
            raise raised[0]
        if handle is None:
            raise _load_error(self.path)
        return handle

    def prepare_weights(self, params: Any) -> None:
        """Change llama.cpp's parameters of the load; a head needs others than a model."""
        params.load_mtp = self.options.has_mtp

    def prepare_context(self, params: Any) -> None:
        """Change llama.cpp's parameters of a context; a head needs others than a model."""

    def adapt(self, context: Any) -> None:
        """Let the LoRA adapters act in a context."""
        n = len(self._adapters)
        if n:
            handles = (api.llama_adapter_lora_p_ctypes * n)(*self._adapters)
            scales = (ctypes.c_float * n)(*(scale for _, scale in self.options.adapters))
            code = api.llama_set_adapters_lora(context, handles, n, scales)
            assert code == 0, "adapters of this very model are never refused"

    def _adapter(self, file: str) -> Any:
        """Return a LoRA adapter, which the model frees. Raises IncompatibleError for one of another model."""
        LOG.clear()
        adapter = api.llama_adapter_lora_init(self.handle, os.fsencode(file))
        if not adapter:  # a pointer, which is never None
            reason = f"the LoRA {file} does not fit {self.path.name}: {LOG.reason()}"
            self.close()
            raise IncompatibleError(reason, hint="--lora FILE of a LoRA that was trained on this target")
        return adapter

    @property
    def is_repacked(self) -> bool:
        """Whether llama.cpp may copy weights into the layouts its CPU kernels like best, out of the mapped file."""
        if self.options.repack is not None:
            return self.options.repack
        return not amx.is_amx_broken() and (self.options.placement is None or self.options.placement.is_repacked)

    def _check_decoder(self) -> None:
        has_encoder = api.llama_model_has_encoder(self.handle)
        if has_encoder or not api.llama_model_has_decoder(self.handle) or api.llama_model_is_diffusion(self.handle):
            architecture = self.architecture
            self.close()
            raise IncompatibleError(
                f"{self.path} holds a model of kind {architecture}, which does not write text token by token",
                hint="take a decoder-only language model",
            )

    def _string(self, read: Callable[[Any, int], int]) -> str | None:
        """Call a C function that writes like snprintf, with as much room as it asks for; None where it returns < 0."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = read(buffer, size)
            if n < 0:
                return None
            if n < size:
                return buffer.raw[:n].decode("utf-8", "replace")
            size = n + 1

    def _even_shape(self) -> ContextShape:
        """Return what contexts of a model are made of whose layers all have the same cache."""
        n_heads = max(1, api.llama_model_n_head(self.handle))
        width = api.llama_model_n_embd(self.handle) // n_heads
        heads = self.n_layers * api.llama_model_n_head_kv(self.handle)
        key, value = (self.metadata(f"{self.architecture}.attention.{what}_length") for what in ("key", "value"))
        return ContextShape(heads * int(key or width), heads * int(value or width), n_heads)


def _load_error(path: Path) -> LocalspecError:
    """Say why llama.cpp refused a file, from the end of its log."""
    said, reason = LOG.tail(), LOG.reason()
    message, detail = f"llama.cpp cannot load {path}: {reason}", {"log": said}
    if "unknown model architecture" in said or "unknown pre-tokenizer" in said:
        return IncompatibleError(message, hint="upgrade llama-cpp-python, or take another model", detail=detail)
    if tells_out_of_memory(said):
        return ResourceError(
            message, hint="--gpu off, or a smaller model" if offloading(devices()) else "a smaller model", detail=detail
        )
    return IntegrityError(message, hint="download the file again, or check what it is", detail=detail)
