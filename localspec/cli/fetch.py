"""Pulls the models that a command needs: it plans, asks, downloads and shows the progress.

The progress is bars on a terminal that can redraw, otherwise a line now and then. The modules that download are
imported only when something is missing, since a prompt waits for them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from localspec.cli.console import Console, is_terminal
from localspec.cli.settings import PairOptions, Promised
from localspec.errors import DeclinedError, LocalspecError, NetworkError, NotFoundError
from localspec.models.names import HubName
from localspec.models.store import NotCachedError, PairRef, expand, locate
from localspec.sanitize import one_line
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import duration, size

if TYPE_CHECKING:
    from localspec.models.gguf.header import Header
    from localspec.models.pull import Pull, PullPlan

STEP = 0.1  # of all bytes between two lines
QUIET = 15.0  # seconds after which a line comes anyway


def is_offline(is_asked: bool) -> bool:
    if is_asked:
        return True
    from localspec.models.hub.cache import must_stay_offline

    return must_stay_offline()


def online(hint: str) -> str:
    """Return a hint that needs the network, after what would forbid it that too."""
    from localspec.models.hub.cache import must_stay_offline
    from localspec.models.hub.problems import offline_variables

    return f"unset {offline_variables()}, then {hint}" if must_stay_offline() else hint


def headers_of(missing: NotCachedError, *, offline: bool, console: Console) -> tuple[dict[HubName, Header], str]:
    """Return the headers of models that are not here, from the hub, which sends their first megabytes."""
    if offline:
        return {}, "downloads are switched off"
    from localspec.cli.live import Live
    from localspec.models.hub.remote import Hub
    from localspec.models.remote_header import remote_header

    live, hub, headers = Live(console), Hub(), {}
    try:
        for name in missing.wanted:
            live.status(f"reading the header of {one_line(str(name))}")
            headers[name], _ = remote_header(name, hub)
    except LocalspecError as error:
        return {}, error.message
    finally:
        live.erase()
    return headers, ""


def fetched(missing: NotCachedError, options: PairOptions, console: Console) -> PairRef:
    instead = _instead(missing)
    if is_offline(options.offline):
        hint = instead + online(missing.hint)
        raise NotFoundError(f"{missing.message}, and downloads are switched off", hint=hint, detail=missing.detail)
    try:
        plan = make_plan_here(missing.wanted, console)
    except NetworkError as error:
        error.message = f"{missing.message}; {error.message}"
        error.hint = instead + error.hint
        raise
    plan.require_space()
    if not options.yes:
        ask(plan, f"{instead}{missing.hint}, or -y")
    carry_out(plan, console)  # also where all bytes are here: they may have no name yet, or the branch no commit
    return locate(missing.pair, must_draft=options.must_draft)


def warn_of_local(missing: NotCachedError, command: str, console: Console) -> None:
    """Name a model that is here and has the missing one's name, where a command goes on without; it takes that name."""
    from localspec.models.lookup import here_instead

    if local_name := here_instead(missing.wanted[0]):
        console.warn(f"a model of that name is here: {command} {local_name}")


def _instead(missing: NotCachedError) -> str:
    """Return the beginning of a hint: the option for a model that is here and has the missing one's name; or ""."""
    from localspec.models.lookup import here_instead

    first = missing.wanted[0]
    local_name = here_instead(first)
    command = click.get_current_context().command
    takes_model = any("-m" in option.opts for option in command.params)
    option = "--draft " if first != missing.pair.target else "-m " if takes_model else ""
    return f"{option}{local_name}, which is here, or " if local_name else ""


def present_settings(promised: Promised, console: Console) -> LoadSettings:
    """Return how to load the pair of `promised_settings`, pulled first where it is not here."""
    if promised.missing is None:
        if promised.remark:
            console.warn(promised.remark)
        return promised.settings
    pair = fetched(promised.missing, promised.options, console)
    if pair.remark:
        console.warn(pair.remark)
    return promised.options.settings(pair)


def hub_names(ref: str) -> tuple[HubName, ...]:
    pair = expand(ref)
    return tuple(name for name in (pair.target, pair.draft) if isinstance(name, HubName))


def make_plan_here(names: tuple[HubName, ...], console: Console) -> PullPlan:
    from localspec.cli.live import Live
    from localspec.models.hub.cache import Cache
    from localspec.models.hub.pulled import Receipts
    from localspec.models.hub.remote import Hub
    from localspec.models.pull import make_plan

    live = Live(console)
    live.status("asking the hub")
    try:
        return make_plan(names, Hub(), Cache(), Receipts())
    finally:
        live.erase()


def carry_out(plan: PullPlan, console: Console) -> list[str]:
    from localspec.models.hub.cache import Cache
    from localspec.models.hub.pulled import Receipts
    from localspec.models.hub.remote import Hub
    from localspec.models.pull import Pull, pull_all

    pull = Pull(plan, Hub(), Cache(), Receipts())
    try:
        with shown_progress(console) as show:
            pull_all(pull, show)
    except KeyboardInterrupt:
        console.say("the downloaded part is kept; the same command continues")
        raise
    for warning in pull.warnings:
        console.warn(warning)
    return pull.warnings


def ask(plan: PullPlan, hint: str) -> None:
    """Ask whether to download. Raises DeclinedError, with the hint, for a no, and without a terminal."""
    if not plan.missing:
        return
    names = " + ".join(one_line(str(name)) for name in plan.names)
    what = f"{size(plan.missing)} for {names}"
    if not confirmed(f"Download {what}? [Y/n] "):
        raise DeclinedError(f"{what} must be downloaded first", hint=hint)


def require_yes(verb: str, what: str, how: str = "", *, yes: bool) -> None:
    if not yes and not confirmed(f"{verb} {what}{how}? [y/N] ", default=False):
        raise DeclinedError(f"{what} would be {verb.lower()}d{how}", hint=f"-y {verb.lower()}s without asking")


def is_attended() -> bool:
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def confirmed(question: str, *, default: bool = True) -> bool:
    if not is_attended():
        return False
    sys.stderr.write(question)
    sys.stderr.flush()
    line = ""
    try:
        line = sys.stdin.readline()
    finally:
        if not line.endswith("\n"):  # Ctrl-C or Ctrl-D leaves the cursor behind the question
            sys.stderr.write("\n")
    answer = line.strip().lower()
    return answer in ("y", "yes") or (default and line.endswith("\n") and not answer)


@contextmanager
def shown_progress(console: Console) -> Iterator[Callable[[Pull], None]]:
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
    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._began = self._told_at = clock()
        self._first: int | None = None
        self._told = 0.0

    def show(self, pull: Pull) -> None:
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
