"""Rows, sequences, graphs and samplers of llama.cpp's passes, where the engine relies on what they do."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends.lib import BF16, LOG, api
from localspec.backends.llama_cpp import Model
from localspec.backends.options import LoadOptions
from tests.integration import pair
from tests.integration.raw_context import RawContext

ON = LoadOptions(n_ctx=1024, threads=1, flash_attn="on")
OFF = replace(ON, flash_attn="off")
MIXED = {"type_v": BF16}
WIDEST = 16
KINDS = ("KV", "compute", "output")  # of buffers
TEXT = np.random.default_rng(0).integers(4096, size=640).tolist()


@pytest.fixture(scope="module", params=[pair.TARGET, pair.DRAFT], ids=["target", "draft"])
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    with Model(request.param, ON) as opened:
        yield opened


def equal_rows(model: Model, threads: int, depth: int, width: int, **changes: Any) -> int:
    """Return how many rows of a pass after `depth` tokens have the bits that each has in a pass of its own."""
    with RawContext(model, replace(ON, threads=threads), **changes) as context:
        for start in range(0, depth, 128):
            context.decode(TEXT[start : min(start + 128, depth)], start)
        rows = context.decode(TEXT[depth : depth + width], depth)
        context.remove(depth)
        alone = [context.decode([token], at)[0] for at, token in enumerate(TEXT[depth : depth + width], depth)]
    return sum(np.array_equal(row, one) for row, one in zip(rows, alone, strict=True))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("depth", [8, 250, 600])
def test_with_mixed_types_every_row_is_that_of_a_pass_of_its_own(model: Model, threads: int, depth: int) -> None:
    for width in (2, 4, WIDEST):
        assert equal_rows(model, threads, depth, width, **MIXED) == width


def test_with_one_type_and_two_threads_no_row_is_from_257_tokens_on(model: Model) -> None:
    """A row alone is then shared among the threads by its entries, several rows are not."""
    assert equal_rows(model, 2, 200, WIDEST) == WIDEST
    assert equal_rows(model, 2, 300, WIDEST) == 0
    assert equal_rows(model, 1, 300, WIDEST) == WIDEST


def test_a_graph_is_kept_for_the_next_pass_of_its_width_only(model: Model) -> None:
    reused = []
    with RawContext(model, OFF) as context:
        length = 0
        for width in (1, 1, 1, 9, 9, 1, 9, 1, 1):
            before = api.llama_perf_context(context.handle).n_reused
            context.decode(TEXT[:width], length)
            length += width
            reused.append(api.llama_perf_context(context.handle).n_reused - before)
    assert reused == [0, 1, 1, 0, 1, 0, 0, 0, 1]


def test_a_sequence_takes_one_row_of_logits_and_nothing_else(model: Model) -> None:
    """So sixteen are as good as free, and 256 are not."""
    sizes = {}
    for n in (1, 16, 256):
        LOG.clear()
        with RawContext(model, OFF, n):
            said = "\n".join(LOG.lines)
        sizes[n] = {kind: float(re.findall(rf"{kind} +buffer size = +([\d.]+)", said)[0]) for kind in KINDS}
    for kind in ("KV", "compute"):
        assert sizes[1][kind] == sizes[16][kind] == sizes[256][kind]
    assert sizes[256]["output"] - sizes[1]["output"] == pytest.approx(255 * 4 * model.n_vocab / 2**20, abs=0.1)


def test_more_rows_with_logits_than_promised_end_the_process() -> None:
    """What `MAX_OUTPUTS` keeps the engine from."""
    code = (
        "from tests.integration.test_llama_passes import *\n"
        "with Model(pair.DRAFT, OFF) as model, RawContext(model, OFF, n_outputs_max=8) as context:\n"
        "    context.decode(TEXT[:8], 0); print('eight', flush=True); context.decode(TEXT[:9], 8)"
    )
    env = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=root)
    assert done.stdout == "eight\n"
    assert done.returncode == -signal.SIGABRT


@pytest.mark.parametrize("has_top_k", [False, True])
def test_samplers_in_the_graph_hide_the_row_and_may_draw_other_tokens(model: Model, has_top_k: bool) -> None:
    """Why the engine samples itself: it needs the row, and the token that the seed gives."""
    texts, rows = [], []
    for is_inside in (False, True):
        chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        if has_top_k:
            api.llama_sampler_chain_add(chain, api.llama_sampler_init_top_k(40))
        api.llama_sampler_chain_add(chain, api.llama_sampler_init_temp(0.8))
        api.llama_sampler_chain_add(chain, api.llama_sampler_init_dist(7))
        with RawContext(model, OFF) as context:
            assert not is_inside or api.llama_set_sampler(context.handle, 0, chain)
            text = [TEXT[0]]
            for at in range(8):
                row = context.decode(text[-1:], at)[0]
                if at == 0:
                    rows.append(row[:8])
                text.append(api.llama_sampler_sample(chain, context.handle, -1))
            texts.append(text)
            api.llama_set_sampler(context.handle, 0, None)
        api.llama_sampler_free(chain)
    assert not np.array_equal(*rows)
    assert has_top_k or texts[0] == texts[1]
