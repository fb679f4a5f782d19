"""`localspec run`: one prompt, one answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from localspec.cli.answer import follow, generate, load, tell, warn_if_full
from localspec.cli.console import Console, is_terminal
from localspec.cli.fetch import fetched
from localspec.cli.inputs import Inputs, read_prompt
from localspec.cli.live import Live
from localspec.cli.options import (
    format_options,
    model_options,
    prompt_options,
    reply_options,
    sampling_options,
    screen_options,
    speculation_options,
)
from localspec.cli.output import JsonSink, Sink, TextSink
from localspec.cli.params import Command
from localspec.cli.settings import (
    load_settings,
    open_worker,
    promised_settings,
    request_settings,
    stdin_limit,
    system_message,
)
from localspec.cli.signals import Stop, leave_at_once, stopping
from localspec.cli.stream import EventsSink
from localspec.config import LoadSettings, Message, Request
from localspec.errors import UsageError
from localspec.events import Event, Finished, Warned
from localspec.stats import Stats
from localspec.worker import Worker


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that is decided before a model loads."""

    settings: LoadSettings
    request: Request
    warnings: tuple[Warned, ...]


@click.command(
    cls=Command,
    epilog="Every option can be set in the environment too, LOCALSPEC_TEMP=0, or for good: localspec config --help.",
)
@click.argument("prompt", nargs=-1)
@model_options
@reply_options
@prompt_options
@speculation_options
@sampling_options
@format_options
@screen_options
@click.pass_obj
def run(console: Console, /, prompt: tuple[str, ...], **values: Any) -> int:
    """Answer PROMPT and print the answer.

    The words of PROMPT are joined by spaces. What is piped in is the prompt if there are no words, and otherwise data
    that the words are about:  git diff | localspec run "Write a commit message"

    A loop that reads standard input itself, as `while read`, has to keep it to itself:  localspec run ... </dev/null
    """
    console.color, console.quiet, console.log_file = values["color"], values["quiet"], values["log_file"]
    job = plan(prompt, values, console)
    live = Live(console)
    sink = choose_sink(job, console, live, values)
    console.on_error = sink.fail
    with open_worker(values) as worker:
        stats, stop = answer(worker, job, sink, live, console, values["timeout"])
    sink.finish(stats)
    warn_if_full(stats, console)
    has_stats = values["stats"] if values["stats"] is not None else is_terminal(sys.stderr) and not console.quiet
    if has_stats:
        tell(stats, console)
    return stop.exit_code


def plan(words: tuple[str, ...], values: dict[str, Any], console: Console) -> Job:
    """Return the job that words and options ask for; raises before anything is loaded, and reads stdin last."""
    if values["as_json"] and values["as_events"]:
        raise UsageError("--json and --events are two forms of one output", hint="leave one of them out")
    settings, missing = promised_settings(values)
    request = request_settings(values, settings)
    system = system_message(values)
    inputs = Inputs(stdin_limit(values), lambda: _tell_wait(console))
    text = read_prompt(words, values["file"], inputs, is_raw=values["raw"])
    if values["raw"]:
        if system:
            raise UsageError("--raw has no place for --system", hint="put the text at the start of the prompt")
        request = replace(request, prompt=text)
    else:
        request = replace(request, messages=(*system, Message("user", text)))
    if missing is not None:  # the rest is right: now it is worth a download
        settings = load_settings(values, fetched(missing, values, console))
    return Job(settings, replace(request, details=values["as_events"]), tuple(inputs.warnings))


def _tell_wait(console: Console) -> None:
    """Say why nothing happens: somebody has left standard input open, perhaps without meaning to."""
    if is_terminal(sys.stderr) and not console.quiet:
        console.say("reading standard input… (end it with Ctrl-D, or use </dev/null)", "dim")


def choose_sink(job: Job, console: Console, live: Live, values: dict[str, Any]) -> Sink:
    """Return the form of output that the options ask for."""
    if values["as_json"]:
        return JsonSink(live, job.settings, job.request, has_tokens=values["tokens"])
    if values["as_events"]:
        return EventsSink(live, job.settings, job.request)
    return TextSink(console, live, control=values["control_chars"], has_marks=values["tokens"])


def answer(
    worker: Worker, job: Job, sink: Sink, live: Live, console: Console, timeout: float | None
) -> tuple[Stats, Stop]:
    """Load, generate, and write what comes; a Ctrl-C or the timeout ends it with the text so far."""
    stats = Stats()
    try:
        with stopping(worker.cancel, leave_at_once(live.erase), timeout) as stop:
            live.status("starting the engine")
            follow(_events(worker, job, stop), stats, sink, live, console, stop)
    finally:
        live.erase()
    return stats, stop


def _events(worker: Worker, job: Job, stop: Stop) -> Iterator[Event]:
    """Yield everything from the first warning to Finished; nothing is generated once a load was cancelled."""
    yield from job.warnings
    for event in load(worker, job.settings, stop):
        yield event
        if isinstance(event, Finished):
            return
    yield from generate(worker, job.request, stop)
