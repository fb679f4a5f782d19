"""How a session places its pair where nothing is to be planned, and what it does where memory is not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.backends.devices import Device, offloading
from localspec.backends.options import LoadOptions
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model
from localspec.session.loaded_model import inspect_model
from localspec.session.placement import InspectedModel, PairFiles
from localspec.settings.request import LoadSettings
from tests.integration import pair
from tests.integration.heads import with_own_block
from tests.machine.servers import ROOT
from tests.models.hollow import Hollow, write

# A context of 4096 tokens takes 537 MB of cache, one of 2048 half of that. Once everything is loaded that a load needs,
# the process may take address space for the second, not for the first; a thread's arena of malloc takes up to 128 MB.
TIGHT = """
import json, resource, sys
from localspec.engine import events
from localspec.settings.request import LoadSettings
from localspec.errors import ResourceError
from localspec.engine.events import Returning
from localspec.session.loading import load
path, ctx = sys.argv[1], json.loads(sys.argv[2])
first = Returning(load(LoadSettings(path, threads=1, ctx=1024), lambda: False))
list(first)
first.result.close()
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 500 * 10**6, resource.RLIM_INFINITY))
try:
    told = list(load(LoadSettings(path, threads=1, ctx=ctx), lambda: False))
    print(json.dumps([told[-1].n_ctx, *(one.message for one in told if isinstance(one, events.Warned))]))
