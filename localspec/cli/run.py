"""`localspec run`: one prompt, one answer."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from localspec.chat.answer_writer import AnswerWriter, empty_form, ending, full_context, unfinished_form
from localspec.chat.opening import refuse_unfinished
from localspec.chat.state import ChatState
from localspec.cli.console import Console, is_terminal
from localspec.cli.engine_options import (
    EngineOptions,
    ServerOptions,
    engine_options,
    promised_of,
    server_options,
    tell_of_keep_alive,
)
from localspec.cli.fetch import present_settings
from localspec.cli.habits import is_model, model_first
from localspec.cli.live import Live
from localspec.cli.option_sources import Integer
from localspec.cli.options import (
    CONVERSATION,
    ConversationOptions,
    PromptOptions,
    ScreenOptions,
    Values,
    conversation_options,
    model_options,
    picked,
    preset_option,
    prompt_options,
    reply_options,
    sampling_options,
    screen_options,
    speculation_options,
)
from localspec.cli.output import JsonSink, Sink, TextSink, ended_by_itself, tell_figures
from localspec.cli.pair_engine import asking
from localspec.cli.params import TYPED, Command, option, stacked
from localspec.cli.settings import (
    PairOptions,
    first_system,
    is_chosen,
    is_typed,
    named_pair,
    open_worker,
    request_settings,
)
from localspec.cli.signals import Stop, deferred, timed
from localspec.cli.store_options import answered, is_going_on, store_for_talking, wanted
from localspec.conversations.records import FAILED, Attachment
from localspec.conversations.store import Store
from localspec.engine.events import Event, Started, Warned
from localspec.errors import UNFINISHED, UsageError
from localspec.models.store import introduction
from localspec.sanitize import one_line
from localspec.settings.request import ANSWER, MOST_LOGPROBS, LoadSettings, Request
from localspec.settings.structure import field_names
from localspec.ui.inputs import Inputs, read_parts
from localspec.ui.mentions import Taken, files_in, missing_in
from localspec.ui.settings import effect_remarks, used_pair
from localspec.ui.stats import Stats
from localspec.worker.shared import SharedWorker

if TYPE_CHECKING:
    from localspec.worker.served import ServedWorker


@dataclass(frozen=True)
class FormatOptions:
    as_json: bool
    as_events: bool
    logprobs: int | None
    is_after_sampler: bool

    def check_format(self) -> None:
        if self.as_json and self.as_events:
            raise UsageError("--json and --events exclude each other", hint="leave one of them out")
        form = "--json" if self.as_json else "--events" if self.as_events else ""
        if self.is_after_sampler and self.logprobs is None:
            hint = f"{form or '--json'} --logprobs 0 --post-sampling"
            raise UsageError("--post-sampling says how --logprobs are told", hint=hint)
        if self.logprobs is not None and not form:
            rest = f"--logprobs {self.logprobs}{' --post-sampling' if self.is_after_sampler else ''}"
            raise UsageError("--logprobs needs an output that has them", hint=f"--json {rest}, or --events {rest}")

    def telling(self, request: Request) -> Request:
        logprobs, is_after = self.logprobs, self.is_after_sampler
        return replace(request, details=self.as_events, logprobs=logprobs, is_after_sampler=is_after)


_add_format = partial(option, section="Output")
format_options = stacked(
    [
        _add_format("--json", "as_json", is_flag=True, help="One JSON object at the end."),
        _add_format(
            "--events",
            "as_events",
            is_flag=True,
            help="Lines of JSON as it goes: start, load, prefill, step, probe, warn, end or error.",
        ),
        _add_format(
            "--logprobs",
            type=Integer(0, MOST_LOGPROBS),
            metavar="N",
            help="In JSON, the log-probability of each token, and the N likeliest at its place.",
        ),
        _add_format(
            "--post-sampling",
            "is_after_sampler",
            is_flag=True,
            help="Log-probabilities after the sampler, not the model's own.",
        ),
    ]
)


@dataclass(frozen=True)
class RunOptions(PromptOptions, ConversationOptions, EngineOptions, ServerOptions, FormatOptions, ScreenOptions):
    cache: bool
    tell_schema: bool

    @property
    def has_tokens(self) -> bool:
        return self.tokens or self.logprobs is not None


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that is decided before a model loads. `words` and `data` are said in the chat `state`."""

    settings: LoadSettings
    request: Request
    warnings: tuple[Warned, ...]
    state: ChatState
    words: str
    data: tuple[Attachment, ...]
    timeout: float | None = None  # what reading the prompt has left of it
    far: ServedWorker | None = None  # who answers, where that is a server


