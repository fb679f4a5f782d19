"""Servers and commands beside llama-server: the wait for an answer, several clients, memory, predicted outputs."""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from random import Random

from localspec.backends.options import LoadOptions
from localspec.bench.suites import load_suite
from localspec.session.loaded_model import inspect_model
from measuring.runner import Contender, Contenders, Figures, Options, case, count, numbers
from measuring.servers import LOCALSPEC, Serving, environment, llama_server, localspec_server, processor_seconds

STORY = "The river runs past the old mill, and the miller's daughter counts the boats that come down from the hills. "
SAME = "Name three colours."
FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
MB = 1e6
Start = Callable[[], AbstractContextManager[Serving]]


def model_options(parser: argparse.ArgumentParser, n: int) -> None:
    """Add what all of these cases ask."""
    parser.add_argument("-m", "--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("-d", "--draft", type=Path, help="a second one")
    parser.add_argument("--llama-server", type=Path, help="the program, as scripts/peers --build-only makes it")
    parser.add_argument("--llama-options", default="", help="more words for it, as in '--spec-type ngram-mod'")
    parser.add_argument("--ctx", type=count, default=4096, help="of one client")
    parser.add_argument("--threads", type=count, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-n", type=count, default=n, help=f"tokens of an answer (default: {n})")


def start_localspec(asked: Options, home: Path | str, *words: str) -> AbstractContextManager[Serving]:
    """Serve the pair that was asked for by localspec."""
    draft = asked.draft.absolute() if asked.draft else "none"
    given = (str(asked.model.absolute()), "-d", str(draft), "--ctx", str(asked.ctx), "--threads", str(asked.threads))
    return localspec_server(home, *given, "--cache-disk", "0", *words)


def start_llama(asked: Options, slots: int = 1) -> AbstractContextManager[Serving]:
    """Serve the model that was asked for by llama-server, each slot with the whole context."""
    draft = ("-md", str(asked.draft)) if asked.draft and "-md" not in asked.llama_options else ()
    given = ("-m", str(asked.model), *draft, "-c", str(slots * asked.ctx), "-t", str(asked.threads), "-np", str(slots))
    return llama_server(asked.llama_server, *given, *asked.llama_options.split())


def first_byte(words: list[str], env: dict[str, str] | None = None) -> Figures:
    """Return the seconds until a command writes its first byte; wait for its end."""
    began = time.perf_counter()
    with subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        has_begun, seconds = process.stdout.read(1), time.perf_counter() - began
        process.stdout.read()
    if not has_begun:
        raise OSError(f"no output of: {' '.join(words)}")
    return {"first text (s)": seconds}


def streamed(serving: Serving, text: str, n: int) -> Figures:
    """Return the seconds to the first text of a stream, the pace of the rest, and what the server takes of it."""
    before = processor_seconds(serving.pid)
    answer = serving.stream(text, n, temperature=0)
    spent = processor_seconds(serving.pid) - before
    figures = {"first text (s)": answer.first - answer.began}
    if answer.tokens > 1:
        figures["ms a token"] = 1e3 * (answer.ended - answer.first) / (answer.tokens - 1)
    if serving.children:  # the model is in another process
        figures["of it the HTTP process"] = 1e3 * spent / answer.tokens
    return figures


@case(partial(model_options, n=32), rounds=7, warm_up=1)
def first_token(asked: Options) -> Iterator[Contenders]:
    """Seconds to the first text: `run` that loads, `run` on a warm engine, and streams of the server and llama-server.

    `same` is a prompt that was asked before, `new` one that was not.
    """
    random = Random(0)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:

        def new() -> str:
            return f"Name {random.randint(3, 99)} things that begin with {random.choice('abcdefghijklmnoprst')}."

        def command(home: str, text: str) -> Figures:
            words = ["run", "-q", "-m", str(asked.model), "-d", "none", "--temp", "0", "-n", "8", "--no-save"]
            keep = ["--keep-alive", "10m"] if home == "warm" else []
            return first_byte([*LOCALSPEC, *words, *keep, text], dict(environment(Path(folder) / home)))

        stop = partial(subprocess.run, [*LOCALSPEC, "stop"], env=environment(Path(folder) / "warm"))
        stack.callback(stop, check=False, capture_output=True)
        contenders = {
            "python -c pass": Contender(lambda _: first_byte([sys.executable, "-c", "print()"])),
            "run, the model is loaded": Contender(lambda _: command("cold", new())),
            "run, warm, same": Contender(lambda _: command("warm", SAME)),
            "run, warm, new": Contender(lambda _: command("warm", new())),
        }
        servers = {"serve": stack.enter_context(start_localspec(asked, Path(folder) / "serve"))}
        if asked.llama_server:
            servers["llama-server"] = stack.enter_context(start_llama(asked))
        for name, serving in servers.items():
            for kind, text in (("same", lambda: SAME), ("new", new)):
                against = (f"llama-server, {kind}",) if name == "serve" and asked.llama_server else ()
                contenders[f"{name}, {kind}"] = Contender(
                    lambda _, serving=serving, text=text: streamed(serving, text(), asked.n), against
                )
        yield contenders


@case(partial(model_options, n=8), rounds=3)
def conversation(asked: Options) -> Iterator[Contenders]:
    """Seconds to the first text of a conversation of 3 000 tokens in a new engine, from disk or read anew."""
    with tempfile.TemporaryDirectory() as folder:

        def go_on(n: int, **env: str) -> Figures:
            words = ["run", "-q", "-m", str(asked.model), "-d", "none", "--temp", "0", "-n", str(asked.n), "-c"]
            return first_byte([*LOCALSPEC, *words, f"Say {n}."], dict(environment(Path(folder) / "home", **env)))

        text = Path(folder) / "text"
        text.write_text(125 * STORY)
        words = ["run", "-q", "-m", str(asked.model), "-d", "none", "--temp", "0", "-n", "8", "-f", str(text)]
        first_byte([*LOCALSPEC, *words, "Who counts?"], dict(environment(Path(folder) / "home")))
        yield {
            "from disk": Contender(go_on, ("read anew",)),
            "read anew": Contender(lambda n: go_on(n, LOCALSPEC_CACHE_DISK="0")),
        }


STREAMED: dict[str, dict[str, str]] = {  # a path of each API, and the field that has the prompt
    "/v1/chat/completions": {"messages": "chat"},
    "/v1/responses": {"input": "text"},
    "/v1/messages": {"messages": "chat"},
    "/api/chat": {"messages": "chat"},
    "/completion": {"prompt": "text"},
}


def _silence(parser: argparse.ArgumentParser) -> None:
    model_options(parser, n=8)
    parser.add_argument("--sentences", type=count, default=480, help="of the prompt (default: 480, some 10 000 tokens)")


@case(_silence, rounds=1)
def silence(asked: Options) -> Iterator[Contenders]:
    """Seconds without a byte while a long prompt is read: a stream of each API, and /tokenize meanwhile."""
    asked.ctx = max(asked.ctx, 16384)

    def turn(_: int, serving: Serving, path: str) -> Figures:
        ((name, kind),) = STREAMED[path].items()
        text = f"{path} {asked.sentences * STORY}"  # no two prompts begin alike
        value = [{"role": "user", "content": text}] if kind == "chat" else text
        limits = dict.fromkeys(("max_tokens", "max_output_tokens", "n_predict"), asked.n)
        with ThreadPoolExecutor(1) as pool:
            arrivals = pool.submit(serving.arrivals, path, **{name: value}, **limits, stream=True)
            asking = []
            while not arrivals.done():
                began = time.perf_counter()
                serving.post("/tokenize", content="Hello")
                asking.append(time.perf_counter() - began)
                time.sleep(0.5)
        began, *times = arrivals.result()
        pauses = [after - before for before, after in zip([began, *times], times, strict=False)]
        return {"first byte (s)": pauses[0], "longest pause (s)": max(pauses), "/tokenize (s)": max(asking),
                "whole (s)": times[-1] - began}  # fmt: skip

    with tempfile.TemporaryDirectory() as home, start_localspec(asked, home) as serving:
        yield {path: Contender(partial(turn, serving=serving, path=path)) for path in STREAMED}


def _lanes(parser: argparse.ArgumentParser) -> None:
    model_options(parser, n=200)
    parser.add_argument("--clients", type=numbers, default=[1, 2, 4, 8], help="at once (default: 1,2,4,8)")
    parser.add_argument("--suite", default="stories", help="of prompts: a name or a file, as localspec bench takes it")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--serve", default=None, help="words for localspec serve; {n} stands for the clients")


@case(_lanes, rounds=3)
def lanes(asked: Options) -> Iterator[Contenders]:
    """Tokens a second of several clients at once, all together: `localspec serve` beside `llama-server -np N`.

    In a turn a server starts, answers one short prompt, and then N clients at the same time. `--serve` are the words by
    which localspec gives several answers at once. By default that is --parallel N, where `serve` has it.
    """
    texts = [prompt.text for prompt in load_suite(asked.suite).prompts]
    if asked.serve is None:
        done = subprocess.run([*LOCALSPEC, "serve", "--help"], capture_output=True, text=True, check=True)
        asked.serve = "--parallel {n}" if "--parallel" in done.stdout else ""

    def turn(n: int, clients: int, start: Start) -> Figures:
        asked_for = [texts[(n * clients + i) % len(texts)] for i in range(clients)]
        with start() as serving, ThreadPoolExecutor(clients) as pool:
            serving.stream("Say yes.", 8, temperature=0)
            stream = partial(serving.stream, n=asked.n, temperature=asked.temp)
            answers = list(pool.map(stream, asked_for))
        seconds = max(each.ended for each in answers) - min(each.began for each in answers)
        return {
            "tok/s of all": sum(each.tokens for each in answers) / seconds,
            "of the slowest": min(each.tokens / (each.ended - each.began) for each in answers),
            "first text (s)": statistics.median(each.first - each.began for each in answers),
        }

    with tempfile.TemporaryDirectory() as home:
        contenders = {}
        for n in asked.clients:
            ours = partial(start_localspec, asked, home, *asked.serve.format(n=n).split())
            other = (f"llama-server, {n}",) if asked.llama_server else ()
            one = (f"localspec, {asked.clients[0]}",) if n != asked.clients[0] else ()
            contenders[f"localspec, {n}"] = Contender(partial(turn, clients=n, start=ours), (*other, *one))
            if asked.llama_server:
                theirs = partial(start_llama, asked, n)
                contenders[f"llama-server, {n}"] = Contender(partial(turn, clients=n, start=theirs))
        yield contenders


def resident(pid: int) -> tuple[float, float]:
    """Return the megabytes of a process's own memory, and of files, that are resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {line.split(":")[0]: 1024 * int(line.split()[1]) / MB for line in lines if line.startswith("Rss")}
    return sizes["RssAnon"] + sizes["RssShmem"], sizes["RssFile"]


def _memory(parser: argparse.ArgumentParser) -> None:
    model_options(parser, n=16)
    parser.add_argument("--texts", type=count, default=4, help="after the first")


@case(_memory, rounds=1)
def memory(asked: Options) -> Iterator[Contenders]:
    """Memory of an engine with one text and with further ones kept, beside llama-server with the same files.

    Each server answers one prompt of about 1 000 tokens, then further ones that share no start. Figures are resident MB
    of the process that runs llama.cpp: memory of its own, and pages of the model's file. The last column is what each
    further text added, in sizes of its cache: tokens times the bytes that a token takes there, of target and draft.
    """
    paths = [path for path in (asked.model, asked.draft) if path]
    token_bytes = sum(inspect_model(path).context_shape().kv_bytes(256, LoadOptions()) // 256 for path in paths)

    def turn(_: int, start: Start) -> Figures:
        with start() as serving:
            (pid,) = serving.children or [serving.pid]
            loaded, steps, added = resident(pid)[0], [], []
            for i in range(1 + asked.texts):
                text = f"Chapter {i} of {i + 7}. {45 * STORY} What does she count?"
                answer = serving.stream(text, asked.n, temperature=0)
                steps.append(resident(pid))
                if i:
                    tokens = answer.last["usage"]["total_tokens"]
                    added.append(MB * (steps[-1][0] - steps[-2][0]) / (tokens * token_bytes))
            http = {"the HTTP process": sum(resident(serving.pid))} if serving.children else {}
        (own, file), all_own = steps[0], steps[-1][0]
        return {
            "with one text": own, "loaded": loaded, "file": file, "with all texts": all_own,
            "a further text, x its cache": statistics.mean(added), **http,
        }  # fmt: skip

    with tempfile.TemporaryDirectory() as home:
        contenders = {"localspec": Contender(partial(turn, start=partial(start_localspec, asked, home)))}
        if asked.llama_server:
            contenders["llama-server"] = Contender(partial(turn, start=partial(start_llama, asked)))
        yield contenders


def _predictions(parser: argparse.ArgumentParser) -> None:
    model_options(parser, n=192)
    parser.add_argument("--suite", required=True, help="prompts with a file in a fence, one JSON object a line")


@case(_predictions, rounds=5, warm_up=1)
def predictions(asked: Options) -> Iterator[Contenders]:
    """Tokens a second of edits with and without `prediction`, beside llama-server's own copies.

    A prompt asks for a change in a file, which stands in it in a fence. That file is the prediction: most of the answer
    should be in it. Each round is a prompt. Rates are of the tokens after the first.
    """
    texts = [prompt.text for prompt in load_suite(asked.suite).prompts]
    fenced = [(text, file[1]) for text in texts if (file := FENCED.search(text))]

    def turn(n: int, serving: Serving, method: str = "", *, is_predicted: bool = False) -> Figures:
        text, file = fenced[n % len(fenced)]
        body = {"speculation": {"method": method}} if method else {}
        body |= {"prediction": {"type": "content", "content": file}} if is_predicted else {}
        messages = [{"role": "user", "content": text}]
        reply = serving.post("/v1/chat/completions", messages=messages, max_tokens=asked.n, temperature=0, **body)
        timings = reply["timings"]
        figures = {"tok/s": 1e3 * (timings["predicted_n"] - 1) / timings["predicted_ms"]}
        if timings.get("draft_n"):
            figures["accepted"] = timings["draft_n_accepted"] / timings["draft_n"]
        return {**figures, "text": reply["choices"][0]["message"]["content"]}

    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        ours = stack.enter_context(start_localspec(asked, home))
        contenders = {
            "plain": Contender(partial(turn, serving=ours, method="plain")),
            "auto": Contender(partial(turn, serving=ours), ("plain",)),
        }
        others = ["plain"]
        if asked.llama_server:
            asked.llama_options = asked.llama_options or "--spec-type ngram-mod"
            theirs = stack.enter_context(start_llama(asked))
            contenders["llama-server"] = Contender(partial(turn, serving=theirs), ("plain",))
            others.append("llama-server")
        predicted = partial(turn, serving=ours, is_predicted=True)
        yield {**contenders, "auto, prediction": Contender(predicted, tuple(others))}
