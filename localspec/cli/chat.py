"""`localspec chat`: the full-screen chat on a terminal that can show it, else, or with --plain, the line chat.

Each is imported only when it opens, since the user waits for the first picture.
"""

import gc
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from localspec.chat.state import ChatState
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, is_terminal, wants_plain
from localspec.cli.engine_options import EngineOptions, ServerOptions, engine_options, promised_of, server_options
from localspec.cli.fetch import present_settings
from localspec.cli.options import (
    ConversationOptions,
    ScreenOptions,
    conversation_options,
    model_options,
    picked,
    preset_option,
    reply_options,
    sampling_options,
    screen_options,
    speculation_options,
)
from localspec.cli.params import Command, option
from localspec.cli.settings import (
    PairOptions,
    Promised,
    first_system,
    is_chosen,
    is_typed,
    open_worker,
    promised_settings,
    request_settings,
)
from localspec.cli.settings_table import in_force
from localspec.cli.store_options import answered, store_for_talking, wanted
from localspec.errors import LocalspecError
from localspec.models.candidates import require_sound
from localspec.models.recent import recent_pairs
from localspec.settings.request import LoadSettings
from localspec.ui.settings import effect_remarks


@dataclass(frozen=True)
class ChatOptions(ConversationOptions, EngineOptions, ServerOptions, ScreenOptions):
    system: str | None
    plain: bool
    theme: str
    read_ahead: str


@click.command(cls=Command)
@click.argument("pair", required=False, shell_complete=pair_names)
@preset_option
@model_options
@engine_options
@server_options
@reply_options
@conversation_options
@speculation_options
@sampling_options
@screen_options
@option("--plain", is_flag=True, section="Output", help="Line by line, as for screen readers, scripts and TERM=dumb.")
@option("--theme", type=click.Choice(["auto", "dark", "light"]), default="auto", section="Output",
        help="Colours of the full screen.  [default: auto, as the terminal's background]")  # fmt: skip
@option("--read-ahead", type=click.Choice(["auto", "on", "off"]), default="auto", section="Output",
        help="Read your message while you type it.  [default: auto, except on battery]")  # fmt: skip
@click.pass_obj
def chat(console: Console, /, pair: str | None, **values: Any) -> int:
    """Chat with PAIR: full-screen, with live figures; F1 lists the keys.

    Without PAIR, and with no model in config.toml, the pair of the last chat opens again.

    Conversations are kept while they are written: `localspec chat -c` continues, `localspec logs` lists them. What is
    typed and not sent comes back in the next new chat, or with its conversation. A line of options, such as --temp 0,
    sets them.

    With --plain or -q, and without a terminal, the chat is line by line; /help lists its commands. Ctrl-C stops an
    answer and keeps the text so far. Ctrl-D leaves. Lines may also come from a file or a pipe. Then Ctrl-C ends the
    chat, and the exit code is that of the last error, or 0.
    """
    options = picked(ChatOptions, values)
    options.apply(console)
    with store_for_talking(options, console) as store:
        former = wanted(store, options)
        wished = PairOptions.of(values, pair)
        held = None if former is None else answered(store, former)
        if held is not None:
            wished = wished.of_conversation(held)
            if not options.server and not is_chosen("model") and not is_chosen("draft"):
                for each in held.warnings:
                    console.warn(each)
        far = options.served(wished)
        is_named = former is not None or far is not None
        promised = promised_of(far, wished) if is_named else _last_or(wished, console)
        request = request_settings(values, promised.settings, None if held is None else held.kept)
        said, ollamas = first_system(options.system, LoadSettings("") if is_named else promised.settings)
        settings = present_settings(promised, console)
        opened = partial(
            ChatState.opened, system=said, former=former, in_idle="off" if far else options.read_ahead,
            settings_at_start=partial(in_force, click.get_current_context()),
        )  # fmt: skip
        remarks = [*ollamas, *effect_remarks(request, is_typed, has_draft=settings.draft is not None)]
        if not wants_plain(options.plain or is_typed("quiet")):
            gc.disable()  # until the first picture: nothing that is imported is garbage, and looking for it takes time
            from localspec.tui.launch import open_chat  # late: it brings Textual

            with far or open_worker(options.log_file, options.kept) as worker:
                state = opened(store, settings, request, in_background=True)
                state.remarks += [*console.warned, *remarks]
                has_figures = options.stats is not False
                return open_chat(worker, state, theme=options.theme, has_tokens=options.tokens, has_figures=has_figures)
        from localspec.cli.converse import open_line_chat

        with far or open_worker(options.log_file, options.kept) as worker:
            state = opened(store, settings, request)
            state.remarks += remarks
            open_pair = partial(_open_pair, wished, console) if far is None else None
            return open_line_chat(console, worker, state, open_pair, options, former, is_kept=options.save)


def _last_or(options: PairOptions, console: Console) -> Promised:
    last = next(iter(recent_pairs()), None)
    if options.model is None and options.draft is None and last is not None and is_terminal(sys.stdin):
        try:
            return promised_settings(replace(options, model=last.pair))
        except LocalspecError as error:
            console.warn(f"the last pair, {last.name}, cannot be opened: {error.message}")
    return promised_settings(options)


def _open_pair(options: PairOptions, console: Console, pair: str) -> LoadSettings:
    settings = present_settings(promised_settings(replace(options, model=pair, draft=None, takes_draft=True)), console)
    require_sound(Path(settings.target), None if settings.draft is None else Path(settings.draft))
    return settings
