"""Which engine answers: that of another server (`--server`), or one that stays in memory (`--keep-alive`)."""

from __future__ import annotations

import contextlib
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.chat.state import on_battery
from localspec.cli.console import Console, is_terminal
from localspec.cli.params import option, stacked
from localspec.cli.settings import PairOptions, Promised, is_chosen, is_typed, promised_settings
from localspec.errors import UsageError
from localspec.settings.declaration import declared
from localspec.settings.folders import state_folder
from localspec.settings.request import MODEL, LoadSettings
from localspec.settings.sizes import AGES, read_duration
from localspec.worker.keep_policy import KeepAlive
from localspec.worker.shared import SharedWorker

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
    return promised_settings(pair) if far is None else Promised(pair, far.settings())


AUTO = 300.0  # seconds for which an engine stays where nobody says
ALWAYS = re.compile(r"-\d+[smh]?|forever")  # as Ollama has it


def _read(text: str) -> float | None:
    if ALWAYS.fullmatch(text):
        return AGES
    return None if text == "auto" else read_duration("--keep-alive", text)


engine_options = option(
    "--keep-alive",
    aliases=["--keepalive"],
    section=MODEL.title,
    metavar="TIME",
    default="auto",
    check=_read,
    help="Keep the model in memory for this time afterwards, as 10m, 0 or forever; see: localspec ps.  "
    "[default: 5m, for a model that takes over 2 s to load; not on battery, and not where memory is short]",
)


@dataclass(frozen=True)
class EngineOptions:
    keep_alive: str

    @property
    def kept(self) -> KeepAlive:
        seconds = _read(self.keep_alive)
        if seconds is not None:
            return KeepAlive(seconds)
        return KeepAlive() if on_battery() else KeepAlive(AUTO, is_auto=True)


def tell_of_keep_alive(worker: SharedWorker | ServedWorker, console: Console) -> None:
    """Say once that a model stays in memory though nobody asked for it, and how that ends. On a terminal only."""
    if console.quiet or not is_terminal(sys.stderr) or not worker.stays:
        return
    note = state_folder("told-of-keep-alive")
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        note.touch(exist_ok=False)
        console.note(
            "the model stays in memory for 5 minutes; localspec stop ends that, config set keep-alive 0 for good", "dim"
        )
