"""A pair over RPC servers, which are real devices of ggml: the same text as here, layers where they were put, one clear
error when a server is gone.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.cli.show import describe
from localspec.models.plan.memory import ContextPlan
from localspec.models.plan.memory_use import Layout, MemoryUse
from tests.cli.harness import assert_one_line, environment, localspec, wait_for
from tests.integration import pair
from tests.integration.heads import with_own_block
from tests.machine.placed import has_rpc, needs_rpc, place
from tests.machine.servers import ROOT, Server, free_port, servers
from tests.models.hollow import Hollow, write
from tests.weights.scaled import Shape, write_scaled

GREEDY = ("--temp", "0", "-n", "60", "--raw", "--json", "Once upon a time")


@pytest.fixture(scope="module")
def two() -> Iterator[list[str]]:
    with servers(2) as started:
        yield [server.endpoint for server in started]


@pytest.fixture(scope="module")
def here() -> list[int]:
    """The target's tokens without any server."""
    tokens: list[int] = place(path=str(pair.TARGET), n_ctx=1024, n=30)["tokens"]
    return tokens


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with experts and random weights in F32, so that places agree to rounding."""
    shape = Hollow(4, 64, 4, 2, 32, 512, quant="F32", head=16, experts=8, used=2, arch="qwen3moe", ctx=512)
    path = write(tmp_path_factory.mktemp("experts") / "m.gguf", shape)
    start = describe(path).header.data_offset
    noise = np.random.default_rng(0).normal(0, 0.15, (path.stat().st_size - start) // 4).astype(np.float32)
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(noise.tobytes())
    return path


def ran(*args: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    done = localspec("run", *args, *GREEDY, env=env)
    assert done.returncode == 0, done.stderr.decode()
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@needs_rpc
def test_the_same_text_on_two_servers_as_here(two: list[str]) -> None:
    """The target split over both, and the draft on them too, or here."""
    here = ran("--method", "plain")["text"]
    for layers, draft in (("all", "off"), ("all", "all"), ("4", "off")):
        there = ran("--rpc", ",".join(two), "--gpu", layers, "--draft-gpu", draft, "--method", "draft-model")
        assert there["text"] == here, (layers, draft)


@needs_rpc
@pytest.mark.parametrize("layers", ["all", "4"])
@pytest.mark.parametrize("name", ["storyteller+eagle3", "storyteller+eagle1", "storyteller+medusa", "own"])
def test_a_head_hears_the_states_of_a_target_on_a_server(
    two: list[str], tmp_path: Path, name: str, layers: str
) -> None:
    """Its guesses are accepted as often as here; a block of random weights in the target's own file guesses nothing."""
    named = str(with_own_block(tmp_path / "own.gguf")) if name == "own" else name
    method = ("--method", "mtp" if name == "own" else name.partition("+")[2])
    here = ran("-m", named, *method)
    there = ran("-m", named, *method, "--rpc", two[0], "--gpu", layers)
    assert there["text"] == here["text"] == ran("-m", f"{named.partition('+')[0]}+none")["text"]
    assert there["pair"]["draft"]["devices"] == ["CPU", "RPC0"]
    assert there["spec"]["drafted"] > 20
    assert there["spec"]["accepted"] == pytest.approx(here["spec"]["accepted"], abs=4)


LAYOUTS: dict[str, Layout] = {
    "all on one": Layout(("RPC0",), (9,)),
    "the last three here": Layout(("RPC0",), (3,)),
    "split three ways": Layout(("RPC1", "RPC0"), (2, 4)),
    "the head alone": Layout(("RPC1",), (1,)),
}


@needs_rpc
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layers_go_where_they_are_put_and_take_what_is_told(two: list[str], here: list[int], layout: Layout) -> None:
    placement = {"devices": layout.devices, "counts": layout.counts}
    there = place(path=str(pair.TARGET), rpc=two, placement=placement, n_ctx=1024, n=30)
    assert there["tokens"] == here
    use = MemoryUse(describe(pair.TARGET).anatomy, ContextPlan(1024)).use(layout)
    names = {f"RPC{i}": f"RPC0[{endpoint}]" for i, endpoint in enumerate(two)}  # a buffer counts within its server
    assert {name for name in there["buffers"] if name.startswith("RPC")} == {names[name] for name in layout.devices}
    for name in layout.devices:
        measured = there["buffers"][names[name]]
        assert measured["model"] == pytest.approx(use[name].weights, rel=0.01)
        assert measured.get("KV", 0) == pytest.approx(use[name].cache, rel=0.01)
        assert measured["compute"] <= use[name].compute * 1.06


