"""Which engine answers: that of another server (`--server`), or one that stays in memory (`--keep-alive`)."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from localspec.cli.console import Console, is_terminal
from localspec.cli.params import option, stacked
from localspec.cli.settings import PairOptions, Promised, is_chosen, is_typed, promised_settings
from localspec.errors import UsageError
from localspec.settings.declaration import declared
from localspec.settings.folders import state_folder
from localspec.settings.request import MODEL, LoadSettings
from localspec.settings.sizes import duration, read_duration
from localspec.ui.stats import Stats

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


LONG_LOAD = 3.0  # seconds

engine_options = option(
    "--keep-alive",
    aliases=["--keepalive"],
    section=MODEL.title,
    metavar="TIME",
    default="0",
    check=partial(read_duration, "--keep-alive"),
    help="Keep the model in memory for this time afterwards, as 10m; see: localspec ps.  [default: 0]",
)


@dataclass(frozen=True)
class EngineOptions:
    """Values of the options that say what becomes of the engine afterwards."""

    keep_alive: str

    @property
    def kept_s(self) -> float:
        """Return the seconds for which the engine stays."""
        return read_duration("--keep-alive", self.keep_alive)


def tell_of_keep_alive(stats: Stats, console: Console) -> None:
    """Say once, after a load that took long, how the model stays in memory. On a terminal only."""
    loaded = stats.loaded
    if loaded is None or loaded.load_ms < 1e3 * LONG_LOAD or console.quiet or not is_terminal(sys.stderr):
        return
    told = state_folder("told-of-keep-alive")
    with contextlib.suppress(OSError):
        told.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        told.touch(exist_ok=False)
        seconds = duration(loaded.load_ms / 1e3)
        console.note(f"loading took {seconds}; localspec config set keep-alive 10m keeps the model in memory", "dim")
