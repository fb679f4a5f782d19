"""Speed of speculative decoding against plain decoding, on the bundled pair with its target scaled to a real size.

  bench_pair.py --shape 1b --quant Q4_0

The target is storyteller's, embedded in a model of the given shape (make_scaled_pair.py), so texts and acceptance are
storyteller's while a pass costs what it costs at that size; the draft is storyteller's own, which is far smaller than
such a target's draft would usually be. Methods alternate A B C C B A on every prompt; each figure is a median of
ratios within one round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from make_scaled_pair import SHAPES, write_scaled

from localspec.config import LoadSettings, Request, Sampling, Speculation
from localspec.session import Session
from localspec.stats import Stats

OPENINGS = (
    "Once upon a time there was a king who had",
    '"Come in," said the old woman, "and sit by the fire."',
    "The ship had been three days at sea when",
    "There was once a poor boy who",
)
PLAIN = Speculation(method="plain")
CHOICES = {
    "plain": PLAIN,
    "draft-model -k 2": Speculation(method="draft-model", k=2),
    "draft-model -k 4": Speculation(method="draft-model", k=4),
    "draft-model -k 7": Speculation(method="draft-model", k=7),
    "auto": Speculation(),
}


@dataclass(frozen=True)
class Answer:
    """One answer's speed in tokens a second, prompt apart, and its counts."""

    speed: float
    tokens_per_pass: float
    acceptance: float


def answer(session: Session, prompt: str, speculation: Speculation, temperature: float, n: int) -> Answer:
    """Generate `n` tokens and fold the events."""
    stats = Stats()
    request = Request(prompt=prompt, max_tokens=n, speculation=speculation, sampling=Sampling(temperature=temperature))
    for event in session.generate(request):
        stats.observe(event)
    return Answer(stats.tok_per_s or 0.0, stats.tokens_per_pass or 0.0, stats.acceptance or 0.0)


def bench(session: Session, temperature: float, n: int) -> None:
    """Print one table."""
    answers: dict[str, list[Answer]] = {name: [] for name in CHOICES}
    ratios: dict[str, list[float]] = {name: [] for name in CHOICES}
    for prompt in OPENINGS:
        for names in (list(CHOICES), list(reversed(CHOICES))):
            one = {name: answer(session, prompt, CHOICES[name], temperature, n) for name in names}
            for name, result in one.items():
                answers[name].append(result)
                ratios[name].append(result.speed / one["plain"].speed)
    print(
        f"\n| T={temperature:g} | speed against plain | quartiles | tokens a pass | accepted |\n|---|---|---|---|---|"
    )
    for name, results in answers.items():
        low, _, high = statistics.quantiles(ratios[name], n=4)
        per_pass = statistics.mean(result.tokens_per_pass for result in results)
        accepted = statistics.mean(result.acceptance for result in results)
        print(f"| `{name}` | {statistics.median(ratios[name]):.2f}x | {low:.2f} to {high:.2f} "
              f"| {per_pass:.2f} | {accepted:.0%} |", flush=True)  # fmt: skip


def main() -> None:
    """Make the target, load the pair, and run both temperatures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--quant", default="Q4_0")
    parser.add_argument("-n", type=int, default=96, help="tokens of an answer")
    options = parser.parse_args()
    pair = Path(str(files("localspec.models"))) / "storyteller"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "target.gguf"
        write_scaled(pair / "target-q8_0.gguf", target, SHAPES[options.shape], options.quant)
        session = Session(lambda: False)
        for _ in session.load(LoadSettings(str(target), str(pair / "draft-q8_0.gguf"))):
            pass
        print(f"storyteller, target scaled to {options.shape} in {options.quant}, {options.n} tokens an answer")
        for temperature in (0.0, 0.8):
            bench(session, temperature, options.n)
        session.close()


if __name__ == "__main__":
    main()
