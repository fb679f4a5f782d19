"""What the backend finds out about the machine: cores, memory, where layers go, why a load failed."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.backends.context import kv_bytes
from localspec.backends.devices import GPU, INTEGRATED, Device, devices
from localspec.backends.lib import LogRing
from localspec.backends.limits import available_memory, core_quota, count_cores, memory_room, physical_cores
from localspec.backends.load_params import ALL_LAYERS, gpu_layers
from localspec.backends.memory import ContextShape, check_context, check_weights
from localspec.backends.model import _load_error
from localspec.backends.options import LoadOptions
from localspec.errors import ResourceError
from localspec.settings.sizes import size
from tests.recorded import recorded_expressions

GIB = 2**30
THE_CPU, THE_GPU = Device("CPU", "", False, 64 * GIB), Device("CUDA0", "", True, 10 * GIB)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_this_machine() -> None:
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)
    assert any(not device.is_gpu for device in devices())
    available = available_memory()
    assert available is None or available > 0


@pytest.mark.parametrize(
    ("processor", "kind", "expected"),
    [("x86_64", INTEGRATED, True), ("arm64", INTEGRATED, False), ("AMD64", GPU, False)],
)
def test_a_gpu_within_an_x86_processor(
    monkeypatch: pytest.MonkeyPatch, processor: str, kind: int, expected: bool
) -> None:
    monkeypatch.setattr("localspec.backends.devices._kind", lambda _: kind)
    monkeypatch.setattr("localspec.backends.devices.platform.machine", lambda: processor)
    assert {device.is_integrated for device in devices()} == {expected}


def test_two_threads_of_a_core_count_once(tmp_path: Path) -> None:
    sysfs = write(
        tmp_path,
        {
            "cpu0/topology/core_cpus_list": "0,2\n",
            "cpu1/topology/core_cpus_list": "1,3\n",
            "cpu2/topology/core_cpus_list": "0,2\n",
            "cpu3/topology/thread_siblings_list": "1,3\n",
        },
    )
    assert count_cores({0, 1, 2, 3}, sysfs) == 2
    assert count_cores({0, 2}, sysfs) == 1
    assert count_cores({0, 9}, sysfs) == 2  # of 9 nothing is known


def test_cores_of_a_control_group(tmp_path: Path) -> None:
    own = write(tmp_path / "proc", {"cgroup": "1:cpu:/\n0::/outer/inner\n"}) / "cgroup"
    root = write(tmp_path / "root", {"outer/cpu.max": "250000 100000\n", "outer/inner/cpu.max": "max 100000\n"})
    assert core_quota(root, own) == 2
    write(root, {"outer/inner/cpu.max": "50000 100000\n"})
    assert core_quota(root, own) == 1
    assert core_quota(tmp_path / "none", own) is None
    version_1 = write(tmp_path / "old", {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"})
    assert core_quota(version_1, own) == 3
    assert core_quota(write(version_1, {"cpu/cpu.cfs_quota_us": "-1"}), own) is None


def test_memory_of_a_control_group(tmp_path: Path) -> None:
    own = write(tmp_path / "proc", {"cgroup": "0::/box\n"}) / "cgroup"
    files = {
        "box/memory.max": "1000",
        "box/memory.current": "900",
        "box/memory.stat": "anon 500\nactive_file 100\ninactive_file 200\n",
    }
    assert memory_room(write(tmp_path / "root", files), own) == 400
    assert memory_room(write(tmp_path / "root", {"box/memory.high": "max"}), own) == 400
    assert memory_room(write(tmp_path / "root", {"box/memory.high": "800"}), own) == 200
    assert memory_room(write(tmp_path / "root", {"box/memory.max": "max"}), own) == 200
    assert memory_room(write(tmp_path / "root", {"box/memory.high": "max"}), own) is None
    assert memory_room(tmp_path / "none", tmp_path / "none") is None


def test_memory_that_an_old_control_group_leaves(tmp_path: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": "1000",
        "memory/memory.usage_in_bytes": "700",
        "memory/memory.stat": "active_file 1\ntotal_active_file 40\ntotal_inactive_file 60\nrss 9",
    }
    assert memory_room(write(tmp_path / "root", files), tmp_path / "none") == 400
    own = write(tmp_path / "proc", {"cgroup": "3:cpu,cpuacct:/a\n4:memory:/a/b:c\n0::/\n"}) / "cgroup"
    inner = {"memory.limit_in_bytes": "800", "memory.usage_in_bytes": "750", "memory.stat": "total_active_file 50"}
    write(tmp_path / "root", {f"memory/a/b:c/{name}": text for name, text in inner.items()})
    assert memory_room(tmp_path / "root", own) == 100
    write(tmp_path / "root", {"memory/a/b:c/memory.limit_in_bytes": "9000", "cpu/a/cpu.cfs_quota_us": "300000"})
    assert memory_room(tmp_path / "root", own) == 400
    assert core_quota(write(tmp_path / "root", {"cpu/a/cpu.cfs_period_us": "100000"}), own) == 3
    none = write(tmp_path / "root", {"memory/memory.limit_in_bytes": "9223372036854771712"})
    assert memory_room(none, tmp_path / "none") is None


@pytest.mark.parametrize(
    ("n_heads", "has_flash", "each"), [(1, True, 2), (32, True, 2), (1, False, 8), (32, False, 132)]
)
def test_what_a_pass_needs_of_each_position(n_heads: int, has_flash: bool, each: int) -> None:
    """With flash attention a mask of two bytes, without it a mask and the scores of each head, of four bytes each."""
    shape = ContextShape(8192, 8192, n_heads)
    assert shape.compute_bytes(1000, 512, has_flash) == 1000 * 512 * each
    assert shape.compute_bytes(100, 512, has_flash) == 100 * 100 * each, "a pass is no longer than the context"


def test_a_suggested_context_fits() -> None:
    shape = ContextShape(k_entries=8192, v_entries=8192, n_heads=32)
    for flash in ("auto", "off"):
        options = LoadOptions(flash_attn=flash)
        with pytest.raises(ResourceError) as caught:
            check_context(shape, 10_000_000, options, 8 * GIB)
        fitting = caught.value.detail["fitting_n_ctx"]
        assert fitting % 256 == 0
        assert check_context(shape, fitting, options, 8 * GIB) == shape.kv_bytes(fitting, options) > 2 * GIB
    with pytest.raises(ResourceError) as caught:
        check_context(shape, 4096, LoadOptions(), 1000)
    assert "smaller model" in caught.value.hint
    with pytest.raises(ResourceError) as refused:
        check_context(shape, 10_000_000, options, 8 * GIB, longest=32_768)
    assert refused.value.hint == "--ctx 32768", "the model's own limit comes before the memory's"
    assert check_context(shape, 10_000_000, LoadOptions(), None) == 10_000_128 * 16384 * 2


@pytest.mark.parametrize("is_unified", [False, True])
def test_memory_that_a_gpu_shares_is_counted_once(monkeypatch: pytest.MonkeyPatch, is_unified: bool) -> None:
    """The context takes 2.2 GB, and of the two places none has as much."""
    gpu = Device("GPU0", "", True, 1_500_000_000, is_unified=is_unified)
    monkeypatch.setattr("localspec.backends.context.available_memory", lambda: 2_000_000_000)
    monkeypatch.setattr("localspec.backends.context.devices", lambda: (gpu,))
    model: Any = SimpleNamespace(n_gpu_layers=ALL_LAYERS, n_ctx_train=65536, context_shape=ContextShape(8192, 8192, 32))
    options = LoadOptions(n_ctx=65536)
    if not is_unified:
        assert kv_bytes(model, options) == 65536 * 16384 * 2
        return
    with pytest.raises(ResourceError, match=r"needs 2\.2 GB of memory and 2\.0 GB is available"):
        kv_bytes(model, options)


def test_weights_that_are_not_mapped_must_fit() -> None:
    check_weights(GIB, None)
    check_weights(GIB, GIB)
    with pytest.raises(ResourceError, match=r"1\.1 GB do not fit into the 536\.9 MB"):
        check_weights(GIB, GIB // 2)


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (2_500_000, "2.5 MB"), (1.5e9, "1.5 GB"), (4.6e12, "4.6 TB")],
)
def test_sizes_for_people(n_bytes: float, text: str) -> None:
    assert size(n_bytes) == text


def test_the_log_joins_lines_and_leaves_debug_out() -> None:
    ring = LogRing()
    for level, text in [
        (2, b"llama_model_loader: loaded\nhalf "),
        (5, b"a line\n"),
        (1, b"noise\n"),
        (5, b"more noise\n"),
        (2, b"...."),
        (4, b"\nllama_model_load: error loading model: tensor 'x' is missing\n"),
        (4, b"llama_model_load_from_file_impl: failed to load model\n"),
        (4, b"\xff\n"),
    ]:
        ring._receive(level, text, None)
    assert list(ring.lines)[:3] == ["llama_model_loader: loaded", "half a line", "...."]
    assert "noise" not in ring.tail()
    assert ring.tail(1) == "\ufffd"
    ring.lines.pop()
    assert ring.reason() == "tensor 'x' is missing"
    ring.clear()
    assert ring.reason() == "it gave no reason"


@pytest.mark.parametrize(
    ("kind", "hint"),
    [(GPU, "--gpu off, or a smaller model"), (0, "a smaller model"), (INTEGRATED, "--gpu off, or a smaller model")],
)
def test_a_gpu_is_turned_off_for_memory_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, kind: int, hint: str
) -> None:
    ring = LogRing()
    ring._receive(4, b"llama_model_load: error loading model: unable to allocate CPU_REPACK buffer\n", None)
    monkeypatch.setattr("localspec.backends.model.LOG", ring)
    monkeypatch.setattr("localspec.backends.devices._kind", lambda _: kind)
    error = _load_error(Path("big.gguf"))
    assert error.message == "llama.cpp cannot load big.gguf: unable to allocate CPU_REPACK buffer"
    assert error.hint == hint


test_what_is_recorded = recorded_expressions(__file__, devices, gpu_layers, THE_CPU=THE_CPU, THE_GPU=THE_GPU)
