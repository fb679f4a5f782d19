"""`localspec rank`: the likeliest of the items in a file as an answer to a prompt."""

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from localspec.bench.answers import inspect
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, in_room, is_terminal, write_out
from localspec.cli.fetch import present_settings
from localspec.cli.option_sources import Integer
from localspec.cli.options import (
    PromptOptions,
    ReportOptions,
    declared_option,
    pair_options,
    picked,
    prompt_options,
    report_options,
)
from localspec.cli.output import lone_error, lone_stop, write_json
from localspec.cli.pair_engine import open_engine
from localspec.cli.params import Command, json_option, option
from localspec.cli.settings import PairOptions, Promised, promised_settings, prompted_request, source_of
from localspec.cli.signals import timed
from localspec.errors import NotFoundError, UsageError
from localspec.ranking.items import LARGEST, read_items
from localspec.sanitize import one_line
from localspec.settings.declaration import Group
from localspec.settings.folders import typed_path
from localspec.settings.jobs import RankQuestion
from localspec.settings.request import Request, Sampling
from localspec.settings.sizes import counted

SCHEMA = "localspec.rank/1"
CLEAR = 0.005  # of a share: one that is known as well is told as one number


@dataclass(frozen=True)
class RankOptions(PromptOptions, ReportOptions):
    system: str | None
    items: str | None
    top: int
    whole: bool
    draw: bool
    seed: int | None
    as_json: bool


@click.command("rank", cls=Command)
@click.argument("pair", shell_complete=pair_names)
@click.argument("prompt", nargs=-1)
@option("--items", metavar="FILE|a,b,c", section="Ranking",
        help="The items: a file with one a line, - for standard input, or a list.")  # fmt: skip
@option("--top", type=Integer(1, 10_000), default=10, metavar="N", section="Ranking",
        help="How many items to show.  [default: 10]")  # fmt: skip
@option("--whole", is_flag=True, section="Ranking", help="Count the chance that the answer ends behind an item.")
@option("--draw", is_flag=True, section="Ranking",
        help="Draw N distinct items by their shares as whole answers, instead of the likeliest.")  # fmt: skip
@declared_option(Sampling, "seed", group=Group("Ranking"))
@pair_options
@option("-s", "--system", metavar="TEXT", section="Ranking", help="The system message, or @FILE.")
@prompt_options
@json_option
@report_options
@click.pass_obj
def rank(console: Console, /, pair: str, prompt: tuple[str, ...], **values: Any) -> int:
    """Rank the items of a file by their probability as an answer of PAIR to PROMPT.

    The N likeliest are found exactly. Most items are never scored: their first tokens are less likely already than the
    Nth item. The share is an item's part of the probability of all items. --draw draws N of them without replacement.

    \b
    localspec rank qwen2.5-1.5b "The capital of Australia?" --items cities.txt --top 3
    """
    options = picked(RankOptions, values)
    options.apply(console)
    console.on_error = lone_error if options.as_json else None
    promised = promised_settings(PairOptions.of(values, pair))
    if options.items is None:
        raise UsageError("which items? --items names a file of them, one a line", hint="--items FILE")
    if source_of("seed") is ParameterSource.COMMANDLINE and not options.draw:
        raise UsageError("--seed is for --draw: the likeliest items are not drawn", hint="--draw --seed N")
    with _items_file(options.items) as named:
        return _rank(named, pair, prompt, promised, options, console)


def _rank(
    named: str, pair: str, prompt: tuple[str, ...], promised: Promised, options: RankOptions, console: Console
) -> int:
    items = read_items(named)
    read = partial(
        prompted_request, prompt, options, options.system, Request(max_tokens=1), console, f"localspec rank {pair}"
    )
    request, left = timed(options.timeout, "reading the prompt", read)
    settings = replace(present_settings(promised, console), draft=None)  # nothing is drafted
    seed = (random.getrandbits(32) if options.seed is None else options.seed) if options.draw else None
    question = RankQuestion(request, named, options.top, options.whole, seed)
    with open_engine(console, options.log_file, left) as engine:
        result = {} if engine.load(settings) is None else inspect(engine, question)
    if not result:
        if options.as_json:
            lone_stop(engine.stop.exit_code)
        return engine.stop.exit_code
    if items.n_double:
        console.warn(f"{counted(items.n_double, 'line')} left out, which an earlier line says as well")
    if result["n_joined"]:
        console.warn(
            f"{result['n_joined']} of these items would have other tokens, were they read together with the prompt: "
            "end it before a space, and begin each item with that"
        )
    if options.as_json:
        write_json({"schema": SCHEMA, "pair": settings.name, "seed": seed, **result})
        console.on_error = None
    else:
        write_out("\n".join(_lines(result)) + "\n")
        console.note(_summary(result), "dim")
    return 0


@contextmanager
def _items_file(typed: str) -> Iterator[str]:
    """Yield the items' file, which is read here and by the engine, or the list itself."""
    path = Path(typed_path(typed))
    is_there = os.path.exists(path)  # no error for a list that is too long for a name
    if typed != "-" and not (is_there and path.is_fifo()):
        yield str(path.resolve()) if is_there or "," not in typed else typed
        return
    with tempfile.NamedTemporaryFile(prefix="localspec-items-") as file:
        try:
            with nullcontext(sys.stdin.buffer) if typed == "-" else path.open("rb") as source:
                file.write(source.read(LARGEST + 1))
        except OSError as error:
            message = f"--items {typed}: {error.strerror}"
            raise NotFoundError(message, hint="--items FILE, with an item a line") from None
        file.flush()
        yield file.name


def _lines(result: dict[str, Any]) -> list[str]:
    shown = one_line if is_terminal(sys.stdout) else str
    rows = [("log p", "p", "share", "item")]
    for item in result["ranking"]:
        rows.append((f"{item['logprob']:.3f}", f"{item['p']:.3g}", _share(*item["share"]), shown(item["item"])))
    return in_room(rows, right=(0, 1, 2))


def _share(low: float, high: float) -> str:
    if high - low <= CLEAR:
        return f"{50 * (low + high):.1f} %"
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def _summary(result: dict[str, Any]) -> str:
    trie = "kept" if result["trie_was_kept"] else f"made in {result['trie_s']:.1f} s"
    scored = f"{result['scored']} of {counted(result['n_items'], 'item')} scored"
    took = f"{counted(result['passes'], 'pass')}, {counted(result['rows'], 'row')}, {result['search_s']:.2f} s"
    return f"{scored} in {took} · trie {trie}"