@needs_rpc
def test_layers_that_are_only_counted_go_to_the_servers(two: list[str], here: list[int]) -> None:
    """Without a plan llama.cpp itself sees the devices: it must be the same ggml that it is linked to."""
    there = place(path=str(pair.TARGET), rpc=two, gpu="all", n_ctx=1024, n=30)
    assert {f"RPC0[{endpoint}]" for endpoint in two} <= there["buffers"].keys()
    assert there["tokens"] == here


@needs_rpc
def test_a_scaled_target_says_the_same_on_two_servers(two: list[str], tmp_path: Path) -> None:
    """Ten layers of which three stay here."""
    scaled = tmp_path / "scaled.gguf"
    write_scaled(pair.TARGET, scaled, Shape(width=320, layers=10, heads=6, kv_heads=2, ff=768), "F32")
    placement = {"devices": ["RPC1", "RPC0"], "counts": [3, 5]}
    there = place(path=str(scaled), rpc=two, placement=placement, n_ctx=256, n=30, kv_type="f32")
    assert there["tokens"] == place(path=str(scaled), n_ctx=256, n=30, kv_type="f32")["tokens"]


@needs_rpc
def test_experts_stay_in_main_memory(two: list[str], experts: Path) -> None:
    """Of the first two layers: their bytes are missing on the device, and the text is the same."""
    anatomy = describe(experts).anatomy
    texts = [place(path=str(experts), n_ctx=256, n=30, kv_type="f32", prompt=9)["tokens"]]
    for kept in (0, 2):
        placement = {"devices": ["RPC0"], "counts": [5], "cpu_experts": kept}
        told = place(path=str(experts), rpc=two[:1], placement=placement, n_ctx=256, n=30, kv_type="f32", prompt=9)
        texts.append(told["tokens"])
        use = MemoryUse(anatomy, ContextPlan(256, "f32")).use(Layout(("RPC0",), (5,), kept))
        assert told["buffers"][f"RPC0[{two[0]}]"]["model"] == pytest.approx(use["RPC0"].weights, rel=0.02)
    assert (
        texts[0] == texts[1] == texts[2] == place(path=str(experts), n_ctx=256, n=30, kv_type="f32", prompt=9)["tokens"]
    )


@needs_rpc
def test_the_plan_puts_draft_and_target_onto_the_faster_device(two: list[str], tmp_path: Path) -> None:
    """--gpu auto, on figures by which the first server is faster than all else."""
    figures = [
        {"device": name, "description": about, "type": "Q8_0", "rows": 1, "bytes_per_s": rate}
        for name, about, rate in (("RPC0", two[0], 9e11), ("RPC1", two[1], 1e9), ("CPU", _processor(), 1e9))
    ]
    kept = tmp_path / "cache" / "machine" / "rates.json"
    kept.parent.mkdir(parents=True)
    wire = {"schema": "localspec.machine/1", "measured": "2026-01-01", "llama_cpp": "x", "figures": figures}
    kept.write_text(json.dumps(wire))
    env = {"LOCALSPEC_HOME": str(tmp_path)}
    result = ran("--rpc", ",".join(two), env=env)
    assert result["pair"]["target"]["devices"] == ["CPU", "RPC0"]
    assert result["pair"]["draft"]["devices"] == ["CPU", "RPC0"]
    assert result["text"] == ran("--method", "plain")["text"]
    shown = json.loads(localspec("plan", "storyteller", "--rpc", ",".join(two), "--json", env=env).stdout)
    assert shown["chosen"]["target"]["devices"] == {"RPC0": 9}
    assert shown["chosen"]["basis"] == "measured 2026-01-01"


def _processor() -> str:
    from localspec.backends.devices import devices

    return next(device.description for device in devices() if device.name == "CPU")


