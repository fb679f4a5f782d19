"""`localspec ps` and `localspec stop`: the engines of this user."""

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from localspec.cli.complete import warm_names
from localspec.cli.console import in_room, wrapped, write_out
from localspec.cli.output import write_json
from localspec.cli.params import Command, json_option
from localspec.errors import LocalspecError, NotFoundError, ResourceError
from localspec.models.names import squeezed
from localspec.models.other_programs import LEAST_PART
from localspec.sanitize import one_line
from localspec.settings.sizes import AGES, duration, size
from localspec.worker.engines import PATIENCE, engines_in_memory, stop_engine

NOTHING = "no model is in memory; localspec run --keep-alive 10m leaves one there"
STATUS = "/proc/{}/status"


@click.command("ps", cls=Command)
@json_option
def ps(as_json: bool) -> int:
    """List the models that are in memory.

    These are the engines of chats, servers and other commands that run, and those that a `run` or a `chat` left behind
    (--keep-alive). The next `run`, `chat` or `race` of the same pair with the same settings finds an engine that was
    left behind or that serves, and loads nothing.
    """
    engines = [engine_to_wire(facts) for facts in engines_in_memory()]
    if as_json:
        write_json({"engines": engines})
    elif not engines:
        write_out(f"{wrapped(NOTHING, sys.stdout)}\n")
    else:
        head = ("pair", "since", "state", "memory", "tokens", "for")
        write_out("".join(f"{line}\n" for line in in_room([head, *map(_row, engines)])))
    return 0


@click.command("stop", cls=Command)
@click.argument("name", required=False, shell_complete=warm_names)
def stop(name: str | None) -> int:
    """Take models out of memory: those of NAME, or all.

    NAME is a pair's name as `localspec ps` shows it, its target alone, or a part of that.
    An answer that is being written ends. A chat goes on, and loads its model again for the next message; a server ends.
    """
    engines = [facts for facts in engines_in_memory() if name is None or _is_called(facts, name)]
    if not engines and name is not None:
        raise NotFoundError(f"no model called {name!r} is in memory", hint="localspec ps")
    left = []
    for facts in engines:
        if stop_engine(facts):
            write_out(f"stopped {one_line(_pair(facts))}\n")
        else:
            left.append(facts)
    if not engines:
        write_out(f"{NOTHING.partition(';')[0]}\n")
    if left:
        names = ", ".join(f"{one_line(_pair(each))} (process {each['engine_pid']})" for each in left)
        raise ResourceError(f"not ended within {PATIENCE:g} s: {names}", hint=f"kill -9 {left[0]['engine_pid']}")
    return 0


def in_memory() -> str:
    try:
        names = [one_line(_pair(facts)) for facts in engines_in_memory()]
    except LocalspecError:
        names = []
    return f"in memory: {', '.join(names)}; localspec stop frees it" if names else NOTHING


def engine_to_wire(facts: dict[str, Any]) -> dict[str, Any]:
    settings = facts["settings"] or {}
    return {
        "pair": _pair(facts),
        "target": settings.get("target"),
        "draft": settings.get("draft"),
        "state": facts["state"],
        "since": _when(facts["since"]),
        "idle_until": None if facts["idle_until"] is None else _when(facts["idle_until"]),
        "keep_alive_s": facts["keep_alive"],
        "memory": resident(facts["pid"]),
        "tokens": facts["tokens"],
        "clients": len(facts["clients"]),
        "for": [f"{each['by']} {each['pid']}" for each in facts["clients"]],
        "waiting": facts["waiting"],
        "pid": facts["pid"],
    }


def resident(pid: int) -> int | None:
    try:
        lines = Path(STATUS.format(pid)).read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), None)


def _pair(facts: dict[str, Any]) -> str:
    settings = facts["settings"] or {}
    return str(settings.get("name") or settings.get("target") or "?")


def _is_called(facts: dict[str, Any], name: str) -> bool:
    target = str((facts["settings"] or {}).get("target"))
    pairs = [_pair(facts), *(each["name"] for each in facts["clients"] if "name" in each)]  # a file may have several
    whole = (*(pair.partition("+")[0] for pair in pairs), Path(target).name)
    part = squeezed(name.lower())
    is_part = len(part) >= LEAST_PART and any(part in squeezed(each.lower()) for each in whole)
    return is_part or name in (*pairs, *whole, target, Path(target).stem)


def _row(facts: dict[str, Any]) -> tuple[str, ...]:
    state = facts["state"]
    if facts["idle_until"] is not None:
        left = datetime.fromisoformat(facts["idle_until"]).timestamp() - time.time()
        state = f"idle, {'stays' if left > AGES / 2 else f'{duration(max(0.0, left))} left'}"
    if facts["waiting"]:
        state += f", {facts['waiting']} waiting"
    memory = "?" if facts["memory"] is None else size(facts["memory"])
    since = datetime.fromisoformat(facts["since"]).strftime("%H:%M")
    tokens = "-" if facts["tokens"] is None else str(facts["tokens"])
    return one_line(facts["pair"]), since, state, memory, tokens, one_line(", ".join(facts["for"])) or "-"


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
