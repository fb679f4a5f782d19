"""Tokens a second of edits with and without `prediction`, beside llama-server's own copies, in one run.

  predictions.py -m MODEL.gguf --suite EDITS.jsonl --llama-server bin/llama-server [--seconds 240]

A prompt asks for a change in a file, which stands in it in a fence. That file is the prediction: most of the answer
should be in it. All are asked by /v1/chat/completions at T=0, each prompt in a drawn order, and servers stay loaded.
A first prompt warms up and does not count. Rates are of the tokens after the first. No prompt begins that would
probably end after `--seconds`.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from two_servers import Serving, llama_server, localspec_server

from localspec.bench.statistics import median_interval, ratio_interval
from localspec.bench.suites import load_suite

PREDICTED = "`auto`, prediction"
FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
Wire = dict[str, Any]


@contextmanager
def contenders(options: argparse.Namespace, home: str) -> Iterator[dict[str, tuple[Serving, Wire]]]:
    """Start the servers; yield whom to ask, and what else to say to it, by the name in the table."""
    with ExitStack() as stack:
        env = {**os.environ, "LOCALSPEC_HOME": home}
        ctx, threads = str(options.ctx), str(options.threads)
        words = (options.model, "-d", options.draft or "none", "--ctx", ctx, "-t", threads, "--cache-disk", "0")
        ours = stack.enter_context(localspec_server(env, *words))
        found: dict[str, tuple[Serving, Wire]] = {
            "plain": (ours, {"speculation": {"method": "plain"}}),
            "`auto`": (ours, {}),
            PREDICTED: (ours, {}),
        }
        for kind in options.type or ("ngram-mod",):
            said = ("-m", options.model, "-c", ctx, "-t", threads, "--spec-type", kind)
            found[f"llama-server {kind}"] = (stack.enter_context(llama_server(options.llama_server, *said)), {})
        yield found


class Table:
    """What was measured, by contender: tokens a second, and shares of the draft that were accepted."""

    def __init__(self) -> None:
        self.rates: dict[str, list[float]] = defaultdict(list)
        self._drafts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.texts: dict[str, list[str]] = defaultdict(list)

    def observe(self, name: str, told: Wire) -> None:
        """Take the figures of an answer."""
        timings = told["timings"]
        self.rates[name].append(1e3 * (timings["predicted_n"] - 1) / timings["predicted_ms"])
        for i, count in enumerate(("draft_n", "draft_n_accepted")):
            self._drafts[name][i] += timings.get(count, 0)
        self.texts[name].append(told["choices"][0]["message"]["content"])

    def rows(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the table's lines, of contenders in this order."""
        yield "| contender | tok/s | x plain | accepted | prediction / it, by prompt | texts equal to plain |"
        yield "|---|---|---|---|---|---|"
        for name in names:
            rates = self.rates[name]
            drafted, accepted = self._drafts[name]
            found = (
                median_interval(rates),
                ratio_interval(rates, self.rates["plain"], is_paired=True),
                ratio_interval(self.rates[PREDICTED], rates, is_paired=True),
            )
            rate, of_plain, beside = ("" if each is None else each.spelt(2) for each in found)
            equal = sum(a == b for a, b in zip(self.texts[name], self.texts["plain"], strict=True))
            share = f"{accepted / drafted:.0%}" if drafted else ""
            yield f"| {name} | {rate} | {of_plain} | {share} | {beside} | {equal} of {len(rates)} |"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="a GGUF file")
    parser.add_argument("-d", "--draft", help="a second one, for localspec")
    parser.add_argument("--suite", required=True, help="prompts with a file in a fence, one JSON object a line")
    parser.add_argument("--llama-server", required=True, help="the program")
    parser.add_argument("--type", action="append", help="of its speculation; default: ngram-mod")
    parser.add_argument("-n", type=int, default=192, help="tokens of an answer at most")
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=240.0, help="of all, loading too")
    options = parser.parse_args()
    random, table, began, longest = Random(0), Table(), time.monotonic(), 0.0
    prompts = [prompt.text for prompt in load_suite(str(Path(options.suite).absolute())).prompts]
    fenced = [(text, found[1]) for text in prompts if (found := FENCED.search(text))]
    with tempfile.TemporaryDirectory() as home, contenders(options, home) as found:
        for i, (text, file) in enumerate(fenced):
            if (at := time.monotonic()) + longest > began + options.seconds:
                break
            for name in random.sample(sorted(found), len(found)):
                serving, more = found[name]
                said = {**more, "prediction": {"type": "content", "content": file}} if name == PREDICTED else more
                messages = [{"role": "user", "content": text}]
                body = {"messages": messages, "max_tokens": options.n, "temperature": 0, **said}
                told = serving.post("/v1/chat/completions", **body)
                if i:
                    table.observe(name, told)
            longest = max(longest, time.monotonic() - at)
    print(*table.rows(found), sep="\n")


if __name__ == "__main__":
    main()
