"""Compares the log-probabilities that are told under each drafter with those of plain passes over the same tokens.

  logprobs.py                                                the bundled pair with its heads, 2 000 tokens a method
  logprobs.py -m TARGET.gguf -d DRAFT.gguf --methods draft-model,suffix -n 500

Every method answers prompts at temperature 0.8 until it has -n tokens. Each answer is then read again, a token a pass,
as plain decoding does. The table has the differences of the two log-probabilities of each token in nats. A second
reading, in passes as wide as the context takes, is a perplexity run: the last columns compare the perplexity that the
told ones give. Load and speed of the machine change nothing here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.resources import files

import numpy as np

from localspec.bench.suites import load_suite
from localspec.engine import events
from localspec.engine.judge import log_softmax
from localspec.engine.protocols import Backend
from localspec.errors import LocalspecError
from localspec.models.store import bundled_head
from localspec.session.loaded_pair import LoadedPair
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.speculation import registered

PAIR = [files("localspec.models") / "storyteller" / f"{name}-q8_0.gguf" for name in ("target", "draft")]
ANSWER = 200  # tokens of an answer
WIDEST = 64  # rows of a pass of the perplexity run


@dataclass
class Readings:
    """The log-probabilities of a method's tokens: as told, of plain passes, of wide passes."""

    told: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    wide: list[float] = field(default_factory=list)
    drafted: int = 0

    def line(self, method: str) -> str:
        """Return the row of the table."""
        off = np.abs(np.array(self.told) - np.array(self.plain))
        off_wide = np.abs(np.array(self.told) - np.array(self.wide))
        own, run = (float(np.exp(-np.mean(each))) for each in (self.told, self.wide))
        cells = (
            f"`{method}`", len(self.told), f"{100 * self.drafted / len(self.told):.0f} %", f"{np.median(off):.1e}",
            f"{off.max():.1e}", f"{np.median(off_wide):.1e}", f"{off_wide.max():.1e}", f"{own:.4f}", f"{run:.4f}",
        )  # fmt: skip
        return f"| {' | '.join(map(str, cells))} |"


def one_by_one(backend: Backend, prompt: Sequence[int], tokens: Sequence[int]) -> Iterator[float]:
    """Yield the log-probability of each token after the prompt, read in passes of one token."""
    row = backend.prefill(prompt, lambda: False).logits(0)
    for at, token in enumerate(tokens):
        yield float(log_softmax(row)[token])
        if at + 1 < len(tokens):
            row = backend.extend([token], [-1], np.ones(1, np.bool_)).logits(0)
            backend.keep((0,))


def at_once(backend: Backend, prompt: Sequence[int], tokens: Sequence[int]) -> Iterator[float]:
    """Yield the same, read in passes of as many tokens as there is room for."""
    row = backend.prefill(prompt, lambda: False).logits(0)
    yield float(log_softmax(row)[tokens[0]])
    widest = min(WIDEST, backend.capabilities.max_rows)
    for at in range(0, len(tokens) - 1, widest):
        chain = tokens[at : min(at + widest, len(tokens) - 1)]
        n = len(chain)
        rows = backend.extend(chain, range(-1, n - 1), np.ones(n, np.bool_))
        for i in range(n):
            yield float(log_softmax(rows.logits(i))[tokens[at + i + 1]])
        backend.keep(tuple(range(n)))


def read(pair: LoadedPair, method: str, n: int) -> Readings:
    """Return the readings of at least `n` tokens under a method."""
    found = Readings()
    for seed, prompt in enumerate(load_suite("stories", is_chat=False).prompts):
        request = Request(
            prompt=prompt.text,
            max_tokens=min(ANSWER, n - len(found.told)),
            logprobs=0,
            sampling=Sampling(temperature=0.8, seed=seed),
            speculation=Speculation(method=method),
            cold=True,
        )
        passes = [event for event in pair.answer(request) if isinstance(event, events.Committed)]
        judged = [one for event in passes for one in event.logprobs]
        start, tokens = pair.tokenised(request).tokens, [one.id for one in judged]
        found.told += [one.logprob for one in judged]
        found.drafted += sum(event.n_accepted for event in passes)
        found.plain += one_by_one(pair.target.backend, start, tokens)
        found.wide += at_once(pair.target.backend, start, tokens)
        if len(found.told) >= n:
            return found
    return found


def draft_of(method: str, draft: str | None) -> str | None:
    """Return the file that drafts for a method, of the bundled pair unless a `draft` is named; "" where none is."""
    kind = registered("method")[method].info.draft_kind
    if not kind:
        return None
    return draft if kind == "model" else str(bundled_head("storyteller", kind) or "")


def options() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="the target; the bundled one without")
    parser.add_argument("-d", "--draft", help="its draft")
    parser.add_argument("--methods", help="separated by commas; all that have a draft here without")
    parser.add_argument("-n", type=int, default=2000, help="tokens of a method")
    parser.add_argument("--threads", type=int, help="of the engine")
    return parser


def main() -> None:
    """Print the table, a method a row."""
    asked = options().parse_args()
    target, draft = (asked.model, asked.draft) if asked.model else map(str, PAIR)
    methods = asked.methods.split(",") if asked.methods else ["auto", *registered("method")]
    print("| method | tokens | drafted | median | largest | wide, median | largest | perplexity told | of a run |")
    print("|---" * 9 + "|")
    for method in methods:
        file = draft if method == "auto" else draft_of(method, draft)
        if file == "" or (asked.model and file is not None and file != draft):
            continue
        loading = events.Returning(load(LoadSettings(target, file, ctx=1024, threads=asked.threads), lambda: False))
        for _ in loading:
            pass
        with closing(loading.result) as pair:
            try:
                print(read(pair, method, asked.n).line(method), flush=True)
            except LocalspecError as error:
                print(f"{method}: {error.message}", file=sys.stderr)


if __name__ == "__main__":
    main()
