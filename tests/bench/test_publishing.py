"""What becomes of a bench once it is measured: files and standard output. No model."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.measurement import Measurement
from localspec.bench.runner import Runner
from localspec.cli import bench_outputs, bench_run
from localspec.cli.bench_outputs import Outputs
from localspec.cli.bench_run import Done, publish
from localspec.cli.console import Console
from localspec.cli.entry import outcome
from localspec.cli.live import Live
from localspec.cli.pair_engine import PairEngine
from localspec.cli.signals import Stop
from localspec.errors import ResourceError, UsageError, WorkerDiedError
from tests.bench.test_results import result
from tests.cli.harness import needs_pair


def test_files_are_written_where_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`localspec bench ... | head`: the files are there."""

    def gone(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(bench_run, "write_out", gone)
    outputs = Outputs(str(tmp_path / "r.json"), str(tmp_path / "r.md"), None, "it")
    with pytest.raises(BrokenPipeError):
        publish(Done(result(), 0), outputs, Console())
    assert json.loads((tmp_path / "r.json").read_text())["is_complete"]
    assert "`it`" in (tmp_path / "r.md").read_text()


def test_a_file_that_cannot_be_written_costs_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The result is shown all the same."""
    outputs = Outputs("-", str(tmp_path / "no" / "r.md"), None, "it")
    with pytest.raises(ResourceError):
        publish(Done(result(), 0), outputs, Console())
    assert json.loads(capsys.readouterr().out)["is_complete"]


def test_an_engine_that_dies_after_the_answers_costs_its_row_costs_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def died(*_: Any) -> None:
        raise WorkerDiedError("the engine died")

    monkeypatch.setattr(bench_run, "survey", died)
    worker: Any = None
    assert bench_run._row_costs(worker, Console()) == ()
    assert "passes were not timed: the engine died" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["markdown", "plots"])
def test_only_json_goes_to_standard_output(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_outputs, "require_plots", lambda: None)
    Outputs("-", None, None, "it").check()
    with pytest.raises(UsageError, match=f"--{option} -: only --json"):
        Outputs(**{"json": None, "markdown": None, "plots": None, "command": "it", option: "-"}).check()


def asked(**names: str) -> Outputs:
    return Outputs(**{"json": None, "markdown": None, "plots": None, "command": "it", **names})


@pytest.mark.parametrize("option", ["json", "markdown"])
@pytest.mark.parametrize("name", ["model.gguf", "MODEL.GGUF", "model.bin"])
def test_a_model_is_not_written_over(option: str, name: str, tmp_path: Path) -> None:
    """`--json MODEL.gguf`, where --json is a flag elsewhere: gigabytes would be gone."""
    model = tmp_path / name
    model.write_bytes(b"GGUF\3\0\0\0")
    with pytest.raises(UsageError, match=f"--{option} .* would be written over") as raised:
        asked(**{option: str(model)}).check()
    assert "localspec bench PAIR" in raised.value.hint
    assert model.read_bytes() == b"GGUF\3\0\0\0"


def test_an_earlier_result_may_be_written_over(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("{}")
    (tmp_path / "r.md").write_text("")
    asked(json=str(tmp_path / "r.json"), markdown=str(tmp_path / "r.md")).check()
    asked(json="/dev/null").check()


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="--json and --markdown are one file"):
        asked(json=str(tmp_path / "r"), markdown=str(tmp_path / "link" / "r")).check()


def dies_in_the_fifth(self: Runner, *_: Any) -> Iterator[Measurement]:
    yield from result(n=2).measurements
    raise WorkerDiedError("the engine died")


def test_what_ended_a_bench_comes_after_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that dies in the fifth answer: four are published."""
    monkeypatch.setattr(Runner, "run", dies_in_the_fifth)
    anything: Any = None
    engine = PairEngine(anything, anything, Live(Console()), Console(), Stop())
    found, error = bench_run._measure(engine, anything, dataclasses.replace(result(), measurements=()))
    assert isinstance(error, WorkerDiedError)
    assert (len(found.measurements), found.is_complete) == (4, False)
    publish(Done(found, 0, error), asked(json=str(tmp_path / "r.json")), Console())
    assert len(json.loads((tmp_path / "r.json").read_text())["measurements"]) == 4
    written = capsys.readouterr()
    assert "interrupted: this is what was measured until then" in written.out


def test_the_baseline_is_in_every_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = result()
    publish(Done(made, 0), asked(json="-", markdown=str(tmp_path / "r.md")), Console(), made)
    (change, *_) = json.loads(capsys.readouterr().out)["comparison"]["changes"]
    assert change["ratio"]["median"] == 1.0
    assert "second / first" in (tmp_path / "r.md").read_text()
    publish(Done(made, 0), asked(), Console(), made)
    assert "against the baseline:" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["r.json", "latest.json"])
def test_an_output_is_written_through_a_link(name: str, tmp_path: Path) -> None:
    """Also one whose file is yet to come."""
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "r.json")
    outputs = asked(json=str(tmp_path / name))
    outputs.check()
    publish(Done(result(), 0), outputs, Console())
    assert link.is_symlink()
    assert json.loads((tmp_path / "r.json").read_text())["is_complete"]


@needs_pair
@pytest.mark.parametrize("flags", [(), ("--json", "-")])
def test_an_engine_that_dies_is_told_after_what_was_measured(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(Runner, "run", dies_in_the_fifth)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    assert outcome(["bench", "storyteller", "--methods", "plain", *flags]) == 9
    written = capsys.readouterr()
    assert "the engine died" in written.err
    if flags:
        assert len(json.loads(written.out)["measurements"]) == 4  # one object
    else:
        assert "interrupted: this is what was measured until then" in written.out
