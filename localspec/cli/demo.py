"""`localspec demo`: one answer without guesses and one with them, on this machine, and how much faster that was."""

import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from localspec.bench.answers import Answer, ask
from localspec.bench.rounds import Race, race
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, columns_of_stdout, wrapped, write_out
from localspec.cli.options import ReportOptions, picked, report_options
from localspec.cli.output import lone_stop, write_json
from localspec.cli.pair_engine import PairEngine, open_engine
from localspec.cli.params import Command, json_option
from localspec.cli.plan import this_machine
from localspec.cli.plan_table import GAIN
from localspec.cli.race import progress
from localspec.errors import LocalspecError, ResourceError
from localspec.heads.deeper import write_deeper
from localspec.models.available import offers
from localspec.models.candidates import look
from localspec.models.catalog import load_catalog
from localspec.models.ollama import is_blob
from localspec.models.store import DEFAULT, PairRef, parse_pair
from localspec.sanitize import one_line
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation
from localspec.ui.stats import Stats
from localspec.ui.summary import verdict

LEAST = 300e6  # parameters: smaller models repeat a file badly
MORE = 100  # layers of the bundled model, which then has as many as a model of 70 billion parameters
MOST_BAR = 40  # columns
ASKED = "Rename the function total to total_price. Answer with the whole file, and nothing else."
EDITED = '''\
def total(items):
    """Return the total price of items in a cart."""
    result = 0
    for item in items:
        price = item["price"]
        count = item["count"]
        result += price * count
    return result


def average(items):
    """Return the average price of items in a cart."""
    if not items:
        return 0
    return total(items) / len(items)


def cheapest(items):
    """Return the item with the lowest price."""
    best = items[0]
    for item in items:
        if item["price"] < best["price"]:
            best = item
    return best
'''
MEASURING = "measuring this machine with a first answer, which does not count"
STEPS = {"1/1 plain": "writing without guesses", "1/1 speculative": "writing with guesses"}


CHANCE = "One answer is one sample; texts that repeat little gain less: localspec plan MODEL --measure tries yours."


@dataclass(frozen=True, slots=True)
class Shown:
    """What a demonstration shows: who answers what, and both in words."""

    settings: LoadSettings
    request: Request
    about: str
    next: str  # what to type then


@click.command("demo", cls=Command)
@click.argument("model", required=False, shell_complete=pair_names)
@json_option
@report_options
@click.pass_obj
def demo(console: Console, /, model: str | None, as_json: bool, **values: Any) -> int:
    """Show in a minute what localspec gains here: the same answer without guesses and with them.

    MODEL edits a short file. Without MODEL, localspec uses the smallest model here that is large enough. If there is
    none, the bundled story writer tells a story at the pace of a larger model. Nothing is downloaded.
    """
    options = picked(ReportOptions, values)
    options.apply(console)
    with _chosen(model) as shown, open_engine(console, options.log_file) as engine:
        is_told = not (as_json or console.quiet)
        tell = partial(_tell, engine, [], is_told=is_told and not console.is_live)
        if is_told:
            console.note(shown.about, "dim")
        tell("loading", None)
        loaded = engine.load(shown.settings)
        if loaded is not None and shown.request.speculation == Speculation():
            ask(engine, shown.request, partial(tell, MEASURING))  # `auto` learns what passes cost here
        raced = None if loaded is None else race(engine, shown.request, 1, engine.is_stopped, tell)
    if raced is None:
        if as_json:
            lone_stop(engine.stop.exit_code)
        return engine.stop.exit_code
    plain, guessed = (_seconds(answer) for answer in (raced.rounds[0].plain, raced.rounds[0].other))
    if as_json:
        facts = {"schema": "localspec.demo/1", "pair": shown.settings.name, "about": shown.about}
        write_json({**facts, "plain_s": plain, "guessed_s": guessed, "times": plain / guessed, "race": raced.to_wire()})
    else:
        said = [wrapped(each, sys.stdout) for each in (_sentence(raced), CHANCE, shown.next)]
        lines = [*_bars(plain, guessed), "", *said]
        write_out("".join(f"{line}\n" for line in lines))
    return 0


def _tell(engine: PairEngine, told: list[str], what: str, answer: Answer | None, *, is_told: bool) -> None:
    """Show a step and how far it is; where no status can be shown, write a line as it begins."""
    step = STEPS.get(what, what)
    if step not in told:
        told.append(step)
        if is_told:
            engine.console.say(step)
    progress(engine, step, answer)


