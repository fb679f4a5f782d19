"""`plan`, `show` and `pairs explain` of models on the hub: only headers are fetched, and they tell all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import pytest

from localspec.models import remote_header
from localspec.models.catalog import load_catalog
from localspec.models.gguf.header import read_header
from tests.cli.harness import assert_one_line
from tests.hub.machine import DRAFT, PAIR, PARTS, TARGET, Machine
from tests.hub.server import Repo
from tests.models.hollow import LLAMA_1B, LLAMA_70B, Hollow, write

MACHINE = ("--vram", "24G", "--ram", "64G", "--bandwidth", "gpu=936,cpu=60,disk=3")
BIG, SMALL = "hf:org/big:Q4_K_M", "hf:org/small:Q4_K_M"


class Holes(bytes):
    """A file whose bytes behind `head` are all zero, which takes no memory."""

    head: bytes
    size: int

    @classmethod
    def of(cls, path: Path) -> Holes:
        made = cls()
        made.head, made.size = path.open("rb").read(read_header(path).data_offset), path.stat().st_size
        return made

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: Any) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> bytes: ...
    def __getitem__(self, index: Any) -> int | bytes:
        start, stop, _ = index.indices(self.size)
        assert stop - start <= 64 << 20, "nobody asks for so much of a file"
        return self.head[start:stop].ljust(stop - start, b"\0")


def without_names(made: Any) -> Any:
    """Return a plan without the names of its files: of what is here they are paths."""
    if isinstance(made, dict):
        names = ("pair", "draft_name", "loaded_draft", "verdict")
        return {key: without_names(value) for key, value in made.items() if key not in names}
    return [without_names(each) for each in made] if isinstance(made, list) else made


@pytest.fixture
def files(machine: Machine, tmp_path: Path) -> dict[str, Path]:
    """A model of 42 GB and one of 0.8 GB, on the hub and, by the name that is returned, beside it."""
    shapes: dict[str, Hollow] = {BIG: replace(LLAMA_70B, layers=85), SMALL: LLAMA_1B}
    found = {}
    for n, (name, shape) in enumerate(shapes.items()):
        short = name.removeprefix("hf:org/").partition(":")[0]
        path = found[name] = write(tmp_path / f"{short}-Q4_K_M.gguf", shape)
        repo = Repo({path.name: Holes.of(path)}, commit=f"{n}" * 40, etags={path.name: f"{n}" * 64})
        machine.server.repos[f"org/{short}"] = repo
    assert 42e9 < found[BIG].stat().st_size < 43e9
    return found


def test_a_plan_of_42_gb_reads_some_megabytes(machine: Machine, files: dict[str, Path]) -> None:
    """It is the plan of the files themselves, to the byte."""
    far = machine.json("plan", f"{BIG}+{SMALL}", *MACHINE)
    assert machine.server.sent <= 2 * 16 << 20
    assert machine.links() == [], "nothing was pulled"
    near = machine.json("plan", f"{files[BIG]}+{files[SMALL]}", *MACHINE)
    assert far["pair"] != near["pair"]
    assert without_names(far) == without_names(near)
    assert far["is_about"] is False
    n = len(machine.server.downloads())
    alone = (f"{name}+none" for name in (BIG, files[BIG]))  # the draft lies beside the file that is here
    told, table = (machine.call("plan", pair, *MACHINE).stdout.decode() for pair in alone)
    assert len(machine.server.downloads()) == n, "headers are kept"
    assert "\nThese files are not on this machine." in told
    assert f"localspec drafts make {BIG} --bits 2" in told
    assert told.replace(BIG, str(files[BIG])).splitlines()[:-2] == table.splitlines()


def test_facts_and_a_comparison(machine: Machine, files: dict[str, Path]) -> None:
    far, near = (machine.json("show", name) for name in (BIG, str(files[BIG])))
    assert (far["source"], far["is_here"], far["is_about"]) == (BIG, False, False)
    assert far["bytes"] == near["bytes"] == files[BIG].stat().st_size
    assert far["kv_bytes_per_token"] == near["kv_bytes_per_token"]
    assert f"file           {BIG}, not on this machine" in machine.call("show", BIG).stdout.decode()
    assert_one_line(machine.call("show", "--sha256", BIG), 2, "cannot be hashed", f"localspec pull {BIG}")
    made = machine.json("pairs", "explain", BIG, SMALL)
    assert (made["fits"], made["target"]["bytes"]) == (True, far["bytes"])
    assert machine.server.sent <= 2 * 16 << 20
    assert machine.links() == []


def test_one_of_the_two_is_here(machine: Machine, files: dict[str, Path]) -> None:
    far = machine.json("plan", f"{files[BIG]}+{SMALL}", *MACHINE)
    near = machine.json("plan", f"{files[BIG]}+{files[SMALL]}", *MACHINE)
    assert without_names(far["chosen"]) == without_names(near["chosen"])


def test_a_model_in_parts(machine: Machine) -> None:
    """All headers are read: each part has some of the layers."""
    far = machine.json("plan", PARTS, *MACHINE)
    size = machine.json("show", PARTS)["bytes"]
    machine.pull(PARTS)
    near = machine.json("plan", PARTS, *MACHINE)
    assert far | {"pair": ""} == near | {"pair": ""}  # the name of what is here has its commit
    assert size == machine.json("show", PARTS)["bytes"]


def test_a_comparison_counts_the_weights_of_all_parts(machine: Machine) -> None:
    """The first part alone has the vocabulary and the smallest share of the weights."""
    far = machine.json("pairs", "explain", PARTS, DRAFT)
    machine.pull(PARTS)
    near = machine.json("pairs", "explain", PARTS, DRAFT)
    assert near["target"]["n_params"] == machine.json("show", PARTS)["n_params"]
    for one in (far, near):
        del one["target"]["name"]  # the name of what is here has its commit
    assert far == near


def test_of_later_parts_less_is_fetched(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold no vocabulary. A header that is longer than the first look is fetched in steps."""
    monkeypatch.setattr(remote_header, "FIRST_LOOK", 64 << 10)
    monkeypatch.setattr(remote_header, "PART_LOOK", 1 << 10)
    machine.json("pairs", "explain", PARTS, PARTS)
    ranges: dict[str, list[str | None]] = {}
    for one in machine.server.downloads():
        ranges.setdefault(one.path, []).append(one.range)
    first, *later = ranges.values()
    assert first[0] == f"bytes=0-{(64 << 10) - 1}"
    assert [found[0] for found in later] == ["bytes=0-1023"] * 2
    assert [found[1] for found in later] == ["bytes=1024-4095"] * 2