except ResourceError as error:
    print(json.dumps([error.exit_code, error.message]))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model whose cache is large: 8 layers of 4096 entries for keys and values."""
    shape = Hollow(8, 256, 16, 16, 256, 512, quant="Q8_0", head=256)
    return write(tmp_path_factory.mktemp("wide") / "m.gguf", shape)


def loaded(path: Path, ctx: int | None) -> list[object]:
    command = [sys.executable, "-c", TIGHT, str(path), json.dumps(ctx)]
    env = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    told: list[object] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_context_that_nobody_asked_for_is_halved(wide: Path) -> None:
    n_ctx, warning = loaded(wide, None)
    assert n_ctx == 2048
    assert "the context is cut to 2048 tokens" in str(warning)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_context_that_was_asked_for_is_not(wide: Path) -> None:
    code, message = loaded(wide, 4096)
    assert code == 7
    assert "cannot make a context of 4096 tokens" in str(message)


def test_without_devices_nothing_is_planned() -> None:
    """And nothing that planning needs is imported: a start on the CPU takes as long as before."""
    code = (
        "import sys\nfrom localspec.session.loading import load\nfrom localspec.settings.request import LoadSettings\n"
        f"list(load(LoadSettings({str(pair.TARGET)!r}, threads=1, gpu='off'), lambda: False))\n"
        "assert not [name for name in sys.modules if name.startswith('localspec.models.plan')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)
    header = read_model(pair.TARGET)
    step = PairFiles(LoadSettings(str(pair.TARGET), gpu="off"), InspectedModel(header, model_info(header))).placed()
    assert step.plan is None
    assert step.target == LoadOptions(gpu="off", max_leaves=step.target.max_leaves, keeps_prompt=True)


@pytest.mark.parametrize(("available", "repack"), [(None, None), (1 << 40, None), (1000, False)])
def test_a_model_larger_than_the_memory_stays_in_its_file(
    monkeypatch: pytest.MonkeyPatch, available: int | None, repack: bool | None
) -> None:
    """Rearranged weights are a copy, which the kernel cannot drop and read again."""
    monkeypatch.setattr("localspec.session.placement.available_memory", lambda: available)
    header = read_model(pair.TARGET)
    step = PairFiles(LoadSettings(str(pair.TARGET), gpu="off"), InspectedModel(header, model_info(header))).placed()
    assert step.target.repack is repack
    assert ("read from the disk" in str(step.warnings)) is (repack is False)


@pytest.fixture(scope="module")
def hollow(tmp_path_factory: pytest.TempPathFactory) -> tuple[InspectedModel, InspectedModel]:
    """Files of 3.95 and 0.55 GB; contexts of 4096 tokens take 0.81 and up to 0.41 GB beside them."""
    folder = tmp_path_factory.mktemp("hollow")
    target = write(folder / "t.gguf", Hollow(32, 4096, 32, 8, 14336, 4096))
    draft = write(folder / "d.gguf", Hollow(16, 2048, 32, 8, 8192, 4096, is_tied=True, ctx=2048))
    return inspect_model(str(target)), inspect_model(str(draft))


@pytest.mark.parametrize(
    ("has_draft", "available", "is_paged"),
    [(False, 4.9e9, True), (False, 5.2e9, False), (True, 5.2e9, True), (True, 5.6e9, True), (True, 6.2e9, False)],
)
def test_what_is_kept_beside_the_weights_counts_too(
    monkeypatch: pytest.MonkeyPatch,
    hollow: tuple[InspectedModel, InspectedModel],
    has_draft: bool,
    available: float,
    is_paged: bool,
) -> None:
    """Each file fits; what nothing is left for is copied all the same, and the system ends the process."""
    monkeypatch.setattr("localspec.session.placement.available_memory", lambda: int(available))
    target, draft = hollow
    settings = LoadSettings(str(target.info.path), ctx=4096, gpu="off", draft_gpu="off")
    step = PairFiles(settings, target, draft if has_draft else None).placed()
    assert step.target.repack is (False if is_paged else None)
    assert step.draft is None or step.draft.repack is step.target.repack
    assert ("read from the disk" in str(step.warnings)) is is_paged


@pytest.mark.parametrize(("asked", "given"), [(8192, 2048), (1024, 1024), (None, None)])
def test_a_draft_gets_no_context_that_it_was_not_trained_for(
    hollow: tuple[InspectedModel, InspectedModel], asked: int | None, given: int | None
) -> None:
    """Without a plan as with one; beyond it decoding is plain, which the session tells."""
    target, draft = hollow
    settings = LoadSettings(str(target.info.path), str(draft.info.path), ctx=asked, gpu="off", draft_gpu="off")
    step = PairFiles(settings, target, draft).placed()
    assert step.draft is not None
    assert (step.target.n_ctx, step.draft.n_ctx) == (asked, given)


@pytest.mark.parametrize(("asked", "counts"), [("all", (17,)), ("3", (3,)), ("off", ())])
def test_a_draft_with_a_place_of_its_own_is_planned_with_the_target(
    monkeypatch: pytest.MonkeyPatch, hollow: tuple[InspectedModel, InspectedModel], asked: str, counts: tuple[int, ...]
) -> None:
    """On a device that has no room for both, the target takes what the draft leaves."""
    found = (Device("CUDA0", "", True, 3 * 10**9), Device("CPU", "", False, 0))
    monkeypatch.setattr("localspec.session.placement.devices", lambda: found)
    monkeypatch.setattr("localspec.session.placement.available_memory", lambda: 64 * 10**9)
    target, draft = hollow
    settings = LoadSettings(str(target.info.path), str(draft.info.path), ctx=4096, draft_gpu=asked)
    step = PairFiles(settings, target, draft).placed()
    assert step.plan is not None
    assert step.draft is not None
    assert step.draft.placement is not None
    assert step.draft.placement.counts == counts
    assert step.draft.gpu == asked
    assert 2.6e9 < step.plan.use["CUDA0"].total <= 0.93 * 3e9
    assert step.draft.n_ctx == 2048


def test_a_draft_whose_place_has_no_room_is_left_out(
    monkeypatch: pytest.MonkeyPatch, hollow: tuple[InspectedModel, InspectedModel]
) -> None:
    monkeypatch.setattr("localspec.session.placement.devices", lambda: (Device("CUDA0", "", True, 3 * 10**8),))
    monkeypatch.setattr("localspec.session.placement.available_memory", lambda: 64 * 10**9)
    target, draft = hollow
    step = PairFiles(LoadSettings(str(target.info.path), str(draft.info.path), draft_gpu="all"), target, draft).placed()
    assert step.draft is None
    assert "no memory for the draft model with --draft-gpu all" in str(step.warnings)


def test_a_block_for_further_tokens_is_planned_with_its_target_and_its_weights_counted_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("localspec.session.placement.devices", lambda: (Device("CUDA0", "", True, 10**9),))
    monkeypatch.setattr("localspec.session.placement.available_memory", lambda: 64 * 10**9)
    target = inspect_model(str(with_own_block(tmp_path / "own.gguf")))
    settings = LoadSettings(str(target.info.path), str(target.info.path))
    steps = [PairFiles(settings, target, draft).placed() for draft in (None, target)]
    (alone, with_block) = [step.plan.use["CUDA0"] for step in steps if step.plan is not None]
    assert steps[1].draft is not None
    assert with_block.weights == alone.weights
    assert alone.cache < with_block.cache < 2 * alone.cache


def test_a_block_for_further_tokens_is_no_second_file_in_main_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = inspect_model(str(with_own_block(tmp_path / "own.gguf")))
    monkeypatch.setattr("localspec.session.placement.available_memory", lambda: int(1.5 * target.header.size))
    step = PairFiles(LoadSettings(str(target.info.path), str(target.info.path), ctx=256), target, target).placed()
    assert step.warnings == ()


def test_an_integrated_gpu_is_used_where_there_is_no_other() -> None:
    """As llama.cpp chooses; remote devices do not count as another."""
    cpu, gpu = Device("CPU", "", False, 1), Device("CUDA0", "", True, 1)
    integrated, remote = Device("iGPU", "", True, 1, is_unified=True), Device("RPC0", "", True, 1, is_remote=True)
    assert offloading([cpu, gpu, integrated, remote]) == (gpu, remote)
    assert offloading([cpu, integrated, remote]) == (integrated, remote)
    assert offloading([cpu]) == ()
