"""One model in memory: its file is read with every bound checked, then llama.cpp loads it and reports how far it is."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.options import LoadOptions
from localspec.control.profile import fingerprint
from localspec.engine import events
from localspec.engine.protocols import Cancel
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.shards import read_model
from localspec.prompt.prompt import special_texts
from localspec.session.placement import InspectedModel
from localspec.speculation.capabilities import ModelCapabilities

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadedModel:
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
            fingerprint=fingerprint(self.info.path),
        )

    def capabilities(self) -> ModelCapabilities:
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


def load_model(
    looked: InspectedModel, options: LoadOptions, what: str, cancel: Cancel
) -> events.EventsThen[LoadedModel]:
    """Load one model and make its context, reporting the progress. `cancel` will be asked within slow passes."""
    info, shape = looked.info, looked.context_shape()
    loading = events.Returning(
        _reported(lambda report: Model(info.path, options, on_progress=report, n_bytes=looked.header.size, shape=shape))
    )
    last = -1.0
    for fraction in loading:
        if fraction - last >= 0.02 or fraction == 1.0:
            last = fraction
            yield events.Loading(what, fraction)
    model = loading.result
    try:
        backend = LlamaBackend(model, options)
        backend.cancel = cancel
        return LoadedModel(info, model, backend, special_texts(model))
    except BaseException:
        model.close()
        raise


def _reported(call: Callable[[Callable[[float], None]], T]) -> Generator[float, None, T]:
    """Run `call(report)` in a thread; yield what it reports, return its result, raise its error."""
    news: queue.SimpleQueue[float | None] = queue.SimpleQueue()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call(news.put))
        except BaseException as error:  # carried to the caller's thread, where it is raised
            errors.append(error)
        finally:
            news.put(None)

    threading.Thread(target=run, daemon=True, name="load").start()
    while (fraction := news.get()) is not None:
        yield fraction
    if errors:
        raise errors[0]
    return results[0]