@click.command(
    cls=Command,
    epilog="Every option can be set for good (localspec config --help), or in the environment, as LOCALSPEC_TEMP=0.",
)
@click.argument("prompt", nargs=-1)
@click.option("-p", "--prompt", "text", hidden=True)  # as llama.cpp has it
@preset_option
@model_options
@engine_options
@server_options
@reply_options
@prompt_options
@conversation_options
@option("--cache", section=CONVERSATION, is_flag=True, help="Keep on disk what was read of a --raw prompt, too.")
@speculation_options
@sampling_options
@option("--tell-schema", section=ANSWER.title, is_flag=True, help="Put the schema into the prompt, too.")
@format_options
@screen_options
@click.pass_obj
def run(console: Console, /, prompt: tuple[str, ...], **values: Any) -> int:
    """Answer PROMPT and print the answer.

    If its first word is a pair's name, a .gguf file or hf:..., that is the model, unless --model names one; without a
    prompt a chat opens.

    The words of PROMPT are joined by spaces. Piped text is the prompt if there are no words. Otherwise it is data that
    the words refer to:

    \b
    git diff | localspec run "Write a commit message"

    Prompt and answer are kept, except with --raw: `localspec run -c` continues, `localspec logs` lists them.

    In a loop such as `while read`, keep standard input for the loop:

    \b
    localspec run ... </dev/null
    """
    options = picked(RunOptions, values)
    options.apply(console)
    model, words = _model_and_prompt(prompt, values.pop("text"))
    is_single = options.is_raw or options.file or options.as_json or options.as_events
    if not (words or is_single) and is_terminal(sys.stdin) and is_terminal(sys.stdout):
        return _chat(model)
    values["model"] = named_pair(values["model"], model)
    with _store(options, console) as store, open_worker(options.log_file, options.kept) as own:
        job = plan(words, options, values, console, store, own)
        live = Live(console)
        sink = choose_sink(job, console, live, options)
        console.on_error = sink.fail
        _warn_of_trouble(job.state, console)
        with job.far or own as worker:
            stats, stop = answer(worker, job, sink, live, console)
        sink.finish(stats)
        console.on_error = None  # the output has its end: later errors are for people
        _tell_below(stats, job, options, worker, console)
        if unfinished_form(stats):
            console.warn(unfinished_form(stats, job.request.schema))
            return stop.exit_code or UNFINISHED
        return stop.exit_code


def _tell_below(
    stats: Stats, job: Job, options: RunOptions, worker: SharedWorker | ServedWorker, console: Console
) -> None:
    for warning in (*stats.late, full_context(stats), empty_form(stats, job.request)):
        if warning:
            console.warn(warning)
    _warn_of_trouble(job.state, console)
    has_stats = is_terminal(sys.stderr) and not console.quiet if options.stats is None else options.stats
    if has_stats:
        tell_figures(stats, console, with_plans=options.stats is True)
    if has_stats and options.stats is None and ended_by_itself(stats):
        for sentence in introduction(job.settings, job.request.speculation):
            console.note(sentence, "dim")
    tell_of_keep_alive(worker, console)


