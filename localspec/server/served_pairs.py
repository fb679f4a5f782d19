"""The pairs that a request can name: the one that the server began with, and those that --models lets in.

What could be loaded is looked up when it is listed, and when a name is new: a model may be pulled meanwhile. No name of
a request is ever taken for a path.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from localspec.engine.events import Loaded
from localspec.errors import LocalspecError
from localspec.models.available import AvailablePair
from localspec.models.ollama import tagged, without_tag
from localspec.models.other_programs import OLLAMA
from localspec.server.engine import ServerEngine
from localspec.server.fields import STAND_INS, OfferedPair, ServedPair
from localspec.server.refusal import refused
from localspec.settings.request import LoadSettings


class Pairs:
    """What a server can load. `offers` lists pairs beside the first one, and `served` finds the files of one."""

    def __init__(
        self,
        first: ServedPair,
        offers: Callable[[], Sequence[AvailablePair]] = tuple,
        served: Callable[[AvailablePair], ServedPair] | None = None,
    ) -> None:
        self.current = first  # the pair that was loaded last
        self._first = first
        self._offers = offers
        self._served = served
        self._by_name = {first.name: first}
        self._began = int(time.time())  # what the API calls the creation of a pair that is not in memory

    def loaded_in(self, engine: ServerEngine) -> list[ServedPair]:
        return [each for each in self._by_name.values() if engine.holds(each.settings)]

    def listed(self) -> list[OfferedPair]:
        return [self._by_name[self._first.name], *map(self._listed, self._others())]

    async def named(self, model: object) -> ServedPair:
        """Return the pair that a request means; the first one where it names none, or none that is known.

        Raises Refusal where the files of a pair cannot be found.
        """
        if not isinstance(model, str) or not model:
            return self._by_name[self._first.name]
        for each in self._by_name.values():
            if each.is_called(model):
                return each
        return await asyncio.to_thread(self._looked_up, model)

    def loaded(self, settings: LoadSettings, loaded: Loaded) -> None:
        for name, each in list(self._by_name.items()):
            if each.settings == settings:
                self._by_name[name] = self.current = replace(each, bytes=loaded.target.bytes, loaded=loaded)

    def _looked_up(self, model: str) -> ServedPair:
        others = self._others()
        offer = next((each for each in others if self._listed(each).is_called(model)), None)
        if offer is None and model.startswith(STAND_INS):
            return self.current
        if offer is None or self._served is None:
            return replace(self._by_name[self._first.name], others=len(others))
        try:
            served = self._served(offer)
        except LocalspecError as error:
            raise refused(error) from error
        return self._by_name.setdefault(served.name, served)

    def _others(self) -> list[AvailablePair]:
        return [each for each in self._offers() if not self._first.is_called(each.ref)]

    def _listed(self, offer: AvailablePair) -> OfferedPair:
        loaded = self._by_name.get(offer.ref)
        return loaded or OfferedPair(offer.ref, other_names(offer), self._began, offer.target_bytes, offer.quant, None)


def other_names(offer: AvailablePair) -> tuple[str, ...]:
    """Return what else an offer is called.

    A model of the hub is also called as Ollama and llama-server spell it, one of Ollama's by its name alone where that
    has a single tag.
    """
    plain, untagged = offer.ref.removeprefix("hf:"), without_tag(offer.ref)
    hub = (plain, f"hf.co/{plain}") if plain != offer.ref else ()
    sole = (untagged,) if offer.origin == OLLAMA and len(tagged(untagged)) == 1 else ()
    return tuple(dict.fromkeys(each for each in (offer.name, *hub, *sole) if each != offer.ref))
