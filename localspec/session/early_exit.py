"""The draft model that a target makes of its own layers: which layers, the file of them, and loading that.

`auto` takes one where `localspec early-exit tune` found it faster than plain decoding: who tuned it wanted the file
written and the weights loaded, and nobody else did.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

from localspec.engine import events
from localspec.engine.protocols import Cancel
from localspec.errors import LocalspecError
from localspec.models.early_exit import Exits, Layers
from localspec.models.gguf.shards import read_model
from localspec.session.loading import Loaded, inspect_model, load_model
from localspec.session.placement import InspectedModel, fits_memory, load_options
from localspec.settings.request import LoadSettings, cache_folder

Choose = Callable[[int, Layers | None], Layers]  # of so many layers, of which some were found best, those to draft with

NO_ROOM = "there is no memory for the early exit that was tuned; decoding goes without it"


class EarlyExitDraft:
    """The drafts of one target's own layers. The one that was loaded last stays, as `loaded`."""

    def __init__(self, settings: LoadSettings, target: InspectedModel) -> None:
        self.loaded: Loaded | None = None
        self._settings = settings
        self._path = target.info.path
        self._exits: Exits | None = None  # from the first load on: it holds the header, and that the vocabulary
        self._layers: Layers = ()  # of what is loaded
        self._paying: Layers | None = None

    @property
    def pays(self) -> bool:
        """Whether there is one that `auto` may draft with."""
        return self._paying is not None

    def find(self, target: InspectedModel) -> tuple[str, ...]:
        """Look, before anything is loaded, for one that was measured to pay; return what to warn of."""
        exits = Exits(target.header, cache_folder("early-exit"))
        paying = exits.paying()
        if paying is None:
            return ()
        try:
            draft = inspect_model(str(exits.path(paying)))
        except LocalspecError as error:
            return (f"{error.message}; decoding goes without the early exit",)
        if not fits_memory(self._settings, target, draft):
            return (NO_ROOM,)
        self._paying = paying
        return ()

    def give_up(self) -> None:
        """Leave it alone from now on: it could not be loaded."""
        self._paying = None

    def load(self, choose: Choose, n_ctx: int, cancel: Cancel) -> Generator[events.Event, None, Loaded]:
        """Return the draft with the layers that `choose` names, made and loaded if it is not yet."""
        if self._exits is None:
            self._exits = Exits(read_model(self._path), cache_folder("early-exit"))
        tuned = self._exits.tuned()
        layers = choose(self._exits.n_layers, None if tuned is None else tuned.layers)
        if self.loaded is None or self._layers != layers:
            yield events.Loading("early exit", 0.0)
            with self._exits.held(layers) as path:
                looked = inspect_model(str(path))
                settings = replace(self._settings, ctx=n_ctx)
                self.close()
                self.loaded = yield from load_model(
                    looked, load_options(settings, settings.draft_gpu), "early exit", cancel
                )
                self._layers = layers
        return self.loaded

    def close(self) -> None:
        """Free what is loaded."""
        if self.loaded is not None:
            self.loaded.close()
            self.loaded = None