def _store(options: RunOptions, console: Console) -> Store:
    if not options.is_raw:
        return store_for_talking(options, console)
    if is_going_on(options):
        raise UsageError("--raw cannot continue a conversation", hint="leave out --raw")
    return Store.open(None)


def _warn_of_trouble(state: ChatState, console: Console) -> None:
    trouble = state.writer.trouble()
    if trouble is not None:
        console.warn(trouble.message)


def plan(
    words: tuple[str, ...], options: RunOptions, values: Values, console: Console, store: Store, worker: SharedWorker
) -> Job:
    """Return the job that words and options ask for; raises before anything is loaded, and reads stdin last."""
    options.check_format()
    former = wanted(store, options)
    pair = PairOptions.of(values)
    held = None if former is None else answered(store, former)
    far = options.served(pair)
    promised = promised_of(far, pair if held is None else pair.of_conversation(held))
    if far is None and promised.missing is None:
        with deferred():
            worker.prepare(promised.settings)  # the pair is here
    request = request_settings(values, promised.settings, None if held is None else held.kept)
    is_new = held is None and far is None and not options.is_raw
    load = promised.settings if is_new else LoadSettings("")
    system, ollamas = first_system(values["system"], load, options.stdin_limit)
    if options.is_raw and system:
        raise UsageError("--raw takes no --system", hint="put the text at the start of the prompt")
    inputs = Inputs(options.stdin_limit, lambda: _tell_wait(console))
    read = partial(read_parts, words, options.file, inputs)
    (spoken, data), left = timed(options.timeout, "reading the prompt", read)
    if options.tell_schema:
        if request.schema is None:
            raise UsageError("--tell-schema needs a schema", hint="--schema 'name, age int'")
        spoken = f"{spoken}\n\nThe answer is JSON of this schema: {request.schema}".lstrip()
    taken = inputs.taken.summary if inputs.taken is not None and inputs.taken.texts else ""
    for line in filter(None, (*ollamas, taken)):
        if not console.quiet:
            console.note(line, "dim")
    text = inputs.prompt_of(spoken, data, is_raw=options.is_raw, is_given=bool(words))
    _tell_of_fields(request, text, console)
    settings = present_settings(promised, console)
    state = ChatState.opened(store, settings, request, system=system, former=former)
    refuse_unfinished(state, hint="wait for its end, or leave out -c")
    if options.is_raw:
        asked = replace(options.without_template(request, text), keeps=options.cache)
    else:  # what begins a conversation may be continued as it is
        asked = replace(state.request_after(state.messages.path(), text), continues=True)
    asked = options.telling(options.predicting(asked))
    used, warnings = _used(settings, request, values)  # the conversation keeps its whole pair
    if options.cache and not options.is_raw:
        line = "--cache has no effect: it is for --raw, and a conversation's prompt is kept anyway"
        warnings += [Warned("no-effect", line)]
    if held is not None and far is None and not is_chosen("model") and not is_chosen("draft"):
        warnings += [Warned("draft", each) for each in held.warnings]
    unread = "@{0} is not read here: -f {1} puts it before the prompt"
    mentioned = (name for name in files_in(spoken) if name not in options.file)
    warnings += [Warned("mention", unread.format(name, shlex.quote(name))) for name in mentioned]
    warnings += [Warned("mention", line) for line in _files_among(words, options.file)]
    warnings += [Warned("mention", line) for line in Taken(missing=missing_in(spoken)).remarks]
    return Job(used, asked, (*inputs.warnings, *warnings), state, spoken, tuple(data), left, far)


def _tell_of_fields(request: Request, text: str, console: Console) -> None:
    names, said = field_names(request.schema), text.casefold()
    is_named = any(name.casefold() in said for name in names)
    if names and not is_named and is_terminal(sys.stderr) and not console.quiet:
        console.note(
            "the model is told nothing of the form: name its fields in the prompt, or add --tell-schema", "dim"
        )


