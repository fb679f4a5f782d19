"""The draft model that a target makes of its own layers: which layers, the file of them, and loading that.

`auto` takes one only where `localspec early-exit tune` found it faster than plain decoding. Without that command no
file is written and nothing is loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from localspec.engine import events
from localspec.engine.protocols import Cancel, Clock
from localspec.errors import LocalspecError
from localspec.models.exit_files import Exits, Layers
from localspec.models.gguf.shards import read_model
from localspec.session.controllers import PairController
from localspec.session.loaded_model import LoadedModel, closed_on_error, inspect_model, load_model
from localspec.session.placement import PairFiles, load_options
from localspec.settings.folders import cache_folder
from localspec.settings.request import LoadSettings

Choose = Callable[[int, Layers | None], Layers]  # number of layers, the tuned ones or None -> layers to draft with

NO_ROOM = "there is no memory for the early exit that was tuned; decoding goes without it"


@dataclass(frozen=True, slots=True)
class LoadedExit:
    """A draft made of these `layers`, in memory, with the controllers of the target and it."""

    model: LoadedModel
    layers: Layers
    controllers: PairController


class EarlyExitDraft:
    """The drafts of one target's own layers. The one that was loaded last stays, as `loaded`."""

    def __init__(self, settings: LoadSettings) -> None:
        self.loaded: LoadedExit | None = None
        self._settings = settings
        self._exits: Exits | None = None  # from the first load on: it holds the header, and that the vocabulary
        self._paying: Layers | None = None

    @property
    def pays(self) -> bool:
        return self._paying is not None

    def find(self, files: PairFiles) -> tuple[str, ...]:
        exits = Exits(files.target.header, cache_folder("early-exit"))
        paying = exits.paying()
        if paying is None:
            return ()
        try:
            draft = inspect_model(str(exits.path(paying)))
        except LocalspecError as error:
            return (f"{error.message}; decoding runs without the early exit",)
        if not replace(files, draft=draft).fits_memory():
            return (NO_ROOM,)
        self._paying = paying
        return ()

    def give_up(self) -> None:
        self._paying = None

    def load(self, choose: Choose, target: LoadedModel, cancel: Cancel, clock: Clock) -> events.EventsThen[LoadedExit]:
        """Return the draft with the layers that `choose` names, made and loaded if it is not yet."""
        if self._exits is None:
            self._exits = Exits(read_model(target.info.path), cache_folder("early-exit"))
        tuned = self._exits.tuned()
        layers = choose(self._exits.n_layers, None if tuned is None else tuned.layers)
        if self.loaded is not None and self.loaded.layers == layers:
            return self.loaded
        yield events.Loading("early exit", 0.0)
        with self._exits.held(layers) as path:
            n_ctx = target.backend.capabilities.n_ctx
            options = load_options(self._settings, self._settings.draft_gpu, n_ctx=n_ctx)
            self.close()
            model = yield from load_model(inspect_model(str(path)), options, "early exit", cancel)
            with closed_on_error(model):
                controllers = PairController.of(self._settings, target, model, clock)
        self.loaded = LoadedExit(model, layers, controllers)
        return self.loaded

    def close(self) -> None:
        if self.loaded is not None:
            self.loaded.model.close()
            self.loaded = None
