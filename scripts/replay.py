"""`auto` beside fixed lengths and beside the account, with the real engine and the simulated clock of any machine.

  replay.py --rows 1,1.7,2.4,2.4,3.3,3.6 --draft 0.03             rows cost what they do on a CPU without AVX-512
  replay.py --rows 1,1.05,1.1,0.97 --draft 0.2 --temp 0.8 -n 384
  replay.py --rows 1,1.7,2.4,2.4 --draft 0.03 --head-start 100    as if a hundred tokens might be lost, not one

The bundled pair drafts and verifies for real, so acceptance is real; only the clock is not. A pass of the target takes
what --rows says of its width (1, 2, 3, ... rows, in plain passes; beyond, their mean slope), one of the draft model
--draft, each off by --noise. So a rule is tried in seconds for machines that are not at hand, and two rules are
compared without the noise of a machine. The speeds are simulated, over plain decoding at the same costs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from localspec.bench.suites import choose, load_suite
from localspec.control import auto
from localspec.control.profile import Profile
from localspec.engine import events
from localspec.session.controllers import PairController
from localspec.session.loaded_pair import LoadedPair
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.settings.structure import schema_text
from localspec.speculation.resolve import MAX_AUTO_CHAIN

UNIT = 0.03  # seconds of a plain pass: long enough for everything that short ones go without
BATCH = 8  # rows that the draft model reads as long as one


class Clock:
    """Time that passes only where it is told to, by a little more or less."""

    def __init__(self, noise: float) -> None:
        self._rng = np.random.default_rng(0)
        self._noise = noise
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def priced(self, passes: float) -> float:
        """Return the seconds that so many plain passes take this time."""
        return UNIT * passes * float(np.exp(self._noise * self._rng.normal()))


class Priced:
    """A backend whose passes take the time that `cost` says of their rows, in plain passes."""

    def __init__(self, inner: Any, clock: Clock, cost: Callable[[int], float], widest: int) -> None:
        self._inner, self._clock, self._cost, self._widest = inner, clock, cost, widest
        self.decode_rows = 1  # the clock's: the pass itself need not be wider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def prefill(self, *given: Any) -> Any:
        """Evaluate what the cache lacks, a long text in passes of the widest that is known: reading is computing."""
        before = self._inner.evaluated
        rows = self._inner.prefill(*given)
        whole, left = divmod(self._inner.evaluated - before, self._widest)
        self._pass(left)
        self._clock.now += self._clock.priced(whole * self._cost(self._widest)) if whole else 0.0
        return rows

    def extend(self, tokens: Sequence[int], *given: Any) -> Any:
        """Evaluate nodes."""
        rows = self._inner.extend(tokens, *given)
        self._pass(self.decode_rows if len(tokens) == 1 else len(tokens))
        return rows

    def time_rows(self, rows: int) -> float:
        """Return what a pass takes, and let that pass; none is made."""
        seconds = self._clock.priced(self._cost(rows))
        self._clock.now += seconds
        return seconds

    def _pass(self, rows: int) -> None:
        self._clock.now += self._clock.priced(self._cost(rows)) if rows else 0.0


class Replay:
    """A pair on a machine of `rows` and `draft`, of which nothing is known; the profile stays in `folder`."""

    def __init__(self, settings: LoadSettings, clock: Clock, rows: Sequence[float], draft: float, folder: Path) -> None:
        loading = events.Returning(load(settings, lambda: False, clock))
        for _ in loading:
            pass
        self._loaded = loading.result
        self._clock = clock
        self._file = folder / "profile.json"
        real = self._loaded
        assert real.draft is not None
        target = Priced(real.target.backend, clock, lambda n: of_rows(rows, n), len(rows))
        small = Priced(real.draft.backend, clock, lambda n: draft * max(1.0, n / BATCH), BATCH)
        self.pair: LoadedPair = replace(
            real, target=replace(real.target, backend=target), draft=replace(real.draft, backend=small)
        )
        self.unlearn()

    def unlearn(self) -> None:
        """Go on with a machine and a pair of which nothing is known."""
        self._file.unlink(missing_ok=True)
        self.pair = replace(self.pair, controllers=PairController(Profile(self._file), self._clock))

    def close(self) -> None:
        """Free the models."""
        self._loaded.close()


def of_rows(known: Sequence[float], rows: int) -> float:
    """Return plain passes that a pass of `rows` takes; beyond what is known it goes on with its mean slope."""
    slope = (known[-1] - known[0]) / max(len(known) - 1, 1)
    return known[rows - 1] if rows <= len(known) else known[-1] + slope * (rows - len(known))


def speculation(contender: str) -> Speculation:
    """Return what `auto`, a length, or a tree with its nodes (dyspec:16) stands for."""
    if contender == "auto":
        return Speculation()
    tree, _, k = contender.rpartition(":")
    return Speculation(method="draft-model", tree=tree or "chain", k=int(k))


@dataclass
class Answers:
    """The results of a contender."""

    speeds: list[float] = field(default_factory=list)
    forced: list[int] = field(default_factory=lambda: [0, 0])  # tokens that a form forced in runs, and all

    def add(self, pair: LoadedPair, clock: Clock, request: Request) -> None:
        """Answer a request. Its prompt is left out of the speed, which is 1 where its first token is all of it."""
        began, tokens = 0.0, 0
        for event in pair.answer(request):
            if isinstance(event, events.Committed):
                tokens += len(event.out) if began else 0
                began = began or clock.now
                self.forced = [self.forced[0] + event.n_forced, self.forced[1] + len(event.out)]
        self.speeds.append(UNIT * tokens / (clock.now - began) if tokens else 1.0)


def passes(text: str) -> list[float]:
    """Read plain passes by rows."""
    try:
        found = [float(one) for one in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0.0 < one < np.inf for one in found):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of plain passes by rows, as in 1,1.3,1.5")
    return found


def contenders(text: str) -> list[str]:
    """Read `auto` and lengths."""
    found = text.split(",")
    if not all(one == "auto" or (one.isdecimal() and 0 < int(one) <= MAX_AUTO_CHAIN) for one in found):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of auto and lengths up to {MAX_AUTO_CHAIN}, as in auto,1,3"
        )
    return found


def compare(asked: argparse.Namespace) -> dict[str, Answers]:
    """Answer every prompt with every contender."""
    prompts = choose(load_suite(asked.suite, is_chat=False), asked.prompts).prompts
    clock = Clock(asked.noise)
    models = files("localspec.models.storyteller")
    pair = [str(models / f"{role}-q8_0.gguf") for role in ("target", "draft")]
    settings = LoadSettings(*pair, ctx=asked.n + 1024)
    found = {one: Answers() for one in asked.contenders}
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Replay(settings, clock, asked.rows, asked.draft, Path(folder))) as replay,
    ):
        for seed in range(1, asked.rounds + 1):
            sampling = Sampling(temperature=asked.temp, seed=None if asked.unseeded else seed)
            for prompt in prompts:
                request = Request(
                    prompt=prompt.text, max_tokens=asked.n, sampling=sampling, schema=asked.schema, cold=True
                )
                for one, answers in found.items():
                    if asked.cold:
                        replay.unlearn()
                    answers.add(replay.pair, clock, replace(request, speculation=speculation(one)))
    return found


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = "1,1.73,2.38,2.4,3.3,3.6,4,4.5"
    parser.add_argument("--rows", type=passes, default=usual, help="plain passes by rows, from 1 on")
    parser.add_argument("--draft", type=float, default=0.03, help="of a pass of the draft model")
    parser.add_argument("--contenders", type=contenders, default="auto,1,2,3,4,6,8", help="auto, and lengths")
    parser.add_argument("--suite", default="stories")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1, help="each prompt so many times")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--schema", type=schema_text, help="of the answers, as localspec run has it")
    parser.add_argument("--cold", action="store_true", help="forget before every answer what others taught")
    parser.add_argument("--unseeded", action="store_true", help="draw anew each time, under the rule for that")
    parser.add_argument("-n", type=int, default=96, help="tokens of an answer")
    parser.add_argument("--noise", type=float, default=0.04, help="standard deviation of a pass, of its time")
    parser.add_argument("--head-start", type=float, default=auto.HEAD_START, help="L0 of the account, in tokens")
    asked = parser.parse_args(arguments)
    auto.HEAD_START = asked.head_start
    print(f"{'':6} {'median':>7} {'all':>6} {'least':>6} {'most':>6}")
    found = compare(asked)
    for one, answers in found.items():
        speeds = answers.speeds
        whole = statistics.harmonic_mean(speeds)
        print(f"{one:>6} {statistics.median(speeds):7.2f} {whole:6.2f} {min(speeds):6.2f} {max(speeds):6.2f}", end="")
        n_forced, n = answers.forced
        print(f"   {100 * n_forced / n:.0f} % forced" if n_forced else "")


if __name__ == "__main__":
    main(sys.argv[1:])
