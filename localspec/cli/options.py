"""The options that commands share, as the help lists them, and their values as typed objects.

Options of settings are made from the declarations in `settings/request.py`; the others are declared here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeVar

import click

from localspec.cli.complete import conversation_ids, pair_names
from localspec.cli.console import Console
from localspec.cli.option_sources import Integer, Length, Number
from localspec.cli.params import F, option, stacked
from localspec.settings.declaration import Group, Option, declaration, declared
from localspec.settings.presets import preset_names
from localspec.settings.request import (
    ANSWER,
    MODEL,
    SAMPLING,
    SPECULATION,
    LoadSettings,
    Request,
    Sampling,
    Speculation,
)
from localspec.speculation import axis_names
from localspec.ui.inputs import text_or_file

T = TypeVar("T")
CONVERSATION = "Conversation (see: localspec logs)"  # a section of the help
Values = Mapping[str, Any]  # what click collected, by parameter


@dataclass(frozen=True)
class ReportOptions:
    quiet: bool
    color: str
    log_file: str | None

    def apply(self, console: Console) -> None:
        console.color, console.quiet, console.log_file = self.color, self.quiet, self.log_file


@dataclass(frozen=True)
class ScreenOptions(ReportOptions):
    """Values of the options that say how an answer is shown; `stats` None leaves it to the terminal."""

    tokens: bool
    stats: bool | None
    control_chars: str


@dataclass(frozen=True)
class PromptOptions:
    raw: bool
    suffix: str | None
    prediction: str | None
    file: tuple[str, ...]
    max_stdin: float
    timeout: float | None

    @property
    def stdin_limit(self) -> int:
        return int(self.max_stdin * 2**20)

    @property
    def is_raw(self) -> bool:
        """Whether the prompt goes to the model without a chat template: a text with a gap has none."""
        return self.raw or self.suffix is not None

    def without_template(self, request: Request, text: str) -> Request:
        return replace(request, prompt=text, suffix=text_or_file("--suffix", self.suffix, self.stdin_limit))

    def predicting(self, request: Request) -> Request:
        return replace(request, prediction=text_or_file("--prediction", self.prediction, self.stdin_limit))


@dataclass(frozen=True)
class ConversationOptions:
    is_continued: bool
    session: str | None
    save: bool


def picked(holder: type[T], values: Values) -> T:
    kind: Any = holder
    made: T = kind(**{each.name: values[each.name] for each in fields(kind)})
    return made


def collected(holder: type[T], values: Values, **rest: Any) -> T:
    kind: Any = holder
    made: T = kind(**{each.name: each.value(values[each.name]) for each in declared(kind)}, **rest)
    return made


def declared_options(holder: type[Any], group: Group, **changes: Values) -> list[Any]:
    """Return the options of the settings in a group that a dataclass declares. `changes` say, by field, in what a
    command differs: max_tokens={"default": 128}."""
    return [_option(replace(each, **changes.get(each.name, {}))) for each in declared(holder) if each.group is group]


def declared_option(holder: type[Any], field: str, **changes: Any) -> Callable[[F], F]:
    made: Callable[[F], F] = _option(replace(declaration(holder, field), **changes))
    return made


def _option(each: Option) -> Any:
    default = None if each.is_repeated or each.default == () else each.default
    flags = list(each.flags)
    if each.kind == "switch" and each.default:
        flags = [f"{flags[0]}/--no-{each.key}"]
    is_choice = bool(each.choices) and each.parse is None
    types = {
        "integer": Length() if each.is_length else Integer(),
        "number": Number(),
        "text": click.Choice(each.choices) if is_choice else str,
    }
    taken: dict[str, Any] = {"is_flag": True} if each.kind == "switch" else {"type": types[each.kind]}
    names = partial(axis_names, each.name) if each.is_axis else (lambda: each.choices) if each.choices else None
    return option(
        *flags,
        each.name,
        aliases=each.aliases,
        section=each.group.title,
        default=each.nothing if default is None and each.nothing in each.choices else default,
        multiple=each.is_repeated,
        metavar=each.metavar or {"integer": "N", "number": "F"}.get(each.kind),
        declaration=each,
        check=partial(_check, each),
        names=names,
        help=each.full_help,
        **taken,
    )


def _check(each: Option, given: Any) -> None:
    value = each.value(given)
    each.check(value)
    if each.is_axis and value != each.default:
        from localspec.speculation.resolve import check_axis  # late: it brings numpy, and the defaults are right

        check_axis(each.name, value)


def draft_option(group: Group) -> Callable[[F], F]:
    return option(
        "-d",
        "--draft",
        aliases=["--draft-model", "-md", "--model-draft", "-hfd", "--hf-repo-draft"],
        section=group.title,
        metavar="NAME",
        shell_complete=pair_names,
        help="The draft model or head; 'auto' picks one, 'none' loads none.",
    )


_answer, _talk, _output = (partial(option, section=each) for each in (ANSWER.title, CONVERSATION, "Output"))
_model = option(
    "-m",
    "--model",
    aliases=["-hf", "-hfr", "--hf-repo"],
    section=MODEL.title,
    metavar="PAIR",
    shell_complete=pair_names,
    help="A pair's name (localspec pairs), TARGET.gguf, hf:ORG/REPO:QUANT, or TARGET+DRAFT of these.  "
    "[default: storyteller]",
)
_system = _answer("-s", "--system", aliases=["-sys", "--system-prompt"], metavar="TEXT|@FILE", help="System message.")
_save = _talk("--save/--no-save", default=True, help="Keep the conversation, or write nothing.  [default: save]")
_quiet = _output("-q", "--quiet", is_flag=True, help="The answer and errors, nothing else.")
_color = _output(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Colour.  [default: auto, which respects NO_COLOR]",
)
_log_file = _output("--log-file", metavar="FILE", help="File for llama.cpp's log and tracebacks.")

pair_options = stacked(  # where the pair is an argument
    [
        draft_option(MODEL),
        option("-y", "--yes", is_flag=True, section=MODEL.title, help="Download missing models without a question."),
        option("--offline", is_flag=True, section=MODEL.title, help="Download nothing."),
        *declared_options(LoadSettings, MODEL),
    ]
)
model_options = stacked([_model, pair_options])
preset_option = option(  # which is read first, since the others ask what the preset says
    "-P",
    "--preset",
    section=MODEL.title,
    metavar="NAME",
    is_eager=True,
    names=preset_names,
    help="Take the settings of a preset (localspec config preset); other options win over it.",
)
reply_options = stacked([_system, *declared_options(Request, ANSWER)])
speculation_options = stacked([*declared_options(Speculation, SPECULATION), *declared_options(Sampling, SPECULATION)])
sampling_options = stacked(declared_options(Sampling, SAMPLING))
preset_settings = stacked(  # what a preset may hold
    [
        _model,
        draft_option(MODEL),
        *declared_options(LoadSettings, MODEL),
        reply_options,
        speculation_options,
        sampling_options,
        _save,
        _quiet,
    ]
)
prompt_options = stacked(
    [
        _answer("--raw", is_flag=True, help="The prompt as it is: no chat template, and control tokens are read."),
        _answer(
            "--suffix", metavar="TEXT|@FILE", help="Fill in the middle, between the prompt and TEXT; implies --raw."
        ),
        _answer("--prediction", metavar="TEXT|@FILE", help="What the answer may be: drafts are copied from it."),
        _answer(
            "-f",
            "--file",
            multiple=True,
            metavar="PATH",
            help="Text to put before the prompt: a file, a folder, or a pattern in quotes. -f may be repeated.",
        ),
        _answer(
            "--max-stdin",
            type=Number(0, 1e6, is_above=True),
            default=16,
            metavar="MIB",
            help="Longest input to read.  [default: 16]",
        ),
        _answer(
            "--timeout",
            type=Number(0, 1e8, is_above=True),
            metavar="SEC",
            help="Stop after this time, reading the prompt included, with exit code 124.",
        ),
    ]
)
conversation_options = stacked(
    [
        _talk(
            "-c",
            "--continue",
            "is_continued",
            is_flag=True,
            help="Continue the conversation used last, by run or chat, in any terminal.",
        ),
        _talk("--session", metavar="ID", shell_complete=conversation_ids, help="Continue this conversation."),
        _save,
    ]
)
screen_options = stacked(
    [
        _output("--tokens", is_flag=True, help="Mark tokens: ⟦corrected⟧, bonus⁺, accepted in green."),
        _output(
            "--stats/--no-stats",
            aliases=["--verbose"],
            default=None,
            help="Numbers below the answer.  [default: on a terminal]",
        ),
        _quiet,
        _color,
        _output(
            "--control-chars",
            type=click.Choice(["auto", "show", "raw"]),
            default="auto",
            help="Control characters in the answer.  [default: shown on a terminal, raw in a pipe]",
        ),
        _log_file,
    ]
)
report_options = stacked(  # of commands that measure
    [_output("-q", "--quiet", is_flag=True, help="No progress."), _color, _log_file]
)


def short_reply_options(max_tokens: int) -> Callable[[F], F]:
    changes = {"default": max_tokens, "default_help": ""}
    return stacked([_system, *declared_options(Request, ANSWER, max_tokens=changes)])