def test_the_same_before_and_after_a_download(machine: Machine) -> None:
    far = machine.json("plan", PAIR, *MACHINE)
    machine.pull(TARGET, DRAFT)
    assert far | {"pair": ""} == machine.json("plan", PAIR, *MACHINE) | {"pair": ""}


def test_a_pair_that_does_not_fit_is_said_before_the_download(machine: Machine, files: dict[str, Path]) -> None:
    line = assert_one_line(machine.call("plan", f"{BIG}+{DRAFT}", *MACHINE), 6, "does not fit")
    assert "they share" in line


def test_offline_the_catalogue_tells_about(machine: Machine) -> None:
    name = "llama-3.3-70b"
    made = machine.json("plan", name, "--offline", *MACHINE)
    assert made["is_about"] is True
    assert not machine.server.requests
    told = machine.call("show", name, "--offline").stdout.decode()
    assert "about" in told
    assert_one_line(machine.call("plan", "--offline", BIG), 3, f"{BIG} is not on this machine", "localspec pull")
    assert_one_line(machine.call("show", "--offline", BIG), 3, f"{BIG} is not on this machine")


def test_where_the_hub_fails_the_catalogue_tells_about(machine: Machine) -> None:
    """Its repository is not there: a warning says so."""
    name = "llama-3.3-70b"
    assert load_catalog().models[name].repo not in machine.server.repos
    for command in ("plan", "show"):
        done = machine.call(command, name, *(MACHINE if command == "plan" else ()), "--json")
        assert json.loads(done.stdout)["is_about"] is True
        assert done.stderr.decode().count("\n") == 1
        assert "the catalogue's" in done.stderr.decode()
    line = assert_one_line(machine.call("plan", "hf:org/none", *MACHINE), 3, "hf:org/none is not on this machine")
    assert "cannot be read" in line
