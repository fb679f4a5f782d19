"""`localspec chat`: the full-screen chat on a terminal that can show it, else, or with --plain, the line chat.

Each is imported when it is the one that opens: a screen that is waited for should not pay for what it does not use.
"""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import click

from localspec.cli.console import Console, wants_plain
from localspec.cli.fetch import present_settings
from localspec.cli.model_option import is_typed
from localspec.cli.options import (
    conversation_options,
    model_options,
    reply_options,
    sampling_options,
    screen_options,
    speculation_options,
)
from localspec.cli.params import Command, option
from localspec.cli.settings import open_worker, promised_settings, request_settings, system_message
from localspec.cli.settings_table import in_force
from localspec.cli.store_options import place, store_for_talking, wanted
from localspec.settings.request import LoadSettings


@click.command(cls=Command)
@model_options
@reply_options
@conversation_options
@speculation_options
@sampling_options
@screen_options
@option("--plain", is_flag=True, section="Output", help="Line by line, as for screen readers, scripts and TERM=dumb.")
@option("--theme", type=click.Choice(["auto", "dark", "light"]), default="auto", section="Output",
        help="Colours of the full screen.  [default: auto, as the terminal's background]")  # fmt: skip
@click.pass_obj
def chat(console: Console, /, **values: Any) -> int:
    """Chat with a pair: full-screen, with live figures; F1 lists the keys.

    Conversations are kept while they are written: `localspec chat -c` continues, `localspec logs` lists them.

    With --plain or -q, and without a terminal, the chat is line by line; /help lists its commands. Ctrl-C stops an
    answer and keeps the text so far. Ctrl-D leaves. Lines may also come from a file or a pipe. Then Ctrl-C ends the
    chat, and the exit code is that of the last error, or 0.
    """
    console.color, console.quiet, console.log_file = values["color"], values["quiet"], values["log_file"]
    with store_for_talking(values, console) as store:
        found = wanted(store, values)
        promised = promised_settings(values)
        request = request_settings(values, promised[0])
        system = system_message(values)
        settings = present_settings(promised, values, console)
        if not wants_plain(values["plain"] or is_typed("quiet")):
            gc.disable()  # until the first picture: nothing that is imported is garbage, and looking for it takes time
            from localspec.tui.launch import Look, open_chat  # late: it brings Textual

            with open_worker(values) as worker:
                form = partial(in_force, click.get_current_context())
                look = Look(values["theme"], values["tokens"], values["stats"] is not False)
                return open_chat(worker, store, settings, request, system=system, found=found, form=form, look=look)
        from localspec.cli.converse import line_chat

        with open_worker(values) as worker:
            said = system[0].content if system else None
            current = place(store, settings, said, found)
            open_pair = partial(_open_pair, values, console)
            return line_chat(console, worker, settings, request, current, open_pair, values, found)


def _open_pair(values: dict[str, Any], console: Console, pair: str) -> LoadSettings:
    """Return how to load a pair that was named in the chat."""
    named = {**values, "model": pair, "draft": None}
    return present_settings(promised_settings(named), named, console)
