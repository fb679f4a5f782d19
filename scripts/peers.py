"""localspec against llama.cpp's own server and bench: same files, prompts, sampling and threads, in turns, one table.

  peers.py --folder ~/peers                            the bundled pair
  peers.py -m BIG.gguf+SMALL.gguf --threads 2 --json peers.json --markdown peers.md

The programs are built once, in --folder, from the source of the llama.cpp that is installed here. Every contender
answers a prompt before the next is asked, from an empty cache. The order is drawn for each prompt and repetition, and
is the same in every run. Rates are of the tokens after the first. A new process gives each answer, loaded and warmed
up: the place of the weights in memory changes the speed of a process by several percent.

llama-bench runs beside every answer with as many tokens. It runs with flash attention, its default, and without, as
localspec does on a processor. At T=0.8 texts differ between programs, which use different random generators. At T=0
they differ where two tokens are nearly equally probable, since programs round differently. Answers with the same text
are also compared alone, since one text is easier to draft than another.

Servers send each token as it comes, and are read as often as localspec reads its engine. localspec draws its own
randomness and verifies by block, as by default. With --seed N every contender, a server too, answers a prompt in a
repetition with one seed, made of N and these two; localspec then verifies by coupled noise. A server has its default
environment. localspec's worker has larger pages (glibc.malloc.hugetlb) and waits awake for longer (GOMP_SPINCOUNT).
Ctrl+C ends the run early with a table of the measurements; so does a server that does not start.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from llama_peers.bare import Bench
from llama_peers.build import build
from llama_peers.server import ATTENTIONS, HEADS, TYPES, Server, Setting, settings
from llama_peers.texts import of_one_text

from localspec.bench.contenders import parse_contenders
from localspec.bench.measurement import Cell, Measurement, measured
from localspec.bench.result import Hashes, SummaryRow, machine, rates, rows
from localspec.bench.runner import WARM_UP, BenchJob
from localspec.bench.statistics import Interval, ratio_interval
from localspec.bench.suites import choose, load_suite
from localspec.bench.table import piped
from localspec.errors import LocalspecError
from localspec.models.store import parse_pair
from localspec.settings.folders import cache_folder
from localspec.settings.request import LoadSettings, Request
from localspec.ui.files import write_whole
from localspec.ui.stats import Stats
from localspec.worker.client import Worker

Wire = dict[str, Any]
MOST = 2**31


def ours(load: LoadSettings, request: Request) -> Stats:
    """Return the account of localspec's answer, by a process of its own."""
    stats = Stats()
    with Worker() as worker:
        for _ in worker.load(load):
            pass
        for _ in worker.generate(replace(request, max_tokens=WARM_UP)):
            pass
        for event in worker.generate(request):
            stats.observe(event)
    return stats


def turns(job: BenchJob, repeat: int, names: list[str], benches: list[str]) -> Iterator[Cell]:
    """Yield every cell of one repetition, the contenders of a prompt shuffled: none always follows the same other.

    llama-bench is never first: somebody has to have told how many tokens the prompt has.
    """
    for temperature, prompt in product(job.temperatures, range(len(job.suite.prompts))):
        order = [*names, *benches]
        Random(f"{repeat} {temperature} {prompt}").shuffle(order)
        while order[0] in benches:
            order.append(order.pop(0))
        yield from (Cell(prompt, temperature, name, repeat) for name in order)


def run(
    job: BenchJob, repeat: int, load: LoadSettings, servers: dict[str, Server], benches: dict[str, Bench]
) -> Iterator[Measurement]:
    """Yield every answer of one repetition; servers, llama-bench and localspec's methods take turns in one order."""
    cells = list(turns(job, repeat, [*servers, *(one.name for one in job.contenders)], list(benches)))
    depths = {}
    try:
        for done, cell in enumerate(cells):
            counted = f"{repeat + 1}/{job.repeats} {done}/{len(cells)}"
            print(f"\r{counted} {cell.contender:<40}", end="", file=sys.stderr, flush=True)
            if cell.contender in servers:
                request = job.request(replace(cell, contender="plain"))
                answer = servers[cell.contender].ask(cell, request, job.suite.prompts[cell.prompt].text)
            elif cell.contender in benches:
                answer = benches[cell.contender].ask(cell, depths[cell.prompt], job.max_tokens)
            else:
                answer = measured(cell, ours(load, job.request(cell)))
            depths[cell.prompt] = answer.prompt_n
            yield answer
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would lose the table
        raise
    finally:
        print(file=sys.stderr)  # what went wrong gets a line of its own