def _sentence(raced: Race) -> str:
    lap = raced.rounds[0]
    times, n = _seconds(lap.plain) / _seconds(lap.other), len(lap.other.tokens)
    same = lap.same is not None and lap.same.is_equal
    text = "the text is the same, token for token" if same else "the texts part at a tie, where rounding decides"
    if times >= GAIN:
        return f"With guesses this answer of {n} tokens was written {times:.1f} times as fast, and {text}."
    pace = "as fast" if times > 1.0 / GAIN else "slower"
    gained = f"Guesses gained nothing here: with them it was {pace}, {times:.2f} times the speed without; and {text}."
    return f"{gained} {_why(lap.other.stats, lap.plain.stats)}".rstrip()


def _why(stats: Stats, plain: Stats) -> str:
    """Return why guesses gained nothing: what a pass with them was worth."""
    if not stats.drafted or not plain.ms_per_token or stats.passes < 2:
        return verdict(stats)
    n, cost = stats.tokens_per_pass or 0.0, stats.decode_ms / (stats.passes - 1) / plain.ms_per_token
    return f"A pass wrote {n:.1f} tokens, and took as long as {cost:.1f} passes without guesses."


def _bars(plain: float, guessed: float) -> list[str]:
    room = max(8, min(MOST_BAR, columns_of_stdout() - 26))
    rows = (("without guesses", plain), ("with guesses", guessed))
    return [f"{name:<15} {s:6.1f} s  {'█' * max(1, round(room * s / max(plain, guessed)))}" for name, s in rows]


def _seconds(answer: Answer) -> float:
    """Return the seconds of writing: reading the prompt takes both as long."""
    finished = answer.stats.finished
    assert finished is not None
    return max(finished.wall_ms - finished.ttft_ms, 1.0) / 1e3


@contextmanager
def _chosen(model: str | None) -> Iterator[Shown]:
    """Yield what is shown: the model that was named, or the smallest of this machine, or the bundled one."""
    name = model or _smallest()
    if name is not None:
        yield _edit(parse_pair(name), name)
        return
    with tempfile.TemporaryDirectory(prefix="localspec-demo-") as folder:
        yield _story(Path(folder) / "storyteller.gguf")


def _smallest() -> str | None:
    most = this_machine().ram / 2
    for offer in sorted(offers(load_catalog(), Path()), key=lambda offer: offer.target_bytes):
        if offer.where == "here" and offer.target is not None and offer.target_bytes <= most:
            with suppress(LocalspecError, OSError):
                info = look(offer.target)
                if info.n_params >= LEAST and info.chat_template and not info.is_recurrent:
                    return offer.ref if is_blob(offer.target) else str(offer.target)
    return None


def _edit(pair: PairRef, typed: str) -> Shown:
    text = f"```python\n{EDITED}```\n\n{ASKED}"
    request = Request((Message("user", text),), max_tokens=300, sampling=Sampling(temperature=0.0))
    settings = LoadSettings(str(pair.target), None if pair.draft is None else str(pair.draft), pair.name)
    name = one_line(pair.name)
    about = (
        f"{name} edits a file of {EDITED.count(chr(10))} lines, first plainly, then with guesses: copies of the file."
    )
    return Shown(
        settings, request, about, f'Your own: localspec run -m {shlex.quote(one_line(typed))} -f FILE "What to change"'
    )


def _story(path: Path) -> Shown:
    pair = parse_pair(DEFAULT)
    try:
        write_deeper(path, pair.target, MORE)
    except OSError as error:
        raise ResourceError(f"{path.parent} has no room: {error.strerror}", hint="free some space") from error
    request = Request(
        prompt="Once upon a time", max_tokens=160, sampling=replace(Sampling(), temperature=0.7, seed=8),
        speculation=Speculation(method="draft-model", k=3),
    )  # fmt: skip
    settings = LoadSettings(str(path), None if pair.draft is None else str(pair.draft), "storyteller, deeper")
    about = (
        "No model for talking is on this machine. The bundled story writer tells a story at the pace of a larger model "
        f"({MORE} layers that change nothing are added), first plainly, then with the guesses of a smaller one."
    )
    return Shown(settings, request, about, "A real model: localspec pairs list, then localspec pull NAME")
