"""What planning says a model takes, against what llama.cpp takes."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.backends.lib import LOG, api
from localspec.cli.show import describe
from localspec.models.plan.memory import ContextPlan, Use, compute_bytes
from localspec.models.plan.memory_use import ON_CPU, Layout, MemoryUse
from tests.integration import pair
from tests.machine.placed import place
from tests.models import hollow

SMALL = hollow.Hollow(6, 256, 4, 1, 768, 4096, quant="Q8_0")
SHOWN = {
    "1B": hollow.LLAMA_1B,
    "8B": hollow.LLAMA_8B,
    "70B": hollow.LLAMA_70B,
    "30B of experts": hollow.QWEN3_30B_A3B,
    "tiny": SMALL,
}


def told(path: Path, context: ContextPlan, layout: Layout = ON_CPU) -> Use:
    return MemoryUse(describe(path).anatomy, context).use(layout)["CPU"]


def dry_run(path: Path, context: ContextPlan) -> tuple[float, float]:
    """Let llama.cpp lay out a context without allocating anything; return its compute buffer and its cache in bytes."""
    params = api.llama_model_default_params()
    params.no_alloc, params.load_mode, params.n_gpu_layers = True, api.LLAMA_LOAD_MODE_NONE, 0
    model = api.llama_model_load_from_file(str(path).encode(), params)
    assert model, LOG.tail()
    opened = api.llama_context_default_params()
    opened.n_ctx, opened.n_batch, opened.n_ubatch = context.n_ctx, context.n_batch, context.n_batch
    opened.n_outputs_max, opened.n_seq_max = context.n_outputs, context.n_sequences
    opened.kv_unified = opened.swa_full = True
    opened.flash_attn_type = -1 if context.has_flash else 0
    LOG.clear()
    context_handle = api.llama_init_from_model(model, opened)
    assert context_handle, LOG.tail()
    text = "\n".join(LOG.lines)
    api.llama_free(context_handle)
    api.llama_model_free(model)
    compute = sum(map(float, re.findall(r"compute buffer size = +([\d.]+) MiB", text)))
    cache = sum(map(float, re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", text)))
    return compute * 2**20, cache * 2**20


@pytest.mark.parametrize("shape", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("n_ctx", [1024, 8192])
@pytest.mark.parametrize("has_flash", [True, False])
def test_buffers_of_llama_cpps_dry_run(tmp_path: Path, shape: hollow.Hollow, n_ctx: int, has_flash: bool) -> None:
    """The whole context, which is what must fit, within 6 %; the compute buffer alone within 12 %."""
    path = hollow.write(tmp_path / "m.gguf", shape)
    context = ContextPlan(n_ctx, has_flash=has_flash)
    compute, cache = dry_run(path, context)
    use = told(path, context)
    assert use.cache == pytest.approx(cache, rel=0.001)
    assert use.compute == pytest.approx(compute, rel=0.12)
    assert use.cache + use.compute == pytest.approx(cache + compute, rel=0.06)


def test_storyteller_takes_what_is_told() -> None:
    """Within 20 %: weights, cache, compute buffer, and outputs of 128 rows, which a full tree makes."""
    buffers = place(path=str(pair.TARGET), n_ctx=1024, n=5)["buffers"]
    measured = sum(size for kinds in buffers.values() for kind, size in kinds.items() if kind != "output")
    use = told(pair.TARGET, ContextPlan(1024, has_flash=False))
    assert use.total - use.outputs == pytest.approx(measured, rel=0.2)
    assert use.outputs == 128 * 4096 * 4


@pytest.mark.slow
def test_a_1b_takes_what_is_told(tmp_path: Path) -> None:
    """Within 20 % of what the process has in memory after a full batch; not mapped, so that every byte is its own.

    Bytes that are zero take as much there as others: they are read into memory of the process.
    """
    shape = hollow.Hollow(16, 2048, 32, 8, 8192, 4096, quant="Q4_0", is_tied=True)
    path = hollow.write(tmp_path / "1b.gguf", shape)
    context = ContextPlan(2048, has_flash=False)
    found = place(path=str(path), n_ctx=2048, prompt=600, n=2, mmap=False)
    use = told(path, context)
    assert use.total == pytest.approx(found["resident"], rel=0.2)
    buffers = sum(size for kinds in found["buffers"].values() for kind, size in kinds.items() if kind != "output")
    assert use.total - use.outputs == pytest.approx(buffers, rel=0.06)


MIDDLE = hollow.Hollow(8, 1024, 16, 4, 4096, 4096, quant="Q4_0", is_tied=True)


@pytest.mark.parametrize("name", ["random", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"])
def test_weights_that_are_laid_out_anew_are_in_memory_once(tmp_path: Path, name: str) -> None:
    """Mapped, and copied out of the file: the pages of the file that a pass does not read are let go."""
    path = Path(os.environ.get("LOCALSPEC_REAL", "")) / name
    if name == "random":
        path = hollow.write(tmp_path / "m.gguf", MIDDLE)
    elif not os.environ.get("LOCALSPEC_REAL") or not path.exists():
        pytest.skip("LOCALSPEC_REAL names no folder of real models")
    found = place(path=str(path), n_ctx=2048, prompt=600, n=2)
    use = told(path, ContextPlan(2048, has_flash=False))
    assert found["resident"] < 1.1 * use.total


def test_a_smaller_batch_needs_smaller_buffers(tmp_path: Path) -> None:
    parts = describe(hollow.write(tmp_path / "m.gguf", SMALL)).anatomy
    sizes = [
        compute_bytes(parts, replace(ContextPlan(4096), n_batch=n), has_layers=True, has_head=True)
        for n in (64, 128, 512)
    ]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("n_ctx", [1000, 1024, 1025])
def test_a_context_is_rounded_up_as_llama_cpp_does(tmp_path: Path, n_ctx: int) -> None:
    path = hollow.write(tmp_path / "m.gguf", SMALL)
    context = ContextPlan(n_ctx)
    assert told(path, context).cache == pytest.approx(dry_run(path, context)[1], abs=2**13)  # MiB of two digits
