"""The figures below an answer that is over."""

from __future__ import annotations

import shutil
import sys

from localspec.cli.console import Console, is_terminal
from localspec.ui.stats import Stats

GLOSSARY = "words: localspec explain"


def ended_by_itself(stats: Stats) -> bool:
    """Whether nobody stopped the answer."""
    return stats.finished is not None and stats.finished.reason not in ("interrupted", "timeout")


def tell(stats: Stats, console: Console, *, with_plans: bool = False) -> None:
    """Write the stats line and below it what the plans promised, if that is asked, and what the controller found.

    On a terminal the stats line is one line, unless all is asked for.
    """
    from localspec.ui.summary import is_slower, plans, stats_line, verdict  # late: nothing of it is said before the end

    room = None if with_plans or not is_terminal(sys.stderr) else shutil.get_terminal_size().columns - 1
    line, words = stats_line(stats, room), GLOSSARY if stats.drafted and ended_by_itself(stats) else ""
    lines = [f"{line} · {words}"] if words and (room is None or len(f"{line} · {words}") <= room) else [line, words]
    for told in filter(None, lines):
        console.note(told, "yellow" if is_slower(stats) else "dim")
    console.has_told_stop = not ended_by_itself(stats)  # the line begins with it
    has_verdict = stats.finished is not None and stats.finished.verdict  # else the line above says all of it
    for line in (plans(stats) if with_plans else "", verdict(stats, is_below=True) if has_verdict else ""):
        if line:
            console.note(line, "dim")
