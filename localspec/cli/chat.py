"""`localspec chat`: the full-screen chat on a terminal that can show it, else, or with --plain, the line chat.

The line chat only ever appends, so that it works in any terminal, with a screen reader, in a script.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from localspec.cli.console import Console, OutputGone, is_terminal, wants_plain, write_out
from localspec.cli.described import in_force
from localspec.cli.fetch import fetched, present_settings
from localspec.cli.lines import Lines, history
from localspec.cli.listing import YOU, about, count
from localspec.cli.opened import place, store_for_talking, wanted
from localspec.cli.options import (
    conversation_options,
    model_options,
    reply_options,
    sampling_options,
    screen_options,
    speculation_options,
)
from localspec.cli.params import Command, option
from localspec.cli.settings import load_settings, open_worker, promised_settings, request_settings, system_message
from localspec.cli.signals import INTERRUPTED
from localspec.cli.slash.table import obey
from localspec.cli.talk import Chat
from localspec.config import LoadSettings
from localspec.errors import LocalspecError


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
    """Talk to a pair: full-screen, with live figures; F1 lists the keys.

    What is said is kept while it is said: `localspec chat -c` goes on with it, `localspec logs` lists it.

    With --plain, and where there is no terminal to fill, line by line: /help lists what can be done on the way. Ctrl-C
    stops an answer and keeps what there is of it; Ctrl-D leaves. Lines may also come from a file or a pipe; the exit
    code is then that of the last error, 0 without one.
    """
    console.color, console.quiet, console.log_file = values["color"], values["quiet"], values["log_file"]
    with store_for_talking(values, console) as store:
        found = wanted(store, values)
        settings, missing = promised_settings(values)
        request = request_settings(values, settings)
        system = system_message(values)
        if missing is not None:  # the rest is right: now it is worth a download
            settings = load_settings(values, fetched(missing, values, console))
        if not (wants_plain(values["plain"]) or console.quiet):
            from localspec.tui.launch import Look, open_chat  # late: it brings Textual

            with open_worker(values) as worker:
                form = in_force(click.get_current_context())
                look = Look(values["theme"], values["tokens"], values["stats"] is not False)
                return open_chat(worker, store, settings, request, system=system, found=found, form=form, look=look)
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="replace")
        with open_worker(values) as worker, history(is_kept=values["save"]):
            current = place(store, settings, system[0].content if system else None, found)
            talk = Chat(console, worker, settings, request, current, partial(_open_pair, values, console))
            talk.has_marks = values["tokens"]
            talk.control = values["control_chars"]
            if values["stats"] is not None:
                talk.has_stats = values["stats"]
            talk.tell_trouble()
            if found is not None and is_terminal(sys.stdin) and not console.quiet:
                console.say(f"{about(found)} · {count(found.n_messages)}", "dim")
            return converse(talk, Lines())


def _open_pair(values: dict[str, Any], console: Console, pair: str) -> LoadSettings:
    """Return how to load a pair that was named in the chat."""
    return present_settings({**values, "draft": None}, pair, console)


def converse(chat: Chat, lines: Lines) -> int:
    """Read and answer until the end of input; return the exit code: of a script its last error's."""
    if is_terminal(sys.stdin) and not chat.console.quiet:
        chat.console.say(f"localspec · {chat.settings.name} · /help, Ctrl-D to leave", "dim")
    was_interrupted, code = False, 0
    while not chat.is_over:
        try:
            text = lines.read(YOU)
            was_interrupted = False
        except KeyboardInterrupt:
            write_out("\n")
            if was_interrupted:
                return INTERRUPTED
            was_interrupted = True
            chat.console.say("Ctrl-C again or Ctrl-D to leave", "dim")
            continue
        if text is None:
            if is_terminal(sys.stdin):
                write_out("\n")
            break
        code = _take(chat, text) or code
    return 0 if is_terminal(sys.stdin) else code


def _take(chat: Chat, text: str) -> int:
    """Obey a command or send a message; return the exit code of an error, which ends neither chat nor conversation."""
    if not is_terminal(sys.stdin) and not chat.console.quiet and text.strip():
        write_out(f"{YOU}{text}\n")  # a transcript has both sides
    try:
        if text.startswith("/") and not text.startswith("//"):
            obey(chat, text)
        elif text.strip():
            chat.send(text[1:] if text.startswith("//") else text)
    except OutputGone:
        raise
    except LocalspecError as error:
        chat.console.fail(error)
        return error.exit_code
    return 0
