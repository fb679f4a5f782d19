"""`--keep-alive`: how long the engine of a run or a chat stays, and a line for those who do not know it."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from functools import partial

from localspec.cli.console import Console, is_terminal
from localspec.cli.params import option
from localspec.settings.folders import state_folder
from localspec.settings.request import MODEL
from localspec.settings.sizes import duration, read_duration
from localspec.ui.stats import Stats

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
