"""What llama.cpp does with the states of recurrent models and hybrids, where `backends/state_cache.py` relies on it.

docs/llama.md lists it. A test that fails after an upgrade says that the engine may now do otherwise.
"""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localspec.backends.lib import api
from localspec.backends.llama_cpp import Model
from tests.integration.gguf_models import EXACT, MAMBA, random_gguf
from tests.integration.raw_context import RawContext
from tests.integration.stateful_models import REPLAYING, ROLLING, stateful_gguf

NOISE = 1e-3
WRONG = 1.0  # logits: what a state of other tokens gives
K = 4
OPTIONS = replace(EXACT, rollback=K)
PROMPT = [100 + 37 * i % 300 for i in range(40)]
NEXT = 31
RECURRENT = ("mamba", "mamba2", "rwkv7")  # all of their layers keep a state
COPIED = tuple(arch for arch in ROLLING if arch != "deepseek4")  # its cache is copied whole or the process ends


def path_of(arch: str) -> Path:
    return random_gguf(MAMBA) if arch == "mamba" else stateful_gguf(arch)


def off_by(model: Model, context: RawContext, kept: list[int], sequence: int = 0) -> float:
    """Return how far the next row is from that of a context which has read `kept` and nothing else."""
    row = context.decode([NEXT], len(PROMPT) + len(kept), sequence)
    with RawContext(model, OPTIONS) as fresh:
        fresh.decode(PROMPT, 0)
        if kept:
            fresh.decode(kept, len(PROMPT))
        return float(np.abs(row - fresh.decode([NEXT], len(PROMPT) + len(kept))).max())


@pytest.mark.parametrize("arch", ROLLING)
@pytest.mark.parametrize(("rows", "taken"), [(K + 1, 1), (K + 1, K), (3, 1), (3, 2)])
def test_all_rows_of_a_pass_but_its_first_are_taken_back_in_place(arch: str, rows: int, taken: int) -> None:
    with Model(stateful_gguf(arch), OPTIONS) as model, RawContext(model, OPTIONS) as context:
        context.decode(PROMPT, 0)
        draft = list(range(200, 200 + rows))
        context.decode(draft, len(PROMPT))
        assert context.remove(len(PROMPT) + rows - taken)
        assert off_by(model, context, draft[: rows - taken]) <= NOISE


@pytest.mark.parametrize("arch", ROLLING)
def test_all_rows_of_a_pass_are_taken_back_wrongly(arch: str) -> None:
    """llama.cpp grants it where as many states are kept. Mostly that of before the pass is not there."""
    with Model(stateful_gguf(arch), OPTIONS) as model, RawContext(model, OPTIONS) as context:
        context.decode(PROMPT, 0)
        context.decode([200, 201, 202], len(PROMPT))
        assert context.remove(len(PROMPT))
        assert (off_by(model, context, []) > WRONG) == (arch in COPIED)
        context.remove(0)
        context.decode(PROMPT, 0)
        context.decode(list(range(200, 201 + K)), len(PROMPT))
        assert not context.remove(len(PROMPT)), "more than it keeps states of"


@pytest.mark.parametrize("arch", COPIED)
def test_a_copy_before_the_next_pass_has_the_rejected_tokens(arch: str) -> None:
    """A state that is saved meanwhile is right."""
    with Model(stateful_gguf(arch), OPTIONS) as model, RawContext(model, OPTIONS, 2) as context:
        context.decode(PROMPT, 0)
        context.decode([200, 201, 202], len(PROMPT))
        assert context.remove(len(PROMPT) + 1)
        context.copy(0, 1)
        saved = context.save()
        assert off_by(model, context, [200]) <= NOISE
        assert off_by(model, context, [200], sequence=1) > WRONG
        with RawContext(model, OPTIONS) as other:
            assert other.load(saved)
            assert off_by(model, other, [200]) <= NOISE


@pytest.mark.parametrize("arch", [*REPLAYING, "mamba"])
def test_a_state_without_rollback_takes_no_token_back(arch: str) -> None:
    with Model(path_of(arch), EXACT) as model, RawContext(model, EXACT) as context:
        context.decode(PROMPT, 0)
        assert not context.remove(len(PROMPT) - 1)


@pytest.mark.parametrize("arch", [*REPLAYING, "mamba"])
def test_the_start_of_a_text_cannot_be_forgotten(arch: str) -> None:
    """It is granted. A state stays as it was; of a hybrid the entries of attention go, so the two disagree."""
    with Model(path_of(arch), EXACT) as model, RawContext(model, EXACT) as context:
        context.decode(PROMPT, 0)
        assert context.remove(0, 10)
        assert (off_by(model, context, []) <= NOISE) == (arch in RECURRENT)


@pytest.mark.parametrize("arch", RECURRENT)
def test_a_whole_state_is_copied_for_an_empty_range(arch: str) -> None:
    """So a snapshot of a hybrid copies no entry of attention."""
    with Model(path_of(arch), EXACT) as model, RawContext(model, EXACT, 2) as context:
        context.decode(PROMPT, 0)
        api.llama_memory_seq_cp(context.memory, 0, 1, 0, 0)
        assert context.ends(1)[1] == len(PROMPT) - 1
        assert off_by(model, context, [], sequence=1) <= NOISE


@pytest.mark.parametrize(("first", "end"), [(-1, -1), (0, 0), (0, 10)])
def test_deepseek4s_cache_is_copied_whole_or_the_process_ends(first: int, end: int) -> None:
    """So there is no snapshot of it, as of other states."""
    code = (
        "from tests.integration.test_llama_state import *\n"
        "with Model(stateful_gguf('deepseek4'), OPTIONS) as model, RawContext(model, OPTIONS, 2) as context:\n"
        f"    context.decode(PROMPT, 0); api.llama_memory_seq_cp(context.memory, 0, 1, {first}, {end})\n"
        "    print(off_by(model, context, [], sequence=1))"
    )
    env = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=root)
    if end == -1:
        assert float(done.stdout) <= NOISE
    else:
        assert (done.returncode, done.stdout) == (-signal.SIGABRT, "")