def _files_among(words: tuple[str, ...], read: tuple[str, ...]) -> list[str]:
    files = [word for word in words if (read or "." in word or os.sep in word) and os.path.isfile(word)]
    if not files:
        return []
    names = one_line(files[0]) if len(files) == 1 else f"{one_line(files[0])} and {len(files) - 1} more"
    kind = "is a file" if len(files) == 1 else "are files"
    pattern = f"*{os.path.splitext(files[0])[1]}"
    named = shlex.quote(one_line(files[0]))
    return [f"{names} {kind} whose name is sent as text: -f {named}, or -f {pattern!r} in quotes"]


def _used(settings: LoadSettings, request: Request, values: Values) -> tuple[LoadSettings, list[Warned]]:
    """Return the settings without a draft that nothing will use, and a line for each option without effect."""
    remarks = effect_remarks(request, is_typed, has_draft=settings.draft is not None)
    warnings = [Warned("no-effect", line) for line in remarks]
    used, why = used_pair(settings, request)
    is_named = is_chosen("draft") or "+" in (values["model"] or "")
    return used, [*warnings, *([Warned("draft", why)] if why and is_named else [])]


def _model_and_prompt(words: tuple[str, ...], text: str | None) -> tuple[str | None, tuple[str, ...]]:
    if is_typed("model"):
        model = None
        if words and words[0].lower().endswith(".gguf") and is_model(words[0]):
            hint = "leave one of the two out, or quote the whole prompt"
            raise UsageError(f"the model is named twice: by --model and by {words[0]}", hint=hint)
    else:
        model, words = model_first(words)
    if text is None:
        return model, words
    if words:
        raise UsageError("the prompt is given twice: by --prompt and by words", hint="leave one of the two out")
    return model, (text,)


def _chat(model: str | None) -> int:
    here = click.get_current_context()
    words = list(here.meta[TYPED])
    if model is not None:
        words.remove(model)
        words = ["--model", model, *words]
    assert here.parent is not None
    chat = import_module("localspec.cli.chat").chat  # late: a run needs nothing of it
    with chat.make_context("chat", words, parent=here.parent) as ctx:
        return int(chat.invoke(ctx))


def _tell_wait(console: Console) -> None:
    if is_terminal(sys.stderr) and not console.quiet:
        console.say("reading standard input… (end it with Ctrl-D, or use </dev/null)", "dim")


def choose_sink(job: Job, console: Console, live: Live, options: RunOptions) -> Sink:
    if options.as_json:
        return JsonSink(live, job.settings, job.request, job.state, has_tokens=options.has_tokens)
    if options.as_events:
        from localspec.cli.stream import EventsSink  # late: it brings the fields of JSON

        return EventsSink(live, job.settings, job.request, job.state)
    return TextSink(console, live, control=options.control_chars, has_marks=options.tokens)


def answer(
    worker: SharedWorker | ServedWorker, job: Job, sink: Sink, live: Live, console: Console
) -> tuple[Stats, Stop]:
    stats, writer, reason = Stats(asked_at=time.monotonic()), AnswerWriter(job.state), FAILED
    try:
        with asking(worker, live, console, job.timeout) as engine:
            engine.tell_start(job.settings)
            events = chain(job.warnings, engine.pairs.answer(job.settings, job.request, engine.is_stopped))
            engine.follow(writer.recorded(_said(events, job, writer)), stats, sink)
        reason = stats.finished.reason if stats.finished is not None else reason
    except BaseException as error:
        reason = ending(error)
        raise
    finally:
        from localspec.ui.result import result  # late: the answer goes before it

        writer.finish(reason, result(stats, job.settings, job.request))
    return stats, engine.stop


def _said(events: Iterator[Event], job: Job, writer: AnswerWriter) -> Iterator[Event]:
    for event in events:
        if isinstance(event, Started) and job.request.prompt is None:
            writer.begin(job.state.say(job.words, job.data))
        yield event
