"""`localspec serve --models`: the pairs that requests can name beside the one that the server began with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localspec.cli.settings import PairOptions
from localspec.errors import NotFoundError
from localspec.models.available import AvailablePair, find, offers
from localspec.models.catalog import load_catalog
from localspec.models.store import usual_speculation
from localspec.sanitize import one_line
from localspec.settings.request import Request
from localspec.ui.settings import check

if TYPE_CHECKING:
    from localspec.server.fields import Served

ALL = "all"


@dataclass(frozen=True)
class Others:
    """What --models names, and how each pair is loaded and asked.

    `is_open`: nothing says how to draft, so each pair drafts in its own usual way.
    """

    names: tuple[str, ...]  # as typed, some by commas
    pairs: PairOptions
    request: Request
    is_open: bool

    def require(self) -> None:
        """Raise NotFoundError for a name that is no pair of this machine."""
        here = self._here()
        for name in self._wanted():
            if not any(_is_called(each, name) for each in here):
                raise NotFoundError(
                    f"--models: there is no {one_line(name)} on this machine", hint="names: localspec ls"
                )

    def offers(self) -> Sequence[AvailablePair]:
        """Return the pairs that requests can name now."""
        wanted = self._wanted()
        if not self.names:
            return ()
        return [each for each in self._here() if not wanted or any(_is_called(each, name) for name in wanted)]

    def served(self, offer: AvailablePair) -> Served:
        """Return a pair to be loaded. A LoRA adapter belongs to the first pair. Raises LocalspecError."""
        from localspec.server.fields import Served  # late, as the server is
        from localspec.server.pairs import other_names

        settings = replace(self.pairs.settings(find(offer)), lora=(), expected=None)
        request, usual = self.request, usual_speculation(settings)
        if self.is_open:
            request = replace(request, speculation=replace(request.speculation, method=usual.method, k=usual.k))
        check(request, settings)
        names, now = other_names(offer), int(time.time())
        return Served(offer.ref, names, now, offer.target_bytes, offer.quant, None, settings, request)

    def _wanted(self) -> list[str]:
        """Return the names that were typed, [] where all are let in."""
        names = [name.strip() for text in self.names for name in text.split(",") if name.strip()]
        return [] if ALL in names else names

    def _here(self) -> list[AvailablePair]:
        return [each for each in offers(load_catalog()) if each.where == "here"]


def _is_called(offer: AvailablePair, name: str) -> bool:
    return name in (offer.ref, offer.name, offer.ref.removesuffix(":latest"))
