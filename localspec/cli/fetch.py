"""Pulls the models that a command needs: it plans, asks, downloads and shows the progress.

The modules that download are imported only when something is missing, since a prompt waits for them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from localspec.cli.console import Console, is_terminal
from localspec.cli.settings import PairOptions, Promised
from localspec.errors import DeclinedError, LocalspecError, NetworkError, NotFoundError
from localspec.models.names import HubName
from localspec.models.ollama import untaken
from localspec.models.store import NotCachedError, PairRef, expand, locate
from localspec.sanitize import one_line
from localspec.settings.request import LoadSettings

if TYPE_CHECKING:
    from localspec.models.gguf.header import Header
    from localspec.models.pull import PullPlan


def is_offline(is_asked: bool) -> bool:
    """Whether --offline, HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids the network."""
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
    """Return the headers of models that are not here, from the hub, which sends their first megabytes.

    Where that fails, or is not allowed, there are none, and the reason is given.
    """
    if offline:
        return {}, "downloads are switched off"
    from localspec.cli.live import Live
    from localspec.models.hub.remote import Hub
    from localspec.models.remote_header import remote_header

    live, hub, found = Live(console), Hub(), {}
    try:
        for name in missing.wanted:
            live.status(f"reading the header of {one_line(str(name))}")
            found[name] = remote_header(name, hub)
    except LocalspecError as error:
        return {}, error.message
    finally:
        live.erase()
    return found, ""


def fetched(missing: NotCachedError, options: PairOptions, console: Console) -> PairRef:
    """Pull what a pair lacks, once that is agreed to, and return its files."""
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


def _instead(missing: NotCachedError) -> str:
    """Return the beginning of a hint: the option for a model that is here and has the missing one's name; or ""."""
    from localspec.models.near import here_instead

    first = missing.wanted[0]
    found = here_instead(first)
    return f"{'-m' if first == missing.pair.target else '--draft'} {found}, which is here, or " if found else ""


def present_settings(promised: Promised, console: Console) -> LoadSettings:
    """Return how to load the pair of `promised_settings`, pulled first where it is not here.

    To be called when everything else that was asked for is found right: now it is worth a download.
    """
    if promised.missing is None:
        for told in filter(None, (untaken(promised.settings.name.partition("+")[0]), promised.remark)):
            console.warn(told)
        return promised.settings
    found = fetched(promised.missing, promised.options, console)
    if found.remark:
        console.warn(found.remark)
    return promised.options.settings(found)


def hub_names(ref: str) -> tuple[HubName, ...]:
    """Return the models of the hub that a pair's name stands for."""
    pair = expand(ref)
    return tuple(name for name in (pair.target, pair.draft) if isinstance(name, HubName))


def make_plan_here(names: tuple[HubName, ...], console: Console) -> PullPlan:
    """Plan with the hub, the cache and the receipts of this machine."""
    from localspec.cli.live import Live
    from localspec.models.hub.cache import Cache
    from localspec.models.hub.receipts import Receipts
    from localspec.models.hub.remote import Hub
    from localspec.models.pull import make_plan

    live = Live(console)
    live.status("asking the hub")
    try:
        return make_plan(names, Hub(), Cache(), Receipts())
    finally:
        live.erase()


def carry_out(plan: PullPlan, console: Console) -> list[str]:
    """Pull, showing the progress; return the warnings, which were said."""
    from localspec.cli.progress import shown_progress
    from localspec.models.hub.cache import Cache
    from localspec.models.hub.receipts import Receipts
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
    from localspec.settings.sizes import size

    names = " + ".join(one_line(str(name)) for name in plan.names)
    what = f"{size(plan.missing)} for {names}"
    if not confirmed(f"Download {what}? [Y/n] "):
        raise DeclinedError(f"{what} must be downloaded first", hint=hint)


def is_attended() -> bool:
    """Whether there is a terminal to ask on."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def confirmed(question: str, *, default: bool = True) -> bool:
    """Ask on the terminal; False for a no, and without one."""
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
