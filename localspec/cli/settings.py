"""From what click collected to settings.

Values that need no model are checked before a file is opened.

With `--verifier` an edge is loaded. The verifier says what it holds; its vocabulary is fetched and kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

from localspec.cli.console import Console
from localspec.cli.option_sources import is_from_preset, of_model
from localspec.cli.options import PromptOptions, Values, collected
from localspec.cli.store_options import PairOfConversation
from localspec.conversations.sending import KeptSettings
from localspec.errors import NotFoundError, UsageError
from localspec.models.names import DraftChoice, parse
from localspec.models.ollama import OllamaModel, in_pair
from localspec.models.store import NotCachedError, PairRef, parse_pair, usual_speculation
from localspec.sanitize import shown
from localspec.settings.declaration import declaration, declared
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation
from localspec.settings.sizes import counted
from localspec.settings.values import verifier_of
from localspec.ui.inputs import MAX_FILE, Inputs, read_prompt, text_or_file
from localspec.ui.settings import check, check_form, with_template
from localspec.worker.keep_policy import KeepAlive
from localspec.worker.shared import SharedWorker

DRAFTING = ("method", "tree", "k", "length", "options")  # of `Speculation`: how and how much to draft
WITH_VERIFIER = ("run", "chat", "race", "serve")  # commands whose target may be on another machine
_NO_DRAFTS = (DraftChoice.NONE, DraftChoice.UNSET)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PairOptions:
    """Which pair is meant, and how it is loaded. `load` names no files yet. `takes_draft`: where no draft is named, one
    that pays and is on this machine is taken, as by the picker. `must_draft`: one that loses, too. `is_held`: the pair
    is a conversation's, and nobody typed it."""

    model: str | None
    draft: str | None
    yes: bool
    offline: bool
    load: LoadSettings
    takes_draft: bool = False
    must_draft: bool = False
    is_held: bool = False

    @staticmethod
    def of(values: Values, pair: str | None = None) -> PairOptions:
        load = collected(LoadSettings, values, target="")
        load.check()
        model = named_pair(values.get("model"), pair)
        must = values.get("method") == "draft-model"
        return PairOptions(model, values["draft"], values["yes"], values["offline"], load, must, must)

    def of_conversation(self, held: PairOfConversation) -> PairOptions:
        """Return the options with the pair of a conversation, unless another was typed. It goes before a pair that is
        set for good. A draft that is typed alone drafts for the conversation's target. Raises NotFoundError where an
        adapter of the conversation is gone."""
        if is_chosen("model"):
            return self
        load = replace(self.load, expected=held.expected)
        if held.kept is not None and not is_chosen("lora"):
            for path, _ in held.kept.lora:
                if not os.path.exists(path):
                    message = f"{path} does not exist, and this conversation was held with that adapter"
                    raise NotFoundError(message, hint="-m MODEL goes on without it")
            load = held.kept.load(load)
        draft = self.draft if is_chosen("draft") else None
        return replace(self, model=held.pair, draft=draft, load=load, is_held=True)

    def settings(self, pair: PairRef) -> LoadSettings:
        target, draft = str(pair.target.absolute()), None if pair.draft is None else str(pair.draft.absolute())
        return replace(self.load, target=target, draft=draft, name=pair.name)


@dataclass(frozen=True, slots=True)
class Promised:
    """Settings to load a pair with. `missing` are the files to pull first, `remark` is the pair's. Until then the
    settings are enough to check everything else before a long download, and no more."""

    options: PairOptions
    settings: LoadSettings
    missing: NotCachedError | None = None
    remark: str = ""


