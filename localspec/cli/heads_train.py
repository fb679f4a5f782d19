"""`localspec heads train` and `localspec heads eval`: making a draft head for a target, and measuring one."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from localspec.bench.answers import ask
from localspec.bench.suites import SAMPLES, load_suite
from localspec.cli.complete import pair_names
from localspec.cli.console import Console
from localspec.cli.early_exit import read_prompts
from localspec.cli.live import Live
from localspec.cli.option_sources import Integer, Number
from localspec.cli.options import ReportOptions, declared_option, picked, report_options
from localspec.cli.output import write_result
from localspec.cli.pair_engine import PairEngine, open_engine
from localspec.cli.params import Command, json_option, option
from localspec.errors import IncompatibleError, InternalError, NotFoundError, UsageError
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.shards import read_model
from localspec.models.store import find_model, parse_pair
from localspec.sanitize import one_line
from localspec.settings.declaration import Group
from localspec.settings.folders import cache_folder, typed_path
from localspec.settings.lone_jobs import LoneJob, TrainOptions
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation
from localspec.settings.sizes import counted, duration, size
from localspec.worker.lone_jobs import Unanswered, answers

TRAINING, MEASURED, OUTPUT = "Training", "Measurement", "Output"
KINDS = ("auto", "eagle3", "eagle1", "mtp", "medusa")
MAX_GUESSES = 4  # guesses of a pass
N_PROMPTS, ANSWER = 8, 64


@dataclass(frozen=True)
class EvalOptions(ReportOptions):
    prompts: str | None
    raw: bool
    max_tokens: int
    as_json: bool


@click.command(cls=Command)
@click.argument("target", shell_complete=pair_names)
@option("-o", "--output", is_own=True, metavar="HEAD.gguf", section=TRAINING,
        help="The file of the head.  [default: in the folder of heads list]")  # fmt: skip
@option("--prompts", is_own=True, metavar="FILE", section=TRAINING,
        help="A prompt a line, or JSONL.  [default: those that come with localspec]")  # fmt: skip
@option("--raw", is_flag=True, is_own=True, section=TRAINING,
        help="The target continues the prompts as they are, without its chat template.")  # fmt: skip
@option("--kind", is_own=True, type=click.Choice(KINDS), default="auto", section=TRAINING,
        help="auto: eagle3 where llama.cpp tells the target's layers, else eagle1.  [default: auto]")  # fmt: skip
@option("--tokens", is_own=True, type=Integer(256, 10**9), default=200_000, metavar="N", section=TRAINING,
        help="Length of the text that the target writes.  [default: 200000]")  # fmt: skip
@option("--minutes", is_own=True, type=Number(0, 10**6, is_above=True), metavar="M", section=TRAINING,
        help="Time for the updates, which follow the text.  [default: eight passes over the text]")  # fmt: skip
@option("--device", is_own=True, type=click.Choice(("cpu", "cuda")), default="cpu", section=TRAINING,
        help="Where PyTorch computes.  [default: cpu]")  # fmt: skip
@option("--seed", is_own=True, type=Integer(0, 2**31 - 1), default=0, metavar="N", section=TRAINING,
        help="Seed of the text, the first weights and the order.  [default: 0]")  # fmt: skip
@declared_option(LoadSettings, "threads")
@declared_option(LoadSettings, "gpu")
@json_option
@click.pass_obj
def train(console: Console, /, target: str, output: str | None, as_json: bool, **values: Any) -> int:
    """Train a draft head for TARGET, a pair's name or a GGUF file.

    The target writes text, and the head learns to guess it from the target's hidden states. The same command
    again resumes a run that was ended. One prompt in eight is held out. The last figures are the tokens of a
    pass on the answers to those, at temperature 0, with one to four guesses.

    Needs PyTorch: pip install 'localspec[train]'.
    """
    path = find_model(target).absolute()
    file = typed_path(output).absolute() if output else None
    if file is not None and not file.parent.is_dir():
        raise NotFoundError(f"there is no folder {one_line(str(file.parent))}", hint="-o with a folder that is there")
    texts = read_texts(values.pop("prompts"), is_raw=values.pop("raw"), info=model_info(read_model(path)))
    named = {"target": str(path), "output": str(file or ""), "folder": str(cache_folder("heads"))}
    options = TrainOptions(**{**values, **named, **texts})
    done: dict[str, Any] = {}
    for done in made(console, options, _status, "the training ended", "at the last checkpoint"):
        if done.get("accepted") and done["stage"] == "training":
            console.say(f"after {done['updates']} updates: {_figures(done['accepted'])}")
    name = one_line(done["path"])
    summary = f"{name}: {done['kind']}, {size(done['bytes'])}, {_figures(done['accepted'])}"
    return write_result(done, f"{summary}\ntry: localspec race {one_line(target)}+{name} PROMPT", as_json=as_json)


@click.command("eval", cls=Command)
@click.argument("pair", shell_complete=pair_names)
@option("--prompts", is_own=True, metavar="FILE", section=MEASURED,
        help="A prompt a line, or JSONL.  [default: those that come with localspec]")  # fmt: skip
@option("--raw", is_flag=True, is_own=True, section=MEASURED,
        help="The target continues the prompts as they are, without its chat template.")  # fmt: skip
@declared_option(Request, "max_tokens", group=Group(MEASURED), low=8, default=ANSWER, default_help="")
@declared_option(LoadSettings, "threads")
@declared_option(LoadSettings, "gpu")
@json_option
@report_options
@click.pass_obj
def evaluate(console: Console, /, pair: str, threads: int | None, gpu: str, **values: Any) -> int:
    """Count the tokens of a pass with the head of a pair.

    PAIR is TARGET+HEAD.gguf. Each prompt is answered at temperature 0, with one to four guesses a pass. Times are not
    measured: see localspec race.
    """
    options = picked(EvalOptions, values)
    options.apply(console)
    parsed = parse_pair(pair)
    if parsed.draft is None:
        raise UsageError(f"{one_line(pair)} names no head", hint="localspec heads eval TARGET.gguf+HEAD.gguf")
    info = model_info(read_model(parsed.draft), may_be_head=True)
    if info.head is None:
        raise IncompatibleError(f"{info.label} is a model and no head", hint=f"localspec bench {one_line(pair)}")
    is_raw = options.raw or model_info(read_model(parsed.target)).chat_template is None
    bundled = _bundled(is_raw)
    texts = bundled[:: len(bundled) // N_PROMPTS] if options.prompts is None else _prompts(options.prompts)
    settings = LoadSettings(
        str(parsed.target), str(parsed.draft), name=parsed.name, threads=threads, gpu=gpu, draft_gpu=gpu
    )
    with open_engine(console, options.log_file) as engine:
        engine.load(settings)
        engine.leave_if_stopped()
        sums = []
        for k in range(1, MAX_GUESSES + 1):
            engine.live.status(f"{k} of {MAX_GUESSES} guesses a pass")
            sums.append(_count(engine, texts, is_raw, info.head.kind, k, options.max_tokens))
    rows = [{name: n for name, n in row.items() if name != "drafted"} for row in sums]
    wire = {"head": str(parsed.draft), "kind": info.head.kind, "counted": rows}
    return write_result(wire, "\n".join(map(_row, sums)), as_json=options.as_json)


def made(
    console: Console, job: LoneJob, status: Callable[[dict[str, Any]], str], ended: str, goes_on: str
) -> Iterator[dict[str, Any]]:
    """Yield what a job that takes long tells, from a process of its own, and show its `status`. Raises InternalError,
    which says what `ended` and where it `goes_on`, for a process that died."""
    live = Live(console, is_long=True)
    try:
        for event in answers(job):
            live.status(status(event))
            if event.get("accepted"):
                live.erase()  # it is told above
            yield event
    except Unanswered as error:
        hint = f"Repeat the command: it goes on {goes_on}."
        raise InternalError(f"{ended}: {error.reason}", hint=hint) from error
    finally:
        live.erase()


def _count(
    engine: PairEngine, texts: Sequence[str], is_raw: bool, method: str, k: int, max_tokens: int
) -> dict[str, int]:
    sums = Counter({"k": k, "tokens": 0, "passes": 0, "accepted": 0, "drafted": 0})
    for text in texts:
        request = Request(
            messages=() if is_raw else (Message("user", text),),
            prompt=text if is_raw else None,
            max_tokens=max_tokens,
            sampling=Sampling(temperature=0.0, seed=0),
            speculation=Speculation(method, tree="chain", k=k),
        )
        stats = ask(engine, request).stats
        engine.leave_if_stopped()
        sums.update(tokens=stats.emitted, passes=stats.passes, accepted=stats.accepted, drafted=stats.drafted)
    return dict(sums)


def read_texts(prompts: str | None, *, is_raw: bool, info: ModelInfo) -> dict[str, tuple[str, ...]]:
    is_raw = is_raw or info.chat_template is None
    return {"raw" if is_raw else "prompts": _bundled(is_raw) if prompts is None else _prompts(prompts)}


def _bundled(is_raw: bool) -> tuple[str, ...]:
    names = [name for name in SAMPLES if (name == "stories") == is_raw]
    return tuple(prompt.text for name in names for prompt in load_suite(name).prompts)


def _prompts(name: str) -> tuple[str, ...]:
    if name.endswith((".jsonl", ".jsonl.gz")):
        return tuple(prompt.text for prompt in load_suite(name).prompts)
    return read_prompts(name)


def _status(event: dict[str, Any]) -> str:
    if event["stage"] == "text":
        part = "held-out text" if event["part"] == "held" else "text"
        return f"{part}: {event['tokens']} of {event['of']} tokens, {duration(event['seconds_left'])} left"
    if event["stage"] == "training":
        loss = "" if event["loss"] is None else f", loss {event['loss']:.3f}"
        return f"training: {event['updates']} of {event['of']} updates{loss}, {duration(event['seconds_left'])} left"
    return "timing the updates" if event["stage"] == "timing" else "writing the head"


def _figures(accepted: Sequence[float]) -> str:
    sums = [1.0 + sum(accepted[:k]) for k in range(1, len(accepted) + 1)]
    return f"{', '.join(f'{total:.2f}' for total in sums)} tokens a pass with 1 to {len(sums)} guesses"


def _row(sums: dict[str, int]) -> str:
    share = 100 * sums["accepted"] / max(1, sums["drafted"])
    per_pass = sums["tokens"] / max(1, sums["passes"])
    return f"{counted(sums['k'], 'guess')}  {per_pass:.2f} tokens a pass  {share:.0f} % accepted"
