"""A program for the tests: load a model where it is told to, decode greedily, and tell what llama.cpp took for it.

Devices of RPC servers stay devices of a process for good, and a lost server ends it; so every test gets a new one. The
job comes as JSON in the first argument: `path`, `rpc` servers, `placement` and so on as in LoadOptions, `n`
tokens.
"""

import io
import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BUFFER = re.compile(r"(\S+)\s+(model|KV|compute|output)\s+buffer size = +([\d.]+) MiB")


def place(**job: Any) -> dict[str, Any]:
    """Run a job in a new process; return its tokens, its devices and the bytes of each place's buffers by kind."""
    command = [sys.executable, "-m", "tests.machine.placed", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def has_rpc() -> bool:
    from localspec.backends.lib import api

    return bool(api.llama_supports_rpc())


needs_rpc = pytest.mark.skipif(
    not has_rpc(), reason="this llama.cpp was built without RPC: ./scripts/localspec --with rpc"
)


def main() -> None:
    job = json.loads(sys.argv[1])
    from localspec.backends.lib import LOG
    from localspec.backends.options import LoadOptions, Placement
    from localspec.backends.rpc import add_servers
    from tests.integration import pair

    add_servers(tuple(job.get("rpc", ())))
    placement = None if job.get("placement") is None else Placement(**job["placement"])
    options = LoadOptions(
        n_ctx=job.get("n_ctx", 512),
        threads=1,
        kv_type=job.get("kv_type", "f16"),
        flash_attn=job.get("flash_attn", "auto"),
        gpu=job.get("gpu", "auto"),
        mmap=job.get("mmap", True),
        placement=placement,
    )
    lines: list[str] = []
    LOG.is_echoing, sys.stderr = True, Lines(lines)  # the ring itself is emptied before each load
    before = resident()
    with pair.backend(Path(job["path"]), options) as opened:
        prompt = list(range(3, 3 + job["prompt"])) if "prompt" in job else pair.OPENINGS[0]
        run = pair.plain(opened, prompt=prompt, max_tokens=job.get("n", 40), eog=frozenset())
        taken = resident() - before
    sizes: dict[str, dict[str, float]] = {}
    for line in lines:
        for name, kind, size in BUFFER.findall(line):
            kinds = sizes.setdefault(name, {})
            kinds[kind] = kinds.get(kind, 0.0) + float(size) * 2**20
    print(json.dumps({"tokens": run.tokens, "buffers": sizes, "resident": taken}))


class Lines(io.StringIO):
    """Takes what is written to it as lines."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def write(self, text: str) -> int:
        self._lines += text.splitlines()
        return len(text)


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main()
