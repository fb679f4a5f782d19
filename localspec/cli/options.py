"""The options that commands share, as the help lists them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from localspec.cli.complete import conversation_ids, pair_names
from localspec.cli.params import F, Positive, option, stacked
from localspec.settings.request import Request, Sampling, Speculation
from localspec.speculation import axis_names
from localspec.ui.values import draft_length, key_value, layers_on, servers, token_bias, unescape

AXES = "Speculation (the four axes; see: localspec methods)"
_INT = click.IntRange(1, 2**31 - 1)


def _model() -> list[Any]:
    add = partial(option, section="Model")
    return [
        add(
            "-m",
            "--model",
            metavar="PAIR",
            shell_complete=pair_names,
            help="A pair's name (localspec pairs), TARGET.gguf, hf:ORG/REPO:QUANT, or TARGET+DRAFT of these.  "
            "[default: storyteller]",
        ),
        add(
            "-d",
            "--draft",
            aliases=["--draft-model"],
            metavar="NAME",
            shell_complete=pair_names,
            help="The draft model; 'auto' finds one, 'none' is none.",
        ),
        add("-y", "--yes", is_flag=True, help="Download a model that is not here without asking."),
        add("--offline", is_flag=True, help="Download nothing."),
        add("--ctx", type=_INT, metavar="N", help="Context in tokens.  [default: the model's own, at most 4096]"),
        add("--threads", type=click.IntRange(1, 512), metavar="N", help="CPU threads."),
        _layers("--gpu", "Target layers on a GPU."),
        _layers("--draft-gpu", "Draft layers on a GPU."),
        add("--rpc", metavar="HOST:PORT,...", check=servers, help="RPC servers whose devices take layers too."),
        add(
            "--kv",
            type=click.Choice(["f32", "f16", "q8_0", "q4_0"]),
            default="f16",
            help="Type of the attention cache.  [default: f16]",
        ),
        add(
            "--flash-attn",
            type=click.Choice(["auto", "on", "off"]),
            default="auto",
            help="Flash attention.",
        ),
        add(
            "--reproducible",
            is_flag=True,
            help="The text of plain decoding, bit for bit, whatever drafts. The first load measures how.",
        ),
        add("--mmap/--no-mmap", default=True, help="Map the files or read them into memory."),
        add("--mlock", is_flag=True, help="Keep the weights in RAM."),
    ]


def _layers(name: str, help: str) -> Any:
    return option(
        name,
        default="auto",
        metavar="auto|off|all|N",
        section="Model",
        check=partial(layers_on, name),
        names=lambda: ("auto", "off", "all"),
        help=help,
    )


def _sampling() -> list[Any]:
    add = partial(option, section="Sampling (the target's law; speculation does not change it)")
    d = Sampling()

    def number(*names: str, help: str, default: float | None, field: str = "", **more: Any) -> Any:
        part = field or names[0].removeprefix("--").replace("-", "_")
        shown = "" if default is None else f"  [default: {default:g}]"
        kind = float if isinstance(default, float) else int
        return add(
            *names,
            type=kind,
            default=default,
            metavar="N" if kind is int else "F",
            check=lambda value: Sampling(**{part: value}).check(),
            help=help + shown,
            **more,
        )

    return [
        number(
            "--temp",
            aliases=["--temperature"],
            field="temperature",
            default=d.temperature,
            help="Temperature; 0 takes the likeliest.",
        ),
        number("--top-k", default=d.top_k, help="Keep the k likeliest tokens; 0: all."),
        number("--top-p", default=d.top_p, help="Keep the likeliest up to this mass; 1: all."),
        number("--min-p", default=d.min_p, help="Drop what is less likely than this times the likeliest; 0: nothing."),
        number("--typical-p", default=d.typical_p, help="Locally typical sampling; 1: off."),
        number("--repeat-penalty", default=d.repeat_penalty, help="Divide logits of recent tokens; 1: off."),
        number("--presence-penalty", default=d.presence_penalty, help="Subtract once for a recent token; 0: off."),
        number("--frequency-penalty", default=d.frequency_penalty, help="Subtract for each time; 0: off."),
        number("--penalty-last-n", default=d.penalty_last_n, help="What counts as recent; -1: the whole text."),
        add(
            "--logit-bias",
            multiple=True,
            metavar="ID=BIAS",
            check=lambda values: Sampling(logit_bias=tuple(map(token_bias, values))).check(),
            help="Add to a token's logit.",
        ),
        number(
            "--seed",
            default=None,
            help="Same seed, same text: exactly with --reproducible, else but for rounding.  [default: random]",
        ),
    ]


def _speculation() -> list[Any]:
    add = partial(option, section=AXES)
    d = Speculation()
    return [
        add(
            "-k",
            "--draft-tokens",
            aliases=["--num-draft-tokens", "--draft-max"],
            default="auto",
            metavar="N|auto",
            check=lambda value: Speculation(k=draft_length(value)).check(),
            names=lambda: ("auto",),
            help="Draft tokens per pass; 0: plain decoding.  [default: auto]",
        ),
        _axis("method", d.method, metavar="NAME", help="Who drafts.  [default: auto]"),
        _axis("tree", d.tree, metavar="SHAPE", help="Shape of the draft.  [default: chain]"),
        _axis("length", d.length, metavar="RULE", help="How long it is.  [default: auto]"),
        _axis("verify", d.verify, metavar="RULE", help="Who judges it.  [default: auto]"),
        add(
            "-o",
            "--option",
            multiple=True,
            metavar="KEY=VALUE",
            check=_each(key_value),
            help="An option of the method.",
        ),
        add("--approximate", is_flag=True, help="Allow rules that change the output's distribution."),
        add(
            "--draft-temp",
            type=float,
            metavar="F",
            check=lambda value: Sampling(draft_temperature=value).check(),
            help="Temperature of the draft; any is exact.  [default: --temp]",
        ),
    ]


def _axis(name: str, default: str, **more: Any) -> Any:
    def check(spelling: str) -> None:
        if spelling != default:
            from localspec.speculation.resolve import check_axis  # late: it brings numpy, and the defaults are right

            check_axis(name, spelling)

    return option(f"--{name}", default=default, section=AXES, check=check, names=partial(axis_names, name), **more)


def _each(check: Callable[[str], object]) -> Callable[[tuple[str, ...]], None]:
    return lambda values: [*map(check, values)].clear()


def _reply(max_tokens: int | None = None) -> list[Any]:
    end = "when the model does" if max_tokens is None else max_tokens
    add = partial(option, section="Prompt and answer")
    return [
        add("-s", "--system", metavar="TEXT|@FILE", help="System message."),
        add(
            "--template",
            metavar="NAME|FILE",
            help="Chat template: chatml, none, or a file.  [default: the model's own]",
        ),
        add(
            "-n",
            "--max-tokens",
            aliases=["--predict"],
            type=int,
            default=max_tokens,
            metavar="N",
            check=lambda value: Request(max_tokens=value).check(),
            help=f"Stop after N tokens.  [default: {end}]",
        ),
        add(
            "--stop",
            multiple=True,
            metavar="TEXT",
            check=lambda values: Request(stop=tuple(map(unescape, values))).check(),
            help=r"Stop before TEXT; \n is a newline.",
        ),
    ]


def _prompt() -> list[Any]:
    add = partial(option, section="Prompt and answer")
    return [
        add("--raw", is_flag=True, help="The prompt as it is, without a chat template."),
        add("-f", "--file", multiple=True, metavar="PATH", help="Text to put before the prompt."),
        add(
            "--max-stdin",
            type=Positive(1e6),
            default=16,
            metavar="MIB",
            help="Longest input to read.  [default: 16]",
        ),
        add(
            "--timeout",
            type=Positive(1e8),
            metavar="SEC",
            help="Stop after this time, with exit code 124.",
        ),
    ]


def _conversation() -> list[Any]:
    add = partial(option, section="Conversation (see: localspec logs)")
    return [
        add("-c", "--continue", "is_continued", is_flag=True, help="Go on with the conversation used last."),
        add("--session", metavar="ID", shell_complete=conversation_ids, help="Go on with this one."),
        add("--save/--no-save", default=True, help="Keep what is said, or write nothing of it.  [default: save]"),
    ]


def _format() -> list[Any]:
    add = partial(option, section="Output")
    return [
        add("--json", "as_json", is_flag=True, help="One JSON object at the end."),
        add(
            "--events",
            "as_events",
            is_flag=True,
            help="Lines of JSON as it goes: start, load, prefill, step, probe, warn, end or error.",
        ),
    ]


def _screen() -> list[Any]:
    add = partial(option, section="Output")
    return [
        add("--tokens", is_flag=True, help="Mark tokens: ⟦corrected⟧, bonus⁺, accepted in green."),
        add("--stats/--no-stats", default=None, help="Numbers below the answer.  [default: on a terminal]"),
        add("-q", "--quiet", is_flag=True, help="The answer and errors, nothing else."),
        _color(),
        add(
            "--control-chars",
            type=click.Choice(["auto", "show", "raw"]),
            default="auto",
            help="Control characters in the answer.  [default: shown on a terminal, raw in a pipe]",
        ),
        _log_file(),
    ]


def _report() -> list[Any]:
    """What every command has that works for a while and tells what it found."""
    return [option("-q", "--quiet", is_flag=True, section="Output", help="No progress."), _color(), _log_file()]


def _color() -> Any:
    return option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        section="Output",
        help="Colour.  [default: auto, which also minds NO_COLOR]",
    )


def _log_file() -> Any:
    return option("--log-file", metavar="FILE", section="Output", help="Where llama.cpp's log goes, and tracebacks.")


def short_reply_options(max_tokens: int) -> Callable[[F], F]:
    """Return the options of an answer that ends after `max_tokens` where nothing else is said."""
    return stacked(_reply(max_tokens))


model_options = stacked(_model())
pair_options = stacked(_model()[1:])  # where the pair is an argument
reply_options = stacked(_reply())
conversation_options = stacked(_conversation())
prompt_options = stacked(_prompt())
speculation_options = stacked(_speculation())
sampling_options = stacked(_sampling())
format_options = stacked(_format())
screen_options = stacked(_screen())
report_options = stacked(_report())  # of commands that measure