def report(job: BenchJob, measurements: list[Measurement], command: str) -> str:
    """Return the tables as Markdown: rates, ratios against localspec's plain decoding, the best server setting."""
    parts = [f"`{command}`\n"]
    lengths: dict[int, set[int]] = {}
    for one in measurements:
        lengths.setdefault(one.cell.prompt, set()).add(one.prompt_n)
    if any(len(found) > 1 for found in lengths.values()):
        parts.append("The programs read a prompt as different numbers of tokens: figures are not of the same work.\n")
    table = rows(measurements)
    for temperature in job.temperatures:
        here = [row for row in table if row.temperature == temperature]
        if not here:
            continue  # stopped before it
        lines = [("contender", "tok/s", "× plain", "accepted", "prompt tok/s", "whole answer", "answers")]
        lines += [_line(row) for row in here]
        parts += [f"### T={temperature:g}\n", piped(lines)]
        answers = {
            row.contender: [
                one
                for one in measurements
                if one.cell.contender == row.contender and one.cell.temperature == temperature
            ]
            for row in here
        }
        servers = [row for row in here if row.contender.startswith("llama-server") and row.tok_per_s]
        best = max(servers, key=lambda row: row.tok_per_s.median if row.tok_per_s else 0.0, default=None)
        for row in here:
            if best is not None and not row.contender.startswith("llama-"):
                both = answers[row.contender], answers[best.contender]
                same = _ratio(*of_one_text(*both))
                told = f"; of one text: {_spelt(same)}, {same.n} prompts" if same else ""
                parts.append(f"{row.contender} / {best.contender}: {_spelt(_ratio(*both))}{told}\n")
        for name in (row.contender for row in here if "plain" in answers and row.contender.startswith("llama-bench")):
            parts.append(f"plain / {name}: {_spelt(_ratio(answers['plain'], answers[name]))}\n")
    return "\n".join(parts)


def _ratio(above: list[Measurement], below: list[Measurement]) -> Interval | None:
    """Return how fast one is to another, by the prompts that both have."""
    a, b = rates(above), rates(below)
    both = [prompt for prompt in a if prompt in b]
    return ratio_interval([a[prompt] for prompt in both], [b[prompt] for prompt in both], is_paired=True)


def _line(row: SummaryRow) -> tuple[str, ...]:
    accepted = "–" if row.acceptance is None else f"{row.acceptance:.0%}"
    prompt = "–" if row.prompt_per_s is None else f"{row.prompt_per_s:.0f}"
    whole = "–" if not row.total_ms[0] else f"{row.total_ms[0] / 1e3:.1f} s"
    return (row.contender, _spelt(row.tok_per_s, 1), _spelt(row.ratio), accepted, prompt, whole, str(row.n))


def _spelt(interval: Interval | None, digits: int = 2) -> str:
    return "–" if interval is None else interval.spelt(digits)


def seed(text: str) -> int:
    """Read a seed that, counted on by answers, still is one of the server's 32 bits."""
    if not (text.isdecimal() and int(text) <= MOST):
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: a whole number up to {MOST}")
    return int(text)


def count(text: str) -> int:
    """Read a number of things to do, of which there is at least one."""
    if not (text.isdecimal() and 0 < int(text) <= MOST):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=cache_folder("peers"), help="where the programs are built")
    parser.add_argument("-m", "--model", default=None, help="a pair, as localspec run has it")
    parser.add_argument("--methods", default="plain,auto,draft-model:k=4", help="of localspec, as in localspec bench")
    parser.add_argument("--n-max", default="1,2,3,4,5,6,7,8", help="of types that draft with a model or head")
    parser.add_argument(
        "--types",
        default=",".join(TYPES),
        help="of the server's speculation; ngram-mod+draft-simple is both, and draft-eagle3 takes a head",
    )
    parser.add_argument("--flash-attn", default="auto,off", help="of the servers: each setting is run with each")
    parser.add_argument("--suite", default="stories")
    parser.add_argument("--chat", action="store_true", help="ask through the model's chat template")
    parser.add_argument("--prompts", type=count, default=6)
    parser.add_argument("--repeats", type=count, default=2)
    parser.add_argument("--temps", default="0,0.8")
    parser.add_argument(
        "--seed",
        type=seed,
        help="of every contender: localspec verifies by coupled noise, and by block without one",
    )
    parser.add_argument("-n", type=count, default=128, help="tokens of an answer")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ctx", type=int, default=1024)
    parser.add_argument("--jobs", type=int, default=2, help="of the compiler")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--no-bench", action="store_true", help="leave llama-bench out")
    parser.add_argument("--build-only", action="store_true")
    return parser.parse_args()