def promised_settings(options: PairOptions) -> Promised:
    """Return how to load the pair that --model and --draft name; with --verifier they name the draft alone."""
    if options.load.verifier is not None and not _takes_verifier():
        options = replace(options, load=replace(options.load, verifier=None))  # set for good, for other commands
    if options.load.verifier is not None:
        named = options.model if is_chosen("model") else None
        if named is not None and options.draft is not None:
            hint = f"--verifier {options.load.verifier} -m {options.draft}"
            raise UsageError("the verifier has the target, so one model is named here: the draft", hint=hint)
        return Promised(options, edge_settings(options.load, options.draft or named))
    far = verifier_of(options.model or "") if options.is_held else None
    if far is not None:
        message = f"this conversation was held with the verifier at {shown(far)}"
        raise UsageError(message, hint=f"--verifier {shown(far)} goes on with it, -m MODEL with another")
    model, draft = model_and_draft(options.model, options.draft)
    try:
        if options.takes_draft and model is not None and draft is None:
            from localspec.models.available import find  # late: it brings the catalogue

            parsed = find(model, must_draft=options.must_draft)
        else:
            parsed = parse_pair(model, draft, must_draft=options.must_draft)
        return Promised(options, options.settings(parsed), remark=parsed.remark)
    except NotCachedError as missing:
        wanted = missing.pair.draft
        name = None if wanted in _NO_DRAFTS else str(wanted)
        load = replace(options.load, target=str(missing.pair.target), draft=name, name=str(missing.pair))
        return Promised(options, load, missing)
    except NotFoundError as error:
        if not options.is_held:
            raise
        message = f"{error.message}, and this conversation was held with it"
        raise NotFoundError(message, hint="-m MODEL goes on with another") from None


def _takes_verifier() -> bool:
    """Whether the command can leave the target to a verifier; raises UsageError where that was typed in vain."""
    name = click.get_current_context().info_name
    if name in WITH_VERIFIER or not is_typed("verifier"):
        return name in WITH_VERIFIER
    message = f"localspec {name} reads the target's own rows, which stay with a verifier"
    raise UsageError(message, hint="leave out --verifier, or ask on that machine")


def request_settings(values: Values, settings: LoadSettings, held: KeptSettings | None = None) -> Request:
    """Return a request without its prompt, checked as far as that goes without a model.

    What a conversation keeps goes before all that was not chosen for this command.
    """
    begun = of_model(click.get_current_context(), in_pair(settings))
    sampling = _with_models_own(collected(Sampling, values), begun)
    request = collected(Request, values, sampling=sampling, speculation=_speculation(values, settings))
    request = _with_models_own(request, begun)
    if request.template is not None:
        request = with_template(request, request.template)
    if held is not None:
        request = held.request(request, [each.name for each in fields(Request) if is_chosen(each.name)])
    check(request, settings)
    check_form(request)
    return request


def _speculation(values: Values, settings: LoadSettings) -> Speculation:
    asked, usual = collected(Speculation, values), usual_speculation(settings)
    return replace(asked, method=usual.method, k=usual.k) if is_drafting_open() else asked


def is_drafting_open() -> bool:
    return all(source_of(name) is ParameterSource.DEFAULT for name in DRAFTING)


def system_message(text: str | None, limit: int = MAX_FILE) -> tuple[Message, ...]:
    system = text_or_file("--system", text, limit)
    return () if not system else (Message("system", system),)


def first_system(text: str | None, load: LoadSettings, limit: int = MAX_FILE) -> tuple[str | None, list[str]]:
    """Return the system message of a new conversation, and lines on what Ollama puts before it and nobody typed."""
    model = in_pair(load)
    lines = of_ollamas(model)
    if text is None and model is not None and model.system:
        return model.system, [f"{lines[0]}; -s '' leaves it out", *lines[1:]]
    messages = system_message(text, limit)
    return (messages[0].content if messages else None), lines[bool(model and model.system) :]


def of_ollamas(model: OllamaModel | None) -> list[str]:
    """Return a line on each thing that Ollama puts before a conversation with a model."""
    if model is None:
        return []
    name, n = shown(model.name), len(model.messages)
    begin = f"{counted(n, 'message')} of Ollama's {name} {'goes' if n == 1 else 'go'} before yours"
    return [*([f"the system message is Ollama's, of {name}"] if model.system else []), *([begin] if n else [])]


