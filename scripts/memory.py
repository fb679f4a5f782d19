"""Memory of an engine with one text, and with further ones kept, beside llama-server with the same files and context.

  memory.py -m MODEL.gguf [-d DRAFT.gguf] --llama-server bin/llama-server [--ctx 4096] [--texts 4]

Each server answers one prompt of about 1 000 tokens, then further ones that share no start. Figures are resident MB of
the process that runs llama.cpp: `own` memory, and pages of the model's file. The last column is what each further text
added, in sizes of its cache: tokens times the bytes that a token takes in the cache, of target and draft.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from two_servers import Serving, llama_server, localspec_server

from localspec.backends.options import LoadOptions
from localspec.session.loaded_model import inspect_model

STORY = "The river runs past the old mill, and the miller's daughter counts the boats that come down from the hills. "
REPEATS = 45  # of it: about 1 000 tokens
MB = 1e6


def resident(pid: int) -> tuple[float, float]:
    """Return the megabytes of a process's own memory, and of files, that are resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines if line.startswith("Rss")}
    return (found["RssAnon"] + found["RssShmem"]) / MB, found["RssFile"] / MB


def measured(name: str, serving: Serving, pid: int, n_texts: int, token_bytes: int) -> str:
    """Return the row of one server."""
    loaded, steps, added = resident(pid)[0], [], []
    for i in range(1 + n_texts):
        messages = [{"role": "user", "content": f"Chapter {i} of {i + 7}. {STORY * REPEATS} What does she count?"}]
        told = serving.post("/v1/chat/completions", messages=messages, max_tokens=16, temperature=0)
        steps.append(resident(pid))
        if i:
            added.append(MB * (steps[-1][0] - steps[-2][0]) / (told["usage"]["total_tokens"] * token_bytes))
    own, file = steps[0]
    each = f"{statistics.mean(added):.2f} ({', '.join(f'{one:.2f}' for one in added)})" if added else ""
    return f"| {name} | {loaded:.0f} | {own:.0f} | {file:.0f} | {own + file:.0f} | {steps[-1][0]:.0f} | {each} |"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="a GGUF file")
    parser.add_argument("-d", "--draft", help="a second one")
    parser.add_argument("--llama-server", help="the program")
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--texts", type=int, default=4, help="after the first")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    paths = [each for each in (options.model, options.draft) if each]
    token_bytes = sum(inspect_model(path).context_shape().kv_bytes(256, LoadOptions()) // 256 for path in paths)
    print(f"A token takes {token_bytes} bytes of the cache.\n")
    print("| program | loaded: own | one text: own | file | both | texts of all: own | a further text, x its cache |")
    print("|---|---|---|---|---|---|---|")
    ctx, threads = str(options.ctx), str(options.threads)
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "LOCALSPEC_HOME": home}
        words = (options.model, "-d", options.draft or "none", "--ctx", ctx, "-t", threads, "--cache-disk", "0")
        with localspec_server(env, *words) as serving:
            (engine,) = serving.children
            print(measured("localspec", serving, engine, options.texts, token_bytes), flush=True)
            own, file = resident(serving.pid)
            print(f"| its HTTP process | | {own:.0f} | {file:.0f} | {own + file:.0f} | | |", flush=True)
    if options.llama_server:
        draft = ("-md", options.draft, "--spec-type", "draft-simple") if options.draft else ()
        words = ("-m", options.model, *draft, "-c", ctx, "-t", threads)
        with llama_server(options.llama_server, *words) as serving:
            print(measured("llama-server", serving, serving.pid, options.texts, token_bytes), flush=True)


if __name__ == "__main__":
    main()
