"""`localspec race`: one prompt, plain and with speculation, one after the other."""

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click

from localspec.bench.answers import Answer
from localspec.bench.rounds import TOKENS, Race, answers_alone, race, spread
from localspec.bench.statistics import percentile
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, is_terminal, write_out, write_text
from localspec.cli.engine_options import ServerOptions, promised_of, server_options
from localspec.cli.fetch import present_settings
from localspec.cli.option_sources import Integer
from localspec.cli.options import (
    PromptOptions,
    ReportOptions,
    pair_options,
    picked,
    prompt_options,
    report_options,
    sampling_options,
    short_reply_options,
    speculation_options,
)
from localspec.cli.output import lone_stop, write_json
from localspec.cli.pair_engine import PairEngine, open_engine
from localspec.cli.params import Command, option
from localspec.cli.settings import PairOptions, draft_alone, prompted_request, request_settings
from localspec.cli.signals import timed
from localspec.errors import LocalspecError
from localspec.sanitize import sanitize
from localspec.settings.request import LoadSettings, Request
from localspec.ui.columns import aligned
from localspec.ui.speedup import shown_after
from localspec.ui.summary import accepted, live_line, rate_of
from localspec.worker.keep_policy import KeepAlive

OUTPUT = "Output"


@dataclass(frozen=True)
class RaceOptions(PromptOptions, ServerOptions, ReportOptions):
    system: str | None
    repeat: int
    as_json: bool


@click.command("race", cls=Command)
@click.argument("pair", shell_complete=pair_names)
@click.argument("prompt", nargs=-1)
@option("--repeat", aliases=["--rounds"], type=Integer(1, 1000), default=1, metavar="N", section="Race",
        help="Rounds, each with its own seed, in alternating order; six that agree decide.  [default: 1]")  # fmt: skip
@pair_options
@server_options
@short_reply_options(TOKENS)
@prompt_options
@speculation_options
@sampling_options
@option("--json", "as_json", is_flag=True, section=OUTPUT, help="One JSON object at the end.")
@report_options
@click.pass_obj
def race_command(console: Console, /, pair: str, prompt: tuple[str, ...], **values: Any) -> int:
    """Answer PROMPT plainly and with drafts, and compare speed and text.

    The two run one after the other, from empty caches, with the same seed and coupled noise. So the texts are the same
    at any temperature, except at ties. A fork is explained by the scores of the two tokens and by the measured
    rounding. Some --verify rules keep the distribution and not the text.

    Whether speculation pays is decided by rounds that agree, not by the size of a ratio. It takes six of six, or eight
    of nine: --repeat 6, --repeat 9.

    With --verifier, plain is the verifier alone, and PAIR is the draft. Then the draft answers alone.
    """
    options = picked(RaceOptions, values)
    options.apply(console)
    wished = PairOptions.of(values, pair)
    far = options.served(wished)
    promised = promised_of(far, wished)
    asked = request_settings(values, promised.settings)
    read = partial(
        prompted_request, prompt, options, options.system, options.predicting(asked), console, f"localspec race {pair}"
    )
    request, left = timed(options.timeout, "reading the prompt", read)
    settings = present_settings(promised, console)
    with open_engine(console, options.log_file, left, keep_alive=KeepAlive(), far=far) as engine:
        raced = None if engine.load(settings) is None else shown_race(engine, request, options.repeat)
        if raced is not None and settings.verifier is not None:
            raced = _with_edge_alone(engine, settings, raced)
    if raced is not None:
        _tell(raced, as_json=options.as_json)
    elif options.as_json:
        lone_stop(engine.stop.exit_code)
    return engine.stop.exit_code


def shown_race(engine: PairEngine, request: Request, repeats: int) -> Race | None:
    return race(engine, request, repeats, engine.is_stopped, partial(progress, engine))


def progress(engine: PairEngine, what: str, answer: Answer | None) -> None:
    if answer is None or (answer.stats.emitted and engine.live.is_due):
        engine.live.status(what if answer is None else f"{what} · {live_line(answer.stats)}")


def _with_edge_alone(engine: PairEngine, settings: LoadSettings, raced: Race) -> Race:
    alone = draft_alone(settings)
    if alone is None or engine.is_stopped():
        return replace(raced, alone=())
    try:
        if engine.load(alone) is not None:
            return answers_alone(engine, raced, engine.is_stopped, partial(progress, engine))
    except LocalspecError as error:
        engine.live.erase()
        engine.console.warn(f"the draft does not answer alone: {error.message}")
    return replace(raced, alone=())


def _tell(raced: Race, *, as_json: bool) -> None:
    if as_json:
        write_json(raced.to_wire())
        return
    text = raced.rounds[0].other.stats.text
    write_out((sanitize(text) if is_terminal(sys.stdout) else text) + "\n\n")
    write_text("\n".join(figures(raced, "--repeat 6")))


def figures(raced: Race, six: str) -> list[str]:
    """Return a line for each answer, and the two sentences of the verdict; `six` is what to type for six rounds."""
    several = ["", *aligned(_percentiles(raced)), ""] if len(raced.rounds) > 1 else []
    return [*aligned(_lines(raced)), *several, *_way(raced), *map(sanitize, raced.verdict(six))]


def _way(raced: Race) -> list[str]:
    stats = raced.rounds[-1].other.stats
    peak = 0 if stats.finished is None else stats.finished.peak_memory
    return [f"{stats.ways.line()}, {peak / 2**20:.0f} MiB here"] if stats.ways.is_remote else []


def _lines(raced: Race) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = [("", "tok/s", "tokens", "ttft", "total", "a pass", "right")]
    sides = raced.sides
    for number in range(len(raced.rounds)):
        for name, answers in sides.items():
            if number >= len(answers):
                continue  # it was stopped before
            answer = answers[number]
            stats, asked = answer.stats, answer.request.speculation
            assert stats.finished is not None
            drafted = asked.method if asked.tree == "chain" else asked.tree
            lines.append(
                (
                    drafted if raced.alone is None else name,
                    _spelt(rate_of(stats)),
                    str(len(answer.tokens)),
                    _seconds(stats.finished.ttft_ms),
                    _seconds(stats.finished.wall_ms),
                    _spelt(shown_after(stats.tokens_per_pass, stats.passes - 1), 2),
                    accepted(stats) if stats.drafted else "–",
                )
            )
    return lines


def _percentiles(raced: Race) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = [("all rounds", "tok/s", "ttft p50", "p95", "total p50", "p95")]
    for name, answers in raced.sides.items():
        if answers:
            times_of = spread(answers)
            rates = [rate for each in answers if (rate := rate_of(each.stats)) is not None]
            times = [times_of[what][which] for what in ("ttft_ms", "total_ms") for which in ("p50", "p95")]
            lines.append((name, _spelt(percentile(rates, 0.5)), *map(_seconds, times)))
    return lines


def _spelt(figure: float | None, digits: int = 1) -> str:
    return "–" if figure is None else f"{figure:.{digits}f}"


def _seconds(ms: float) -> str:
    return f"{ms / 1e3:.2f} s"
