"""The gain of copies of the text, and the acceptance of a draft model, on recorded answers of a real model.

  copies.py record texts.jsonl -m MODEL.gguf --suite edits.jsonl --prompts 16 --temps 0,0.8
  copies.py replay texts.jsonl --rows 1:1,2:1.6,4:2.6,8:5.5,16:8,32:13,64:23
  LOCALSPEC_HOME=$(mktemp -d) copies.py hear texts.jsonl -m MODEL.gguf -d DRAFT.gguf

`record` decodes plainly through the chat template and writes the tokens of prompt and answer, one answer a line.
`replay` lets the planner draft copies for these answers; a token is accepted where the answer has it. A pass takes what
--rows says of its rows, in plain passes, off by --noise. `cold` knows nothing before each answer, `auto` learns from
one to the next, and `oracle` takes the best length of each source, known beforehand. Speeds are over plain decoding.
They are simulated: scripts/peers measures.

`hear` loads the pair, which tries the draft on the shipped texts, and lets the draft read the answers, as it does in
chats. So it tells how near the trial is to the answers; intervals are resampled over these. Counts need no quiet
machine, the seconds of the trial do.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from localspec.bench.suites import choose, load_suite
from localspec.control.auto import Auto
from localspec.control.candidates import MOST_DRAFTED, Copies
from localspec.control.prices import Prices
from localspec.control.schedule import Probing
from localspec.engine import events
from localspec.engine.acceptance import Acceptance, CopyAcceptance
from localspec.engine.draft import Draft, Draw, Source, Step, Times, Verdict
from localspec.engine.protocols import DraftBudget, Plan
from localspec.engine.sampling import Sampler
from localspec.methods import DrafterContext
from localspec.methods.copy import Copy
from localspec.session.hearing import Heard, hear
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation

PLAIN = 0.03  # seconds of a plain pass
Answer = dict[str, Any]


class Text:
    """The history that the planner and the copier see."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    @property
    def position(self) -> int:
        return len(self.tokens)


def record(asked: argparse.Namespace) -> Iterator[Answer]:
    """Yield the answers of the model, decoded plainly."""
    suite = choose(load_suite(asked.suite, is_chat=True), asked.prompts)
    loading = events.Returning(load(LoadSettings(str(Path(asked.model).absolute()), ctx=asked.ctx), lambda: False))
    for _ in loading:
        pass
    with closing(loading.result) as pair:
        for prompt in suite.prompts:
            for temperature in asked.temps:
                request = Request(
                    messages=(Message("user", prompt.text),),
                    max_tokens=asked.n,
                    sampling=Sampling(temperature=temperature, seed=1),
                    speculation=Speculation(method="plain"),
                    logprobs=0,
                    is_after_sampler=True,
                )
                passes = [event for event in pair.answer(request) if isinstance(event, events.Committed)]
                yield {
                    "category": prompt.category,
                    "temp": temperature,
                    "prompt": list(pair.tokenised(request).tokens),
                    "answer": [piece.id for event in passes for piece in event.out],
                    "logprobs": [one.logprob for event in passes for one in event.logprobs],
                }