def asked(options: argparse.Namespace, *, has_draft: bool) -> BenchJob:
    """Return what is measured."""
    return BenchJob(
        suite=choose(load_suite(options.suite, is_chat=options.chat), options.prompts),
        contenders=parse_contenders(options.methods, has_draft=has_draft),
        temperatures=tuple(float(word) for word in options.temps.split(",")),
        repeats=options.repeats,
        max_tokens=options.n,
        seed=options.seed,
    )


def swept(options: argparse.Namespace, *, has_draft: bool) -> list[Setting]:
    """Return the server's settings; raises ValueError for words that it does not know."""
    types, attentions = options.types.split(","), options.flash_attn.split(",")
    words = {word for kind in types for word in kind.split("+")}
    unknown = words - {*TYPES, *HEADS} | set(attentions) - set(ATTENTIONS)
    if unknown:
        known = f"--types {', '.join((*TYPES, *HEADS))}; --flash-attn {', '.join(ATTENTIONS)}"
        raise ValueError(f"the server has no {', '.join(sorted(unknown))}: {known}")
    n_max = [int(word) for word in options.n_max.split(",")]
    found = settings(n_max, has_draft=has_draft, types=types, attentions=attentions)
    if not found:
        raise ValueError("no setting of the server is left: --types none needs no draft model")
    return found


def as_json(options: argparse.Namespace, files: list[Path], measurements: list[Measurement]) -> Wire:
    """Return what was measured, with what, on which machine, and as what was asked for."""
    hashes = Hashes(cache_folder("bench") / "sha256.json")
    return {
        "schema": "localspec.peers/3",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {name: version(name) for name in ("localspec", "llama-cpp-python")},
        "models": {str(path): hashes.sha256(path) for path in files},
        "options": vars(options),
        "results": [row.to_wire() for row in rows(measurements)],
        "measurements": [one.to_wire() for one in measurements],
    }


def keep(options: argparse.Namespace, page: str, files: list[Path], measurements: list[Measurement]) -> None:
    """Write what was measured until now where it was asked for."""
    if options.markdown:
        write_whole(options.markdown, page, hint="another --markdown")
    if options.json:
        found = as_json(options, files, measurements)
        write_whole(options.json, json.dumps(found, indent=1, default=str) + "\n", hint="another --json")


def main() -> None:
    """Build, measure, and write the table."""
    options = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # with the table, and not without ending the server
    try:
        pair = parse_pair(options.model)
        job = asked(options, has_draft=pair.draft is not None)
        sweep = swept(options, has_draft=pair.draft is not None)
    except (LocalspecError, ValueError) as error:  # before minutes of compiling
        sys.exit(f"peers.py: {error}")
    peers = build(options.folder, options.jobs)
    if options.build_only:
        return
    load = LoadSettings(
        str(pair.target.absolute()),
        pair.draft and str(pair.draft.absolute()),
        name=pair.name,
        ctx=options.ctx,
        threads=options.threads,
    )
    measurements: list[Measurement] = []
    ways = () if options.no_bench else ("off", "on")
    benches = {one.name: one for one in (Bench(peers.bench, pair.target, options.threads, way) for way in ways)}
    stopped = ""
    servers = {
        setting.name: Server(peers.server, setting, pair.target, pair.draft, options.threads, options.ctx)
        for setting in sweep
    }
    for repeat in range(job.repeats):
        try:
            for one in run(job, repeat, load, servers, benches):
                measurements.append(one)
        except (KeyboardInterrupt, OSError, LocalspecError) as error:
            stopped = str(error) or "stopped"  # with what was measured until then
        if not measurements:
            sys.exit(f"before the first answer: {stopped}")
        page = report(job, measurements, "scripts/peers " + " ".join(sys.argv[1:]))
        files = [path for path in (pair.target, pair.draft) if path is not None]
        try:
            keep(options, page, files, measurements)
        except (OSError, LocalspecError) as error:  # the table is printed all the same
            stopped = stopped or str(error)
        if stopped:
            break
    print(page)
    if stopped:
        sys.exit(f"incomplete: {stopped}")


if __name__ == "__main__":
    main()
