"""`localspec run`: one prompt, one answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from localspec.cli.answer import follow, generate, load, tell, warn_if_full
from localspec.cli.answer_writer import Record
from localspec.cli.console import Console, is_terminal
from localspec.cli.fetch import present_settings
from localspec.cli.live import Live
from localspec.cli.options import (
    conversation_options,
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
    open_worker,
    promised_settings,
    request_settings,
    stdin_limit,
    system_message,
)
from localspec.cli.signals import Stop, leave_at_once, stopping
from localspec.cli.store_options import is_going_on, place, store_for_talking, wanted
from localspec.cli.stream import EventsSink
from localspec.conversations.attachment import Attachment
from localspec.conversations.current import Current
from localspec.conversations.store import Store
from localspec.engine.events import Event, Finished, Started, Warned
from localspec.errors import UsageError
from localspec.settings.request import LoadSettings, Request
from localspec.ui.inputs import Inputs, prompt_of, read_parts
from localspec.ui.result import result
from localspec.ui.stats import Stats
from localspec.worker.client import Worker


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that is decided before a model loads. `words` and `data` are what is said, at the place `current`."""

    settings: LoadSettings
    request: Request
    warnings: tuple[Warned, ...]
    current: Current
    words: str
    data: tuple[Attachment, ...]


@click.command(
    cls=Command,
    epilog="Every option can be set in the environment too, as LOCALSPEC_TEMP=0, or for good: localspec config --help.",
)
@click.argument("prompt", nargs=-1)
@model_options
@reply_options
@prompt_options
@conversation_options
@speculation_options
@sampling_options
@format_options
@screen_options
@click.pass_obj
def run(console: Console, /, prompt: tuple[str, ...], **values: Any) -> int:
    """Answer PROMPT and print the answer.

    The words of PROMPT are joined by spaces. Piped text is the prompt if there are no words. Otherwise it is data that
    the words refer to:  git diff | localspec run "Write a commit message"

    Prompt and answer are kept, except with --raw: `localspec run -c` continues, `localspec logs` lists them.

    In a loop such as `while read`, keep standard input for the loop:  localspec run ... </dev/null
    """
    console.color, console.quiet, console.log_file = values["color"], values["quiet"], values["log_file"]
    with _store(values, console) as store:
        job = plan(prompt, values, console, store)
        live = Live(console)
        sink = choose_sink(job, console, live, values)
        console.on_error = sink.fail
        _warn_of_trouble(store, console)
        with open_worker(values) as worker:
            stats, stop = answer(worker, job, sink, live, console, values["timeout"])
        sink.finish(stats)
        console.on_error = None  # the output has its end: what goes wrong from here on is told to people
        warn_if_full(stats, console)
        _warn_of_trouble(store, console)
        has_stats = values["stats"] if values["stats"] is not None else is_terminal(sys.stderr) and not console.quiet
        if has_stats:
            tell(stats, console, with_plans=values["stats"] is True)
        return stop.exit_code


def _store(values: dict[str, Any], console: Console) -> Store:
    """Return where the conversation is kept; a raw prompt is none."""
    if not values["raw"]:
        return store_for_talking(values, console)
    if is_going_on(values):
        raise UsageError("--raw cannot continue a conversation", hint="leave out --raw")
    return Store.open(None)


def _warn_of_trouble(store: Store, console: Console) -> None:
    trouble = store.trouble()
    if trouble is not None:
        console.warn(trouble.message)


def plan(words: tuple[str, ...], values: dict[str, Any], console: Console, store: Store) -> Job:
    """Return the job that words and options ask for; raises before anything is loaded, and reads stdin last."""
    if values["as_json"] and values["as_events"]:
        raise UsageError("--json and --events exclude each other", hint="leave one of them out")
    _refuse_model(words)
    found = wanted(store, values)
    promised = promised_settings(values)
    request = request_settings(values, promised[0])
    system = system_message(values)
    if values["raw"] and system:
        raise UsageError("--raw takes no --system", hint="put the text at the start of the prompt")
    inputs = Inputs(stdin_limit(values), lambda: _tell_wait(console))
    spoken, data = read_parts(words, values["file"], inputs)
    text = prompt_of(spoken, data, is_raw=values["raw"], is_given=bool(words))
    settings = present_settings(promised, values, console)
    current = place(store, settings, system[0].content if system else None, found)
    asked = replace(request, prompt=text) if values["raw"] else replace(request, messages=current.to_send_with(text))
    asked = replace(asked, details=values["as_events"])
    return Job(settings, asked, tuple(inputs.warnings), current, spoken, tuple(data))


def _refuse_model(words: tuple[str, ...]) -> None:
    """Raise UsageError for a model where the prompt begins: that is where other programs have it."""
    parts = words[0].split("+") if words else [""]
    if all(part.endswith(".gguf") and os.path.isfile(part) for part in parts):
        hint = f'localspec run -m {words[0]} "Once upon a time", or quote the whole prompt if it is one'
        raise UsageError(f"{words[0]} is a model, not the beginning of a prompt", hint=hint)


def _tell_wait(console: Console) -> None:
    """Say why nothing happens: somebody has left standard input open, perhaps without meaning to."""
    if is_terminal(sys.stderr) and not console.quiet:
        console.say("reading standard input… (end it with Ctrl-D, or use </dev/null)", "dim")


def choose_sink(job: Job, console: Console, live: Live, values: dict[str, Any]) -> Sink:
    """Return the form of output that the options ask for."""
    if values["as_json"]:
        return JsonSink(live, job.settings, job.request, job.current, has_tokens=values["tokens"])
    if values["as_events"]:
        return EventsSink(live, job.settings, job.request, job.current)
    return TextSink(console, live, control=values["control_chars"], has_marks=values["tokens"])


def answer(
    worker: Worker, job: Job, sink: Sink, live: Live, console: Console, timeout: float | None
) -> tuple[Stats, Stop]:
    """Load, generate, and write what comes; a Ctrl-C or the timeout ends it with the text so far."""
    stats, record, reason = Stats(), Record(job.current), "error"
    try:
        with stopping(worker.cancel, leave_at_once(live.erase), timeout) as stop:
            live.status("starting the engine")
            follow(_recorded(_events(worker, job, stop), job, record), stats, sink, live, console, stop)
        reason = stats.finished.reason if stats.finished is not None else reason
    finally:
        live.erase()
        record.finish(reason, result(stats, job.settings, job.request))
    return stats, stop


def _recorded(events: Iterator[Event], job: Job, record: Record) -> Iterator[Event]:
    """Keep what was asked once it is being answered, and what comes before it is shown; of a raw prompt nothing."""
    for event in events:
        if job.request.prompt is None:
            if isinstance(event, Started):
                job.current.ask(job.words, job.data)
            record.event(event)
        yield event


def _events(worker: Worker, job: Job, stop: Stop) -> Iterator[Event]:
    """Yield everything from the first warning to Finished; nothing is generated once a load was cancelled."""
    yield from job.warnings
    for event in load(worker, job.settings, stop):
        yield event
        if isinstance(event, Finished):
            return
    yield from generate(worker, job.request, stop)
