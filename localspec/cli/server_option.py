"""`--server URL`: the pair that another `localspec serve` holds answers, perhaps on another machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.cli.params import option, stacked
from localspec.cli.settings import PairOptions, Promised, is_chosen, is_typed, promised_settings
from localspec.errors import UsageError
from localspec.settings.declaration import declared
from localspec.settings.request import MODEL, LoadSettings

if TYPE_CHECKING:
    from localspec.worker.served import ServedWorker

server_options = stacked(
    [
        option(
            "--server",
            section=MODEL.title,
            metavar="URL",
            help="Ask the pair of a localspec serve, perhaps on another machine.",
        ),
        option("--api-key", section=MODEL.title, metavar="KEY", help="The key that the server asks for."),
    ]
)


@dataclass(frozen=True)
class ServerOptions:
    """Values of the options that name a server."""

    server: str | None
    api_key: str | None

    def served(self, pair: PairOptions) -> ServedWorker | None:
        """Return the server's client, None where no server is named; raises UsageError for what is not its client's."""
        if not self.server:
            return None
        for name, flag in (*((each.name, each.flag) for each in declared(LoadSettings)), ("draft", "--draft")):
            if is_typed(name):
                raise UsageError(f"{flag} is for who loads the pair, and the server has", hint=f"leave out {flag}")
        from localspec.worker.served import ServedWorker  # late: http

        return ServedWorker(self.server, self.api_key or None, pair.model or "" if is_chosen("model") else "")


def promised_of(far: ServedWorker | None, pair: PairOptions) -> Promised:
    """Return how to load the pair: one of a server's is loaded already."""
    return promised_settings(pair) if far is None else Promised(pair, far.settings())
