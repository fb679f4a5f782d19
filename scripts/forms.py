"""Speed under a JSON schema: this program's methods, and llama-server's `json_schema` with and without its drafts.

  forms.py -m TARGET.gguf -d DRAFT.gguf --server llama-server --seconds 280 --json forms.json

Each question is answered in turn by plain decoding without the schema, by each method under it, and by the servers, at
temperature 0 and from empty caches. The next question is answered in the opposite order. Without the schema an answer
has as many tokens as the last one with it. Speeds are of the tokens after the first: the server's own timings, and here
the time between the first event and the last. They are compared question by question, as medians with quartiles. It
ends after --seconds, with the questions that all have answered by then. scripts/peers builds llama-server.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from llama_peers.server import Server, Setting
from tool_arguments import DAY, FLAG, call, many, number, one_of

from localspec.engine import events
from localspec.session.loaded_pair import LoadedPair
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation

FREE = "plain, no schema"
MOST = 140  # tokens of an answer
NAME: dict[str, Any] = {"type": "string", "maxLength": 24}
SENTENCE: dict[str, Any] = {"type": "string", "maxLength": 60}
QUESTIONS: dict[str, Any] = {
    "Describe Ada Lovelace.": call(given_name=NAME, family_name=NAME, year_of_birth=number(1000, 2100),
        known_for=SENTENCE, field_of_work=one_of("mathematics", "physics", "literature")),
    "List three things of a bakery.": many(call(product_name=NAME, price_in_euros=number(0, 99),
        description=NAME, is_available=FLAG), 3, 3),
    "Book a table for four people on Friday.": call(restaurant_name=NAME, number_of_guests=number(1, 12),
        date_of_visit=DAY, seating_area=one_of("inside", "outside"), special_request=SENTENCE),
    "Write an issue about a crash at start.": call(title=SENTENCE, description=SENTENCE,
        severity=one_of("critical", "major", "minor"), affected_component=NAME, is_reproducible=FLAG),
    "What is in this sentence: Ada met Bob in Rome in May.": call(people_mentioned=many(NAME, 3),
        places_mentioned=many(NAME, 3), summary=SENTENCE, contains_a_date=FLAG),
    "Describe the planet Mars.": call(common_name=NAME, position_from_the_sun=number(1, 8),
        surface_color=one_of("red", "blue", "yellow", "white"), two_moons=many(NAME, 2, 2), short_description=SENTENCE),
    "Send mail to Bob: the meeting moves to Monday.": call(recipient_name=NAME, subject_line=SENTENCE,
        message_body=SENTENCE, priority=one_of("high", "normal", "low"), requires_an_answer=FLAG),
    "Give me a recipe of pancakes.": call(name_of_dish=NAME, ingredients=many(call(ingredient=NAME,
        amount_in_grams=number(1, 999)), 3, 3), preparation_minutes=number(1, 120), is_vegetarian=FLAG),
}  # fmt: skip


@dataclass(frozen=True)
class Speed:
    """An answer of `arm` to a question: tokens after the first and their seconds, passes, forced tokens."""

    arm: str
    question: str
    tokens: int
    seconds: float
    passes: int = 0
    forced: int = 0

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def ours(pair: LoadedPair, arm: str, question: str, most: int) -> Speed:
    """Return an answer of this program."""
    method, _, k = arm.removeprefix(FREE).partition(" k=")
    request = Request(
        messages=(Message("user", question),),
        max_tokens=most,
        schema=None if arm == FREE else json.dumps(QUESTIONS[question]),
        sampling=Sampling(temperature=0.0),
        speculation=Speculation(method=method or "plain", k=int(k) if k else None),
        cold=True,
    )
    times, passes = [], []
    for event in pair.answer(request):
        if isinstance(event, events.Committed):
            times.append(time.perf_counter())
            passes.append(event)
    tokens = sum(len(event.out) for event in passes[1:])
    return Speed(arm, question, tokens, times[-1] - times[0], len(passes) - 1, sum(event.n_forced for event in passes))


def theirs(server: Server, question: str) -> Speed:
    """Return an answer of llama-server."""
    body = {
        "prompt": server._rendered(question), "n_predict": MOST, "cache_prompt": False, "temperature": 0.0,
        "json_schema": QUESTIONS[question],
    }  # fmt: skip
    timings = server._told(body)["timings"]
    n = int(timings["predicted_n"])
    passes = n - int(timings.get("draft_n_accepted", 0))
    return Speed(server.setting.name, question, n - 1, timings["predicted_ms"] / 1e3, passes)


def measured(arms: dict[str, Callable[[str], Speed]], deadline: float) -> Iterator[list[Speed]]:
    """Yield the answers of all arms to a question after the other, until another round would end too late."""
    longest, turn = 0.0, 0
    while time.monotonic() + 1.1 * longest < deadline:
        began = time.monotonic()
        question = list(QUESTIONS)[turn % len(QUESTIONS)]
        order = list(arms) if turn % 2 == 0 else list(arms)[::-1]
        yield [arms[arm](question) for arm in order]
        longest, turn = max(longest, time.monotonic() - began), turn + 1


def compared(rounds: Sequence[Sequence[Speed]], arm: str, base: str) -> str:
    """Return the speed of an arm over another, question by question."""
    ratios = [
        next(one.rate for one in each if one.arm == arm) / next(o.rate for o in each if o.arm == base)
        for each in rounds
    ]
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def table(rounds: Sequence[Sequence[Speed]]) -> str:
    """Return the result as Markdown."""
    arms = [one.arm for one in rounds[0]]
    peers = [arm for arm in arms if arm.startswith("llama-server")]
    rates = {arm: float(np.median([one.rate for each in rounds for one in each if one.arm == arm])) for arm in arms}
    best = max(peers, key=rates.__getitem__, default=FREE)
    lines = [f"| | tokens a second | over {FREE} | over {best} | tokens a pass | forced |", "|---" * 6 + "|"]
    for arm in arms:
        of = [one for each in rounds for one in each if one.arm == arm]
        tokens, passes, forced = (sum(getattr(one, name) for one in of) for name in ("tokens", "passes", "forced"))
        cells = (arm, f"{rates[arm]:.1f}", compared(rounds, arm, FREE), compared(rounds, arm, best),
                 f"{tokens / max(passes, 1):.2f}", f"{100 * forced / tokens:.0f} %")  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, f"{len(rounds)} answers of each, of {len(QUESTIONS)} questions."])


def options() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="the target")
    parser.add_argument("-d", "--draft", help="its draft")
    parser.add_argument("--server", type=Path, help="llama-server")
    parser.add_argument("--threads", type=int, default=2, help="of the engines")
    parser.add_argument("--methods", default="plain,auto,copy,draft-model k=3", help="separated by commas")
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument("--json", type=Path, help="where every answer is written")
    return parser


def main() -> None:
    """Measure and print the table."""
    asked = options().parse_args()
    deadline = time.monotonic() + asked.seconds
    loading = events.Returning(
        load(LoadSettings(asked.model, asked.draft, ctx=1024, threads=asked.threads), lambda: False)
    )
    for _ in loading:
        pass
    rounds: list[list[Speed]] = []
    with ExitStack() as stack:
        pair = stack.enter_context(closing(loading.result))
        lengths: dict[str, int] = {}

        def own(arm: str) -> Callable[[str], Speed]:
            def ask(question: str) -> Speed:
                speed = ours(pair, arm, question, lengths.get(question, 60) if arm == FREE else MOST)
                if arm != FREE:
                    lengths[question] = speed.tokens + 1
                return speed

            return ask

        arms = {arm: own(arm) for arm in (FREE, *asked.methods.split(",")) if asked.draft or "draft" not in arm}
        if asked.server is not None:
            settings = [Setting("llama-server", ("--spec-type", "none"))]
            if asked.draft:
                drafting = ("--spec-type", "draft-simple", "--spec-draft-n-max", "3")
                settings.append(Setting("llama-server, its draft", drafting, needs_draft=True))
            for setting in settings:
                draft = Path(asked.draft) if asked.draft else None
                server = Server(asked.server, setting, Path(asked.model), draft, asked.threads, 1024)
                server._start()
                stack.callback(server.close)
                server._told({"prompt": "Once", "n_predict": 8, "cache_prompt": False})
                arms[setting.name] = lambda question, server=server: theirs(server, question)
        for ask in (arms[FREE], arms["auto"]):
            ask(next(iter(QUESTIONS)))  # the vocabulary is read, and memory is touched
        for each in measured(arms, deadline):
            rounds.append(sorted(each, key=lambda one: list(arms).index(one.arm)))
            if asked.json is not None:
                asked.json.write_text(json.dumps([[asdict(one) for one in every] for every in rounds]))
    if not rounds:
        sys.exit("no question was answered in time: more --seconds")
    print(table(rounds))


if __name__ == "__main__":
    main()
