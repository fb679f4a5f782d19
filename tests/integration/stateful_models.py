"""Tiny random models that keep a state, with the bundled tokenizer. Three of the architectures roll back in place.

The shapes are the least that llama.cpp accepts.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.integration import deepseek4
from tests.weights.stateful import HEAD_DIM, TINY, write_stateful

WIDTH, STATE, GROUPS, RANK = TINY.width, TINY.state, TINY.groups, TINY.rank
ROLLING = ("qwen35", "lfm2", "deepseek4")  # take tokens of a pass back in place
REPLAYING = ("mamba2", "granitehybrid", "rwkv7")
ARCHS = (*ROLLING, *REPLAYING)
# Bytes of one state, as llama.cpp's hparams compute them: what convolutions last saw, and the state proper, in F32.
STATES = {
    "qwen35": 3 * 4 * (3 * (2 * STATE + 2 * GROUPS * STATE) + 2 * STATE * STATE),
    "lfm2": 4 * WIDTH * 2,
    "mamba2": 2 * 4 * (3 * (2 * WIDTH + 2 * GROUPS * STATE) + 2 * WIDTH * STATE),
    "granitehybrid": 4 * (3 * (2 * WIDTH + 2 * GROUPS * STATE) + 2 * WIDTH * STATE),
    "rwkv7": 2 * 4 * (2 * WIDTH + WIDTH * HEAD_DIM),
}

_FOLDER = TemporaryDirectory(prefix="localspec-states-")


@cache
def stateful_gguf(arch: str, seed: int = 0) -> Path:
    """Return a random model of an architecture, written once per test run."""
    plan = deepseek4.PLAN if arch == "deepseek4" else None
    return write_stateful(Path(_FOLDER.name) / f"{arch}-{seed}.gguf", arch, seed=seed, plan=plan)
