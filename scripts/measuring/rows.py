"""What rows cost: passes of several widths and a prompt, by the type of the file and the number of threads."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.options import LoadOptions
from localspec.backends.quantise import QuantiseRecipe, quantise
from measuring.runner import Contender, Contenders, Figures, Options, case, count, numbers

TYPES = "Q4_K_M,Q4_0,IQ4_NL,Q5_K_M,Q6_K,Q8_0,F16,BF16"
WIDTHS = "1,2,3,4,8,16,32"
READING = 512  # tokens of the prompt, one pass
DEPTH = 64  # tokens in the cache before each pass
REPEATS = 3  # passes of a width in a turn


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="GGUF file; the other types are made from it, for their times alone")
    parser.add_argument("--types", type=lambda text: text.split(","), default=TYPES.split(","), help=TYPES)
    parser.add_argument("--widths", type=numbers, default=numbers(WIDTHS), help=WIDTHS)
    parser.add_argument("--threads", type=count, default=2, help="of llama.cpp (default: 2)")
    parser.add_argument("--folder", type=Path, help="where files that were made stay, for the next time")


@case(_options, rounds=3, warm_up=1)
def rows(asked: Options) -> Iterator[Contenders]:
    """Milliseconds of a pass of one row, the price of wider passes in such passes, and a prompt's milliseconds a token.

    Each type of file is a contender. Its text would be poor, since it is made from a file that was quantised before.
    """
    contenders: Contenders = {}
    options = LoadOptions(n_ctx=DEPTH + READING, threads=asked.threads, threads_batch=asked.threads)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for kind in asked.types:
            path = Path(asked.folder or folder) / f"{asked.model.stem}-as-{kind}.gguf"
            made = path.exists() or quantise(asked.model, path, QuantiseRecipe(kind), {}, lambda share: None)
            if not made:
                raise ValueError(f"llama.cpp cannot write {asked.model.name} as {kind}: leave it out of --types")
            backend = stack.enter_context(LlamaBackend(stack.enter_context(Model(path, options)), options))
            backend.prefill(list(range(5, 5 + DEPTH)), lambda: False)
            megabytes = path.stat().st_size / 1e6
            contenders[kind] = Contender(lambda _, given=(backend, asked.widths, megabytes): _turn(*given))
        yield contenders


def _turn(backend: LlamaBackend, widths: list[int], megabytes: float) -> Figures:
    def milliseconds(n: int) -> float:
        backend.time_rows(n)  # llama.cpp makes a graph for each change of width
        return 1e3 * statistics.median(backend.time_rows(n) for _ in range(REPEATS))

    single = milliseconds(1)
    figures = {"MB": megabytes, "1 row, ms": single}
    figures.update({f"{n} rows": milliseconds(n) / single for n in widths if n > 1})
    return {**figures, f"prompt of {READING}, ms a token": _reading(backend)}


def _reading(backend: LlamaBackend) -> float:
    tokens = list(range(5, 5 + DEPTH))
    backend.truncate(0)
    began = time.perf_counter()
    backend.prefill([7 + n % 200 for n in range(READING)], lambda: False)
    seconds = time.perf_counter() - began
    backend.truncate(0)
    backend.prefill(tokens, lambda: False)
    return 1e3 * seconds / READING
