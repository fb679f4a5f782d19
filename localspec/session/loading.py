"""Loading one model: its file is looked at with every bound checked, then llama.cpp loads it, telling how far it is."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from localspec import __version__
from localspec.backends import amx
from localspec.backends.build import build_info
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.options import LoadOptions
from localspec.engine import events
from localspec.engine.protocols import Cancel
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.shards import read_model
from localspec.prompt.prompt import special_texts
from localspec.session.placement import InspectedModel
from localspec.session.progress import reported
from localspec.settings.request import LoadSettings
from localspec.speculation.capabilities import ModelCapabilities


@dataclass(frozen=True, slots=True)
class Loaded:
    """One model in memory with what its file said of itself."""

    info: ModelInfo
    model: Model
    backend: LlamaBackend
    specials: frozenset[str]

    def facts(self) -> events.ModelFacts:
        """Return what people want to know of it."""
        return events.ModelFacts(
            path=str(self.info.path),
            bytes=self.info.bytes,
            arch=self.info.architecture,
            quant=self.info.quant,
            n_params=self.info.n_params,
            n_vocab=self.info.n_vocab,
            n_layer=self.info.n_layer,
            kv_bytes=self.backend.kv_bytes,
            devices=self.backend.capabilities.devices,
        )

    def held(self) -> ModelCapabilities:
        """Return what decides how it may be drafted for, and whether it can draft."""
        return ModelCapabilities(self.info.architecture, self.backend.capabilities, self.model.is_stateful)

    def close(self) -> None:
        """Free the context, then the weights."""
        self.backend.close()
        self.model.close()


def inspect_model(path: str) -> InspectedModel:
    """Read a file's header, with every bound checked, before llama.cpp sees it."""
    header = read_model(Path(path))
    return InspectedModel(header, model_info(header))


def doubts_of(settings: LoadSettings, target: ModelInfo) -> tuple[str, ...]:
    """Return what settings will not bring what they promise."""
    doubts: tuple[str, ...] = ()
    if amx.is_broken():
        doubts += (f"llama.cpp crashes with AMX here, so it goes without, which is slower; to mend it: {amx.REBUILD}",)
    if {settings.gpu, settings.draft_gpu} - {"auto", "off"} and not build_info().gpu_offload:
        doubts += ("this build of llama.cpp has no GPU support, so --gpu does nothing: see localspec --version",)
    if settings.ctx is not None and settings.ctx > target.n_ctx_train:
        doubts += (f"the model was made for {target.n_ctx_train} tokens: beyond them its text falls apart",)
    return doubts


def versions() -> dict[str, str]:
    """Return what answers: localspec, the binding, llama.cpp."""
    build = build_info()
    return {"localspec": __version__, "llama_cpp_python": build.llama_cpp_python, "llama_cpp": build.llama_cpp}


def load_model(
    looked: InspectedModel, options: LoadOptions, what: str, cancel: Cancel
) -> Generator[events.Event, None, Loaded]:
    """Load one model and make its context, telling the progress. `cancel` will be asked within slow passes."""
    info, shape = looked.info, looked.context_shape()
    progress = reported(
        lambda report: Model(info.path, options, on_progress=report, n_bytes=looked.header.size, shape=shape)
    )
    told = -1.0
    while True:
        try:
            fraction = next(progress)
        except StopIteration as done:
            model = done.value
            break
        if fraction - told >= 0.02 or fraction == 1.0:
            told = fraction
            yield events.Loading(what, fraction)
    try:
        backend = LlamaBackend(model, options)
        backend.cancel = cancel
        return Loaded(info, model, backend, special_texts(model))
    except BaseException:
        model.close()
        raise