@needs_rpc
def test_a_server_is_timed_until_it_has_computed(two: list[str], tmp_path: Path) -> None:
    """It answers before that. Its processor is this machine's, so it is no ten times as fast."""
    done = localspec("calibrate", "--machine", "--rpc", two[0], "--json", env={"LOCALSPEC_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr.decode()
    figures = json.loads(done.stdout)["figures"]
    rates = {one["device"]: one["bytes_per_s"] for one in figures if (one["type"], one["rows"]) == ("F16", 16)}
    assert rates["RPC0"] < 10 * rates["CPU"]


@needs_rpc
def test_a_server_killed_in_the_middle_is_one_clear_error(tmp_path: Path) -> None:
    """The weights are zeros of a size that takes its time; every token is as likely as the next."""
    slow = write(tmp_path / "m.gguf", Hollow(4, 1024, 16, 4, 4096, 4096, quant="Q8_0"))
    with servers(2) as started:
        endpoints = ",".join(server.endpoint for server in started)
        command = [sys.executable, "-m", "localspec", "run", "-m", f"{slow}+none", "--rpc", endpoints, "--gpu", "all"]
        process = subprocess.Popen(
            [*command, "-n", "4000", "--temp", "1", "--top-k", "0", "--min-p", "0", "--raw", "x"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT,
        )  # fmt: skip
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1)  # it is generating
        started[1].kill()
        rest, said = process.communicate(timeout=120)
    assert first + rest
    done = subprocess.CompletedProcess(command, process.returncode, rest, said)
    assert_one_line(done, 9, "lost an RPC server", "while generating", "localspec doctor --rpc")


@needs_rpc
def test_a_server_that_takes_less_than_it_offers(tmp_path: Path) -> None:
    """It tells the machine's memory and may take 700 MB of addresses: a smaller load is tried, then given up."""
    shape = Hollow(4, 2048, 32, 8, 8192, 4096, quant="F16")
    model = write(tmp_path / "m.gguf", shape)
    figures = []
    with servers(1, limit=700 * 2**20) as (server,):
        for name, about, rate in (("RPC0", server.endpoint, 9e11), ("CPU", _processor(), 1e9)):
            figures.append({"device": name, "description": about, "type": "F16", "rows": 1, "bytes_per_s": rate})
        kept = tmp_path / "cache" / "machine" / "rates.json"
        kept.parent.mkdir(parents=True)
        wire = {"schema": "localspec.machine/1", "measured": "x", "llama_cpp": "x", "figures": figures}
        kept.write_text(json.dumps(wire))
        done = localspec(
            "run", "-m", f"{model}+none", "--rpc", server.endpoint, "-n", "1", "--raw", "--json", "x",
            env={"LOCALSPEC_HOME": str(tmp_path)},
        )  # fmt: skip
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 7, error
    assert "RPC0 needs" in error["message"]
    assert error["detail"]["needed_bytes"]["RPC0"] > 0


@needs_rpc
def test_an_address_that_is_taken() -> None:
    server = Server()
    try:
        port = server.endpoint.rpartition(":")[2]
        done = localspec("rpc-serve", "--port", port, "--json")
        assert done.returncode == 4
        assert "cannot serve at" in json.loads(done.stdout)["error"]["message"]
    finally:
        server.close()


@needs_rpc
def test_a_device_that_is_not_there() -> None:
    done = localspec("rpc-serve", "--port", str(free_port()), "--device", "CUDA7", "--json")
    assert done.returncode == 3
    assert "'CUDA7'" in json.loads(done.stdout)["error"]["message"]


@needs_rpc
def test_a_server_that_is_not_there() -> None:
    done = localspec("run", "--rpc", f"127.0.0.1:{free_port()}", "-n", "1", "x")
    assert_one_line(done, 4, "cannot be reached", "localspec rpc-serve --port")


@needs_rpc
def test_the_server_ends_with_its_command() -> None:
    """Nothing goes on listening for nobody."""
    server = Server()
    server.process.terminate()
    assert server.process.wait(timeout=120) == 143
    host, port = server.endpoint.split(":")

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    wait_for(lambda: not listens())


@pytest.mark.skipif(has_rpc(), reason="this llama.cpp has RPC")
@pytest.mark.parametrize("args", [("run", "--rpc", "127.0.0.1:1", "x"), ("rpc-serve",)])
def test_a_build_without_rpc_says_how_to_get_one(args: tuple[str, ...]) -> None:
    done = localspec(*args)
    assert done.returncode == 6
    assert "no RPC backend" in done.stderr.decode()
    assert "--with rpc" in done.stderr.decode()


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:0", "host:65536", "host:x", "a:1,,b:2"])
def test_what_is_no_server(text: str) -> None:
    assert_one_line(localspec("run", "--rpc", text, "x"), 2, "is not HOST:PORT")