def compare_trial(answers: list[Answer], target: str, draft: str, ctx: int) -> None:
    """Print acceptance in the answers beside that of the trial."""
    settings = LoadSettings(str(Path(target).absolute()), str(Path(draft).absolute()), ctx=ctx)
    loading = events.Returning(load(settings, lambda: False))
    for _ in loading:
        pass
    with closing(loading.result) as pair:
        trial, found = pair.controllers.profile.trial, defaultdict(list)
        assert pair.draft is not None
        assert trial is not None, "the pair was loaded with a draft"
        if not trial.kinds:
            sys.exit(f"{Path(draft).name}: the trial was refused: it would take too long here")
        for one in answers:
            sampler = Sampler(Sampling(temperature=one["temp"]))
            chances = [] if sampler.is_greedy else [math.exp(each) for each in one["logprobs"]]
            tokens = [*one["prompt"], *one["answer"]]
            heard = Heard(sampler, Draw.IID, Acceptance(Draw.IID), chances, tokens, len(one["prompt"]))
            total = hear(heard, pair.target, pair.draft, pair.translation, lambda: False).total
            share = (total.likeliest, total.n) if sampler.is_greedy else (total.drawn, total.n_drawn)
            found[one["temp"]].append(share)
        print(
            f"{Path(draft).name}: the trial took {trial.seconds:.1f} s, {trial.spelled:.2f} tokens of the draft for one"
        )
        tried = trial.total
        for temperature, shares in sorted(found.items()):
            known = tried.likeliest / tried.n if temperature == 0.0 else tried.drawn / tried.n_drawn
            mean, low, high = resampled(shares)
            told = f"{mean:.3f} ({low:.3f} to {high:.3f})"
            n = sum(each[1] for each in shares)
            print(f"T={temperature:g}: trial {known:.3f}, {len(shares)} answers {told}, {n:.0f} tokens", flush=True)


