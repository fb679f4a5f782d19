"""localspec's methods against settings of llama.cpp's own server, and llama-bench: same files, prompts and sampling."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from localspec.bench.contenders import Contender as Method
from localspec.bench.contenders import parse_contenders
from localspec.bench.suites import Suite, load_suite
from localspec.models.store import PairRef, parse_pair
from localspec.settings.folders import cache_folder
from localspec.settings.request import LoadSettings, Message, Request, Sampling
from localspec.ui.stats import Stats
from localspec.worker.client import Worker
from measuring.llama_build import build
from measuring.runner import Contender, Contenders, Figures, Options, case, count, numbers
from measuring.servers import EVENT, Serving, llama_server

TYPES = ("none", "draft-simple", "ngram-simple", "ngram-mod")
HEADS = ("draft-eagle3", "draft-mtp")  # with a draft head, only where they are asked for
ATTENTIONS = ("auto", "on", "off")
WARM_UP = 8  # tokens
FRAME = 1 / 30  # seconds between two readings, as localspec reads its own engine


@dataclass(frozen=True)
class Setting:
    """A setting of llama-server: `name` in the table, and the options that make it."""

    name: str
    options: tuple[str, ...]
    needs_draft: bool = False


def settings(
    types: Sequence[str], attentions: Sequence[str], n_max: Sequence[int], *, has_draft: bool
) -> list[Setting]:
    """Return every type of speculation with every attention, those with a draft at every length.

    Several types may be joined by a plus. Raises ValueError for words that the server does not have.
    """
    words = {word for kind in types for word in kind.split("+")}
    unknown = sorted(words - {*TYPES, *HEADS} | set(attentions) - set(ATTENTIONS))
    if unknown:
        known = f"--types {', '.join((*TYPES, *HEADS))}; --flash-attn {', '.join(ATTENTIONS)}"
        raise ValueError(f"the server has no {', '.join(unknown)}: {known}")
    listed = []
    for attention in attentions:
        suffix = "" if attention == "auto" else f" fa={attention}"
        for kind in types:
            options = ("--spec-type", kind.replace("+", ","), "-fa", attention)
            if not {"draft-simple", *HEADS}.intersection(kind.split("+")):
                listed.append(Setting(f"llama-server {kind}{suffix}", options))
            elif has_draft:
                listed += [
                    Setting(f"llama-server {kind} n-max={n}{suffix}", (*options, "--spec-draft-n-max", str(n)), True)
                    for n in n_max
                ]
    if not listed:
        raise ValueError("no setting of the server is left: --types none needs no draft model")
    return listed


class Peers:
    """The turns of all contenders. `depths` holds how many tokens the prompt of a round has."""

    def __init__(self, asked: Options, pair: PairRef, suite: Suite, programs: tuple[Path, Path]) -> None:
        self._asked, self._pair, self._suite = asked, pair, suite
        self._server, self._bench = programs
        self._depths: dict[int, int] = {}

    def ours(self, n: int, method: Method) -> Figures:
        """Answer by localspec, in a process of its own, loaded and warmed up."""
        pair, stats = self._pair, Stats()
        draft = pair.draft and str(pair.draft.absolute())
        load = LoadSettings(
            str(pair.target.absolute()), draft, name=pair.name, ctx=self._asked.ctx, threads=self._asked.threads
        )
        request = self._request(n, method)
        with Worker() as worker:
            for _ in worker.load(load):
                pass
            for _ in worker.generate(replace(request, max_tokens=WARM_UP)):
                pass
            for event in worker.generate(request):
                stats.observe(event)
        assert stats.prefilled is not None
        assert stats.finished is not None
        self._depths[n] = stats.prefilled.prompt_n
        share = {} if stats.acceptance is None else {"accepted": stats.acceptance}
        return {
            "tok/s": stats.tok_per_s or 0.0, **share,
            "prompt tok/s": 1e3 * stats.prefilled.prompt_n / stats.prefilled.ms,
            "whole answer (s)": stats.finished.wall_ms / 1e3, "text": stats.text,
        }  # fmt: skip

    def server(self, n: int, setting: Setting) -> Figures:
        """Answer by llama-server, in a process of its own; raises OSError where it gives no answer."""
        pair, threads = self._pair, str(self._asked.threads)
        words = ["-m", str(pair.target), "-t", threads, "-tb", threads, *setting.options]
        words += ["-c", str(self._asked.ctx), "-np", "1", "--cache-ram", "0"]
        if setting.needs_draft:
            words += ["-md", str(pair.draft), "--spec-draft-threads", threads]
        request = self._request(n)
        with llama_server(self._server, *words, name=setting.name) as serving:
            completed(serving, {"prompt": "Once", "n_predict": WARM_UP})
            return theirs(completed(serving, self._body(serving, n, request)))

    def _body(self, serving: Serving, n: int, request: Request) -> dict[str, Any]:
        text = self._text(n)
        if request.messages:
            body = serving.post("/apply-template", messages=[{"role": "user", "content": text}])
            text = body["prompt"]
        sampling = request.sampling
        return {
            "prompt": text, "n_predict": request.max_tokens, "seed": 1 + n if sampling.seed is None else sampling.seed,
            "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p,
            "min_p": sampling.min_p,
        }  # fmt: skip

    def bench(self, n: int, attention: str) -> Figures:
        """Decode as many tokens by llama-bench, behind as long a prompt, which it does not read.

        Raises OSError where it measures nothing.
        """
        words = ["-m", str(self._pair.target), "-t", str(self._asked.threads), "-p", "0", "-n", str(self._asked.n)]
        words += ["-d", str(self._depths[n]), "-fa", attention, "-r", "1", "-o", "json"]
        done = subprocess.run([str(self._bench), *words], check=False, capture_output=True, text=True, errors="replace")
        try:
            (measured,) = json.loads(done.stdout)
            return {"tok/s": 1e9 * self._asked.n / float(measured["avg_ns"])}
        except (ValueError, KeyError, TypeError) as error:
            reason = (done.stderr.strip() or "its output is empty").splitlines()[-1]
            raise OSError(f"llama-bench fa={attention} measures nothing: {reason}") from error

    def _text(self, n: int) -> str:
        return self._suite.prompts[n % len(self._suite.prompts)].text

    def _request(self, n: int, method: Method | None = None) -> Request:
        """Return the request of a round: with --seed all contenders have the same seed, and each round another."""
        asked, text = self._asked, self._text(n)
        sampling = Sampling(temperature=asked.temp, seed=None if asked.seed is None else asked.seed + n)
        request = Request(prompt=text, max_tokens=asked.n, sampling=sampling, cold=True)
        if self._suite.is_chat:
            request = replace(request, prompt=None, messages=(Message("user", text),))
        return request if method is None else replace(request, speculation=method.speculation)


def completed(serving: Serving, body: dict[str, Any]) -> dict[str, Any]:
    """Return the last event of a streamed answer, from an empty cache, with the whole `content` in it.

    The stream is read as often as localspec reads its own engine. Raises OSError where it breaks off.
    """
    connection = http.client.HTTPConnection(urlsplit(serving.url).netloc)
    given = json.dumps({**body, "cache_prompt": False, "stream": True})
    received = bytearray()
    connection.request("POST", "/completion", given, {"Content-Type": "application/json"})
    with connection.getresponse() as response:
        while chunk := response.read1(1 << 20):
            received += chunk
            time.sleep(FRAME)
    connection.close()
    events = [json.loads(line[len(EVENT) :]) for line in received.splitlines() if line.startswith(EVENT)]
    if not events or "timings" not in events[-1]:
        reason = events[-1].get("error", "it breaks off") if events else received[:200].decode(errors="replace")
        raise OSError(f"llama-server gives no answer: {reason or 'it is empty'}")
    return {**events[-1], "content": "".join(event.get("content", "") for event in events)}


def theirs(answer: dict[str, Any]) -> Figures:
    """Return the server's timings as ours: its `predicted_ms` begins after the first token, as ours does.

    What the draft model reads of the prompt is in its `prompt_ms`, and in localspec's time of the tokens after the
    first: only the time of the whole answer compares that.
    """
    timings = answer["timings"]
    share = {"accepted": timings["draft_n_accepted"] / timings["draft_n"]} if timings.get("draft_n") else {}
    return {
        "tok/s": 1e3 * max(0, timings["predicted_n"] - 1) / timings["predicted_ms"], **share,
        "prompt tok/s": 1e3 * timings["prompt_n"] / timings["prompt_ms"],
        "whole answer (s)": (timings["prompt_ms"] + timings["predicted_ms"]) / 1e3, "text": answer["content"],
    }  # fmt: skip


def _peers(parser: argparse.ArgumentParser) -> None:
    words: dict[str, Any] = {"type": lambda text: text.split(",")}
    parser.add_argument("--folder", type=Path, default=cache_folder("peers"), help="where the programs are built")
    parser.add_argument("-m", "--model", help="a pair, as localspec run has it")
    parser.add_argument("--methods", default="plain,auto,draft-model:k=4", help="of localspec, as in localspec bench")
    parser.add_argument("--types", default=list(TYPES), help="of the server; ngram-mod+draft-simple is both", **words)
    parser.add_argument("--n-max", type=numbers, default=[3], help="of types that draft with a model or a head")
    parser.add_argument("--flash-attn", default=["auto", "off"], help="of the server: each type has each", **words)
    parser.add_argument("--suite", default="stories")
    parser.add_argument("--chat", action="store_true", help="ask through the model's chat template")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--seed", type=count, help="localspec then verifies by coupled noise, by block without one")
    parser.add_argument("-n", type=count, default=128, help="tokens of an answer")
    parser.add_argument("--threads", type=count, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ctx", type=count, default=1024)
    parser.add_argument("--jobs", type=count, default=2, help="of the compiler")
    parser.add_argument("--no-bench", action="store_true", help="leave llama-bench out")
    parser.add_argument("--build-only", action="store_true", help="build llama-server and llama-bench, and no more")


@case(_peers, rounds=6)
def peers(asked: Options) -> Iterator[Contenders]:
    """localspec against llama.cpp's own server and bench, which are built once, in --folder, from the same source.

    Each round is a prompt. A new process gives each answer, loaded and warmed up, from an empty cache: the place of the
    weights in memory changes the speed of a process by several percent. Rates are of the tokens after the first.

    At T=0 texts differ where two tokens are nearly equally probable, since programs round differently. A ratio of one
    text leaves such answers out. At T=0.8 texts always differ. llama-bench decodes as many tokens as an answer has,
    with flash attention, its default, and without, as localspec does on a processor. A server has its default
    environment; localspec's worker has larger pages (glibc.malloc.hugetlb) and waits awake longer (GOMP_SPINCOUNT).
    """
    pair = parse_pair(asked.model)
    has_draft = pair.draft is not None
    methods = parse_contenders(asked.methods, has_draft=has_draft)
    sweep = settings(asked.types, asked.flash_attn, asked.n_max, has_draft=has_draft)
    suite = load_suite(asked.suite, is_chat=asked.chat or None)
    programs = build(asked.folder, asked.jobs)
    if asked.build_only:
        sys.exit(0)
    turns = Peers(asked, pair, suite, programs)
    benches = {} if asked.no_bench else {f"llama-bench fa={way}": way for way in ("off", "on")}
    servers = tuple(setting.name for setting in sweep)
    contenders = {}
    for method in methods:
        against = (*servers, *benches) if method.name == "plain" else ("plain", *servers)
        contenders[method.name] = Contender(partial(turns.ours, method=method), against)
    for setting in sweep:
        contenders[setting.name] = Contender(partial(turns.server, setting=setting), ("plain",))
    for name, attention in benches.items():
        contenders[name] = Contender(partial(turns.bench, attention=attention), is_last=True)
    yield contenders