def _with_models_own(settings: T, begun: Values) -> T:
    names = {each.name for each in declared(type(settings))} & begun.keys()
    changed: T = replace(settings, **{name: begun[name] for name in names})  # type: ignore[type-var]  # a dataclass
    return changed


def prompted_request(
    words: tuple[str, ...],
    options: PromptOptions,
    system: str | None,
    request: Request,
    console: Console,
    command: str,
) -> Request:
    """Return `request` with its prompt, as `localspec run` reads it; `system` is --system, `command` as in `Inputs`."""
    messages = system_message(system, options.stdin_limit)
    inputs = Inputs(options.stdin_limit, command=command)
    text = read_prompt(words, options.file, inputs, is_raw=options.is_raw)
    for warned in inputs.warnings:
        console.warn(warned.message)
    if not options.is_raw:
        return replace(request, messages=(*messages, Message("user", text)))
    if messages:
        raise UsageError("--raw takes no --system", hint="put the text at the start of the prompt")
    return options.without_template(request, text)


def open_worker(log_file: str | None, keep_alive: KeepAlive | None = None) -> SharedWorker:
    """Return a worker that logs where --log-file says; it starts when it is first asked for something."""
    by = str(click.get_current_context().info_name)
    return SharedWorker(by, log_file=None if log_file is None else Path(log_file), keep_alive=keep_alive)


def rpc_servers(text: str | None) -> tuple[str, ...]:
    servers: tuple[str, ...] = declaration(LoadSettings, "rpc").value(text)
    return servers


def is_typed(name: str) -> bool:
    """Whether the command line itself gives an option, and not the environment or config.toml."""
    return source_of(name) is ParameterSource.COMMANDLINE


def is_chosen(name: str) -> bool:
    return is_typed(name) or is_from_preset(click.get_current_context(), name)


def named_pair(model: str | None, pair: str | None) -> str | None:
    if pair is None:
        return model
    if is_typed("model"):
        raise UsageError("the pair is named twice, as PAIR and in --model", hint="leave one of the two out")
    click.get_current_context().set_parameter_source("model", ParameterSource.COMMANDLINE)
    return pair


def model_and_draft(model: str | None, draft: str | None) -> tuple[str | None, str | None]:
    """Return --model and --draft such that one of them names the draft: the one that counts more. Two that are said in
    the same place are left as they are, for `parse_pair` to refuse."""
    if model is None or draft is None:
        return model, draft
    pair = parse(model)
    if pair.draft is DraftChoice.UNSET or source_of("model") is source_of("draft"):
        return model, draft
    return (model, None) if source_of("model") < source_of("draft") else (str(pair.target), draft)


def source_of(name: str) -> ParameterSource:
    return click.get_current_context().get_parameter_source(name) or ParameterSource.DEFAULT


def edge_settings(load: LoadSettings, draft: str | None) -> LoadSettings:
    """Return how to load an edge whose draft is called so, None for copies alone."""
    from localspec.models.available import edge_draft  # late: few targets are elsewhere

    return drafting_for(load, edge_draft(draft))


def drafting_for(load: LoadSettings, drafting: Path | None) -> LoadSettings:
    from localspec.remote.connection import Address, Connection  # late, as above
    from localspec.remote.vocabulary import fetched, look

    assert load.verifier is not None
    connection = Connection.open(Address(load.verifier, load.verifier_key_file, load.verifier_ca))
    try:
        facts = look(connection)
        target = fetched(connection, facts)
    finally:
        connection.close()
    name = f"{facts.name} at {connection.address.name}" + ("" if drafting is None else f"+{drafting.stem}")
    return replace(load, target=str(target), draft=None if drafting is None else str(drafting.absolute()), name=name)


def draft_alone(load: LoadSettings) -> LoadSettings | None:
    if load.draft is None:
        return None
    here = replace(load, verifier=None, verifier_key_file=None, verifier_ca=None)
    return replace(here, target=load.draft, draft=None, name=Path(load.draft).stem)