def resampled(shares: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the share of all, and the 95 % interval over the answers."""
    table, rng = np.array(shares), np.random.default_rng(0)
    sums = table[rng.integers(0, len(table), (2000, len(table)))].sum(1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], (0.025, 0.975))
    return float(table[:, 0].sum() / table[:, 1].sum()), float(low), float(high)


def copier(answer: Answer, acceptance: CopyAcceptance) -> tuple[Copy, Text]:
    """Return a copier that has read the prompt, and the text with the first token of the answer."""
    parts: Any = DrafterContext(None, *[None] * 3, 0)  # of which a copier uses none
    text, copy = Text(list(answer["prompt"])), Copy(parts)
    copy.resume(copy.constraint, acceptance)
    copy.begin(text)
    text.tokens.append(answer["answer"][0])
    return copy, text


def right(copy: Copy, text: Text, answer: Sequence[int], at: int, most: int) -> tuple[int, int]:
    """Return how many tokens `copy` drafts at `at`, of `most`, and how many of them the answer has."""
    drafted = copy.grow(text.tokens, Plan(copy.info.name, most, most)).tokens[1:].tolist()
    wanted = answer[at : len(answer) - 1]
    kept = next((n for n, (x, y) in enumerate(zip(drafted, wanted, strict=False)) if x != y), None)
    return len(drafted), min(len(drafted), len(wanted)) if kept is None else kept


def replay(
    answer: Answer,
    prices: Prices,
    acceptance: CopyAcceptance,
    rows: dict[int, float],
    rng: np.random.Generator,
    noise: float,
) -> float:
    """Return the speed that the planner makes of one answer."""
    copy, text = copier(answer, acceptance)
    out, at, passes = answer["answer"], 1, 0.0
    auto = Auto(prices, [Copies(copy.info.name, prices, copy, MOST_DRAFTED)])
    auto.credit_reading(PLAIN * len(answer["prompt"]) * min(price / n for n, price in rows.items()))
    controller = Probing(auto)
    while at < len(out):
        plan = controller.plan(text, DraftBudget(len(out) - at, 4096))
        n, kept = right(copy, text, out, at, plan.max_nodes) if plan.max_nodes else (0, 0)
        took = priced(rows, plan.width(n)) * float(np.exp(noise * rng.normal()))
        run = out[at : at + kept + 1]
        controller.observe(_step(plan, text.position, n, kept, run, PLAIN * took), PLAIN * took)
        passes += took
        text.tokens += run
        at += len(run)
    return (len(out) - 1) / passes


def _step(plan: Plan, position: int, n: int, kept: int, run: list[int], seconds: float) -> Step:
    draft = Draft.of([0] * (n + 1), range(-1, n)).padded(plan.width(n))
    verdict = Verdict(tuple(range(1, kept + 1)), 0, Source.PLAIN)
    sources = (Source.ACCEPTED,) * kept + (Source.PLAIN,)
    return Step(draft, verdict, tuple(run), sources, (0, *verdict.path), position, Times(verify=seconds), plan)


def oracle(answer: Answer, rows: dict[int, float]) -> float:
    """Return the speed of the best lengths, by dynamic programming from the end of the answer."""
    copy, text = copier(answer, CopyAcceptance())
    out, found = answer["answer"], [0]
    for at in range(1, len(out)):
        has_source = len(copy.chances(text, 1)) > 0
        found.append(right(copy, text, out, at, MOST_DRAFTED)[1] if has_source else 0)
        text.tokens.append(out[at])
    least = [0.0] * (len(out) + 1)
    for at in range(len(out) - 1, 0, -1):
        least[at] = min(priced(rows, 1 + k) + least[at + k + 1] for k in range(found[at] + 1))
    return (len(out) - 1) / least[1]


def priced(rows: dict[int, float], n: int) -> float:
    """Return plain passes that a pass of `n` rows takes."""
    return float(np.interp(n, list(rows), list(rows.values())))


def compare(answers: list[Answer], rows: dict[int, float], noise: float) -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    learned: dict[float, tuple[Prices, CopyAcceptance]] = defaultdict(lambda: (fresh(rows), CopyAcceptance()))
    found: dict[tuple[str, float], list[tuple[float, float, float]]] = defaultdict(list)
    for one in answers:
        if len(one["answer"]) > 1:
            cold = replay(one, fresh({n: rows[n] for n in list(rows)[::2]}), CopyAcceptance(), rows, rng, noise)
            warm = replay(one, *learned[one["temp"]], rows, rng, noise)
            found[one["category"], one["temp"]].append((cold, warm, oracle(one, rows)))
    print(f"{'':24} {'n':>3} {'cold':>6} {'auto':>6} {'least':>6} {'oracle':>6}")
    for (category, temperature), speeds in sorted(found.items()):
        cold, warm, best = zip(*speeds, strict=True)
        figures = (*map(statistics.median, (cold, warm)), min(warm), statistics.median(best))
        print(f"{category} T={temperature:g}".ljust(24), f"{len(speeds):>3}", *(f"{one:6.2f}" for one in figures))


def fresh(rows: dict[int, float]) -> Prices:
    """Return prices as a first measurement finds them."""
    return Prices({n: PLAIN * price for n, price in rows.items()})


def widths(text: str) -> dict[int, float]:
    """Read plain passes by rows."""
    try:
        found = {int(n): float(price) for n, price in (one.split(":") for one in text.split(","))}
    except ValueError:
        found = {}
    if 1 not in found:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of plain passes by rows, as in 1:1,4:2.6")
    return found


def main(arguments: Sequence[str]) -> None:
    """Record, replay or hear."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "replay", "hear"))
    parser.add_argument("file", type=Path)
    parser.add_argument("-m", "--model")
    parser.add_argument("-d", "--draft")
    parser.add_argument("--suite", default="spec-bench")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--temps", type=lambda text: [float(one) for one in text.split(",")], default=[0.0, 0.8])
    parser.add_argument("-n", type=int, default=256, help="tokens of an answer")
    parser.add_argument("--ctx", type=int, default=4096)
    usual = "1:1,2:1.6,3:2.3,4:2.6,8:5.5,16:8,32:13,64:23,128:43"
    parser.add_argument("--rows", type=widths, default=usual, help="plain passes by rows")
    parser.add_argument("--noise", type=float, default=0.02, help="standard deviation of a pass, of its time")
    asked = parser.parse_args(arguments)
    if asked.what == "replay":
        compare([json.loads(line) for line in asked.file.read_text().splitlines()], asked.rows, asked.noise)
        return
    if not asked.model:
        parser.error(f"{asked.what} needs -m MODEL.gguf")
    if asked.what == "hear":
        answers = [json.loads(line) for line in asked.file.read_text().splitlines()]
        compare_trial(answers, asked.model, asked.draft or parser.error("hear needs -d DRAFT.gguf"), asked.ctx)
        return
    with asked.file.open("a") as file:
        for answer in record(asked):
            file.write(json.dumps(answer) + "\n")
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
