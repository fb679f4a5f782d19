"""Progress of a download: bars on a terminal that can redraw, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from localspec.cli.console import Console
from localspec.models.pull import Pull
from localspec.settings.sizes import duration, size

STEP = 0.1  # of all bytes between two lines
QUIET = 15.0  # seconds after which a line comes anyway


@contextmanager
def shown_progress(console: Console) -> Iterator[Callable[[Pull], None]]:
    """Yield what shows a pull each time it is called."""
    if console.quiet:
        yield lambda pull: None
    elif console.is_live:
        with _bars(console) as show:
            yield show
    else:
        yield ProgressLines(console).show


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[Pull], None]]:
    from rich import progress as rich_progress
    from rich.console import Console as RichConsole

    screen = RichConsole(
        file=sys.stderr, no_color=not console.can_color(sys.stderr), highlight=False, markup=False, emoji=False
    )
    text = rich_progress.TextColumn
    columns = (
        text("{task.description}", markup=False),
        rich_progress.BarColumn(bar_width=20),
        rich_progress.DownloadColumn(),
        rich_progress.TransferSpeedColumn(),
        rich_progress.TimeRemainingColumn(compact=True),
        text("{task.fields[phase]}", markup=False),
    )
    with rich_progress.Progress(*columns, console=screen, refresh_per_second=10, transient=True) as bars:
        tasks: dict[int, rich_progress.TaskID] = {}

        def show(pull: Pull) -> None:
            for number, file in enumerate(pull.files):
                if number not in tasks:
                    tasks[number] = bars.add_task(
                        file.label(32), total=file.item.file.size, completed=file.bytes, phase=""
                    )
                phase = "" if file.name == "downloading" else file.name
                bars.update(tasks[number], completed=file.bytes, phase=phase)

        yield show


class ProgressLines:
    """Sparse lines for logs and screen readers."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._began = self._told_at = clock()
        self._first: int | None = None
        self._told = 0.0

    def show(self, pull: Pull) -> None:
        """Say how far it is, if there is something new to say."""
        total = sum(file.item.file.size for file in pull.files) or 1
        here = sum(file.bytes for file in pull.files)
        if self._first is None:
            self._first, self._told = here, here / total
            return
        now, part = self._clock(), here / total
        if part - self._told < STEP and now - self._told_at < QUIET:
            return
        self._told, self._told_at = part, now
        rate = (here - self._first) / max(now - self._began, 1e-3)
        left = f", {duration((total - here) / rate)} left" if rate > 0 and here < total else ""
        waits = [file for file in pull.files if file.name == "waiting"]
        also = f"; another process has {waits[0].label(60)}" if waits and rate == 0 else ""
        pauses = [file.name.removeprefix("pause ") for file in pull.files if file.name.startswith("pause ")]
        also += f"; the hub asks for a pause of {pauses[0]}" if pauses else ""
        failed = [file.name for file in pull.files if file.name.startswith("again in ")]
        also += f"; the transfer broke off: {failed[0]}" if failed else ""
        self._console.say(f"pulled {100 * part:.0f} % of {size(total)}, {rate / 1e6:.1f} MB/s{left}{also}")
