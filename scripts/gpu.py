"""The measurements of `scripts/gpu`: models that are made there, a page and a JSON file with every figure.

  gpu.py models --folder F [--rehearse]             make the models in F: shapes of 8B and 70B that write stories
  gpu.py measure --folder F --out OUT [--parts A,B]  measure for --seconds in all, and write OUT/gpu.json and OUT/gpu.md

Each part loads one pair, times passes by rows, and lets its contenders answer in turn until its seconds are over. The
models are the bundled ones in the shape of large ones (tests/weights/scaled.py): cost and memory are of the shape, text
and acceptance of the small pair. A part with `free` leaves so many GB of the GPU to localspec: a process
of its own holds the rest. `--rehearse` takes small shapes, so that the script itself can be tried on a processor.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from localspec.bench.answers import survey
from localspec.bench.contenders import Contender, parse_contenders
from localspec.bench.measurement import Cell, Measurement, measured
from localspec.bench.result import machine, rows
from localspec.bench.statistics import Interval
from localspec.bench.suites import choose, load_suite
from localspec.bench.table import piped
from localspec.engine.events import Loaded, Warned
from localspec.errors import LocalspecError
from localspec.settings.jobs import SurveyRequest
from localspec.settings.request import LoadSettings, Request, Sampling
from localspec.ui.stats import Stats
from localspec.worker.client import Worker
from tests.weights.random_gguf import Shape as RandomShape
from tests.weights.random_gguf import write_random_gguf
from tests.weights.scaled import SHAPES, write_scaled

GB = 1e9
LONGEST = 700  # seconds of everything: twelve minutes, and what starting takes
ROWS = (1, 2, 3, 4, 5, 8, 16, 32, 64)
STORY = "Once upon a time there was a miller who had three sons."
SMALL = {"8b": "150m", "70b": "1b", "1b": "150m", "150m": "150m"}  # what a rehearsal takes


@dataclass(frozen=True)
class Part:
    """One pair, where it is placed, and who answers. `seconds`: its share of the time, loading included."""

    name: str
    target: str
    draft: str | None
    methods: str
    seconds: float
    tokens: int = 192
    prompts: int = 4
    temps: tuple[float, ...] = (0.0, 0.8)
    gpu: str = "auto"  # of the target; the draft goes where it fits
    free: float | None = None  # GB of the GPU
    is_reproducible: bool = False


COPY = "-q2"  # of a name: that model in two bits, by llama.cpp's quantiser
MIXTURE = RandomShape("llama", 8192, 2048, 16, 32, 8, 1024, quant="Q8_0", experts=32, used=4)  # 3.5 GB
CHAINS = "plain,auto,draft-model:k=2,draft-model:k=4,draft-model:k=8"
PARTS = (
    Part("8B", "8b", "150m", f"{CHAINS},suffix:k=64", 60),
    Part("8B without a draft", "8b", None, "plain,auto", 25),
    Part("8B with an EAGLE-3 head", "8b", "eagle3-8b", "plain,auto,eagle3:k=2,eagle3:k=4", 35),
    Part("8B, reproducible", "8b", "150m", "plain,auto", 20, prompts=2),
    Part("70B on the GPU", "70b", "1b", f"{CHAINS},suffix:k=64", 75, tokens=96, prompts=3),
    Part("70B, 24 GB of the GPU", "70b", "1b", CHAINS, 80, 32, 2, (0.8,), free=24),
    Part("8B on the processor, its copy in two bits on the GPU", "8b", f"8b{COPY}", CHAINS, 60, 48, 2, gpu="off"),
    Part("Mixture of 32 experts, random weights", "experts", None, "plain,auto", 25, prompts=2),
    Part("70B, 12 GB of the GPU", "70b", "1b", "plain,auto,draft-model:k=8", 55, 24, 2, (0.8,), free=12),
    Part("70B on the processor", "70b", "1b", "plain,auto", 45, 16, 2, (0.8,), gpu="off"),
)  # fmt: skip


def make_models(folder: Path, *, is_small: bool) -> None:
    """Write the models that the parts name, side by side."""
    bundled = Path(str(files("localspec.models"))) / "storyteller"
    sources = {"8b": "target", "70b": "target", "1b": "draft", "150m": "draft", "eagle3-8b": "eagle3"}

    def make(name: str, source: str) -> None:
        shape = name.removeprefix("eagle3-")
        began = time.monotonic()
        part = folder / f"{name}.part"
        write_scaled(bundled / f"{source}-q8_0.gguf", part, SHAPES[SMALL[shape] if is_small else shape], "Q4_0")
        part.replace(folder / f"{name}.gguf")
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)

    mixture = replace(MIXTURE, width=256, layers=4, heads=4, kv_heads=2, ff=256) if is_small else MIXTURE
    with ThreadPoolExecutor(5) as pool:
        made = [pool.submit(make, *one) for one in sources.items()]
        made.append(pool.submit(write_random_gguf, folder / "experts.gguf", mixture))  # beside it, and moved
        for done in made:
            done.result()


def make_copy(folder: Path, name: str) -> Path:
    """Return the model's copy in two bits, written where it is not there yet; raises OSError where it cannot be."""
    copy, source = folder / f"{name}.gguf", folder / f"{name.removesuffix(COPY)}.gguf"
    began = time.monotonic()
    if not copy.exists():
        from localspec.backends.quantise import (
            QuantiseRecipe,
            quantise,
        )  # late: models are made before llama.cpp is built

        recipe = QuantiseRecipe("Q2_K", threads=os.cpu_count() or 1)
        part = copy.with_suffix(".part")
        if quantise(source, part, recipe, {}, lambda _: None) is None:
            raise OSError(f"llama.cpp cannot write {source.name} in two bits")
        part.replace(copy)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return copy


@contextlib.contextmanager
def leaving(free: float | None) -> Iterator[None]:
    """Hold the GPU's memory but for `free` GB, in a process of its own."""
    if free is None:
        yield
        return
    command = [sys.executable, __file__, "hold", "--free", str(free)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        print(holder.stdout.readline().strip(), flush=True)
        try:
            yield
        finally:
            holder.stdin.close()


def hold(free: float) -> None:
    """Take the GPU's memory but for `free` GB until standard input ends."""
    cuda = ctypes.CDLL(next(name for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so") if _opens(name)))
    room, total, address = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
    cuda.cudaMemGetInfo(ctypes.byref(room), ctypes.byref(total))
    failed = cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(max(0, room.value - int(free * GB))))
    cuda.cudaMemGetInfo(ctypes.byref(room), ctypes.byref(total))
    print(f"holding the GPU's memory but for {room.value / GB:.1f} GB{' (refused)' if failed else ''}", flush=True)
    sys.stdin.read()


def _opens(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def measure_part(part: Part, folder: Path, until: float) -> dict[str, Any]:
    """Return the figures of a part; its answers end at `until`, by the monotonic clock."""
    draft = None if part.draft is None else str(folder / f"{part.draft}.gguf")
    if draft is not None and draft.endswith(f"{COPY}.gguf"):
        make_copy(folder, str(part.draft))
    settings = LoadSettings(
        str(folder / f"{part.target}.gguf"), draft, ctx=1024, gpu=part.gpu, reproducible=part.is_reproducible
    )
    found: dict[str, Any] = {"part": asdict(part), "warnings": []}
    contenders = parse_contenders(part.methods, has_draft=draft is not None)
    prompts = [one.text for one in choose(load_suite("stories", is_chat=False), part.prompts).prompts]
    with leaving(part.free), Worker() as worker:
        for event in worker.load(settings):
            if isinstance(event, Loaded):
                found["loaded"] = asdict(event)
            elif isinstance(event, Warned):
                found["warnings"].append(event.message)
        _answer(worker, contenders[1], STORY, 0.8, 8)  # auto measures passes before its first answer
        times = survey(worker, SurveyRequest(seconds=min(4.0, part.seconds / 10)))
        found["survey"] = None if times is None else times.content
        answers: list[Measurement] = []
        try:
            for temperature in part.temps:
                for number, prompt in enumerate(prompts):
                    for one in contenders if number % 2 == 0 else contenders[::-1]:
                        if time.monotonic() > until:
                            raise TimeoutError
                        stats = _answer(worker, one, prompt, temperature, part.tokens, until)
                        answers.append(measured(Cell(number, temperature, one.name, 0), stats))
        except TimeoutError:
            found["warnings"].append("cut by its limit of time")
    found["answers"] = [one.to_wire() for one in answers]
    found["rows"] = [row.to_wire() for row in rows(answers)]
    found["overdrawn"] = sum((one.overdrawn_ms or 0.0) > 0.0 for one in answers)
    return found


def _answer(
    worker: Worker, contender: Contender, prompt: str, temperature: float, tokens: int, until: float = math.inf
) -> Stats:
    """Return the figures of an answer; it is cut at `until`, as a token of a 70B may take a second."""
    stats = Stats()
    sampling = Sampling(temperature=temperature, seed=1)
    request = Request(
        prompt=prompt,
        max_tokens=tokens,
        sampling=sampling,
        speculation=contender.speculation,
        cold=True,
    )
    for event in worker.generate(request):
        stats.observe(event)
        if time.monotonic() > until:
            worker.cancel()
    return stats


def measure(folder: Path, out: Path, parts: list[Part], seconds: float) -> None:
    """Measure the parts, the first ones first, and write both files after each, so that a stop loses one part."""
    began = time.monotonic()
    result: dict[str, Any] = {"machine": {**machine(), "gpu": _gpu()}, "parts": []}
    for one in parts:
        start = time.monotonic()
        until = min(start + one.seconds, began + seconds)
        if until - start < one.seconds / 3:
            found: dict[str, Any] = {"part": asdict(one), "error": "no time left"}
        else:
            try:
                found = measure_part(one, folder, until)
            except (LocalspecError, OSError) as error:
                found = {"part": asdict(one), "error": str(error)}
        found["seconds"] = time.monotonic() - start
        result["parts"].append(found)
        (out / "gpu.json").write_text(json.dumps(result))
        (out / "gpu.md").write_text(page(result))
        print(_section(found), flush=True)


def _gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError):
        return subprocess.run(query, capture_output=True, text=True).stdout.strip()
    return "none"


def page(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    about = result["machine"]
    head = f"# localspec on {about['gpu']}\n\n{about['processor']}, {about['cores']} cores, {about['system']}\n"
    return "\n".join([head, *map(_section, result["parts"])])


def _rows(survey: dict[str, Any]) -> str:
    """Return the milliseconds of the target's passes by rows, at an empty context."""
    times = [one for one in survey["target"]["ms"] if one[0] in ROWS]
    change = f"a change of width {survey['target']['change_ms']:.2f} ms more"
    return piped([("rows", *(f"{n:g}" for n, _ in times)), ("ms", *(f"{ms:.2f}" for _, ms in times))]) + f"\n{change}\n"


def _section(found: dict[str, Any]) -> str:
    """Return one part as a heading, a table and its warnings."""
    parts = [f"## {found['part']['name']} ({found['seconds']:.0f} s)\n"]
    if "error" in found:
        return "\n".join([*parts, found["error"], ""])
    lines: list[tuple[str, ...]] = [
        ("T", "contender", "tok/s", "/ plain", "tok/pass", "accepted", "host ms", "draft ms")
    ]
    for row in found["rows"]:
        ratio, speed = (None if one is None else Interval(**one) for one in (row["ratio"], row["tok_per_s"]))
        accepted = "" if row["acceptance"] is None else f"{row['acceptance']:.0%}"
        lines.append((
            f"{row['temperature']:g}", row["contender"], "" if speed is None else speed.spelt(1),
            "" if ratio is None else ratio.spelt(), f"{row['tokens_per_pass'] or 0:.2f}", accepted,
            f"{row['host_ms']:.2f}", f"{row['draft_ms']:.2f}",
        ))  # fmt: skip
    loaded = found["loaded"]
    places = [f"{key}: {', '.join(loaded[key]['devices'])}" for key in ("target", "draft") if loaded[key]]
    said = [f"loaded in {loaded['load_ms'] / 1e3:.0f} s; {'; '.join(places)}; accounts overdrawn: {found['overdrawn']}"]
    passes = [] if found["survey"] is None else [_rows(found["survey"])]
    return "\n".join([*parts, piped(lines), "", *passes, *said, *found["warnings"], ""])


def main() -> None:
    """Read the command line and do one of its jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["models", "measure", "hold"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rehearse", action="store_true", help="small shapes, on the processor")
    parser.add_argument("--parts", default="", help="names of parts, separated by ';'; default: all")
    parser.add_argument("--seconds", type=float, default=LONGEST, help="of everything")
    parser.add_argument("--spent", type=float, default=0.0, help="seconds that building took of these")
    parser.add_argument("--free", type=float, help="GB, for `hold`")
    options = parser.parse_args()
    if options.what == "models":
        make_models(options.folder, is_small=options.rehearse)
    elif options.what == "hold":
        hold(options.free)
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        wanted = [name.strip() for name in options.parts.split(";") if name.strip()]
        parts = [part for part in PARTS if not wanted or part.name in wanted]
        if options.rehearse:  # a processor has no memory of its own to hold
            parts = [Part(**{**asdict(part), "free": None}) for part in parts]
        measure(options.folder, options.out, parts, options.seconds - options.spent)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
