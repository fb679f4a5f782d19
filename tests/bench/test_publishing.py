"""What becomes of a bench once it is measured: files, standard output, and what is kept where one fails. No model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.result import Result
from localspec.bench.state import State
from localspec.cli import bench_run
from localspec.cli.bench_run import Done, Outputs, publish
from localspec.cli.console import Console
from localspec.errors import ResourceError, UsageError, WorkerDiedError
from tests.bench.test_results import result


def kept(folder: Path, made: Result) -> State:
    """Return the state of a bench that was measured to its end."""
    state = State(folder, "x")
    state.begin()
    for one in made.measurements:
        state.append(one)
    return state


def test_files_are_written_where_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`localspec bench ... | head`: the files are there, and what was measured is kept and said so."""

    def gone(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(bench_run, "write_out", gone)
    state = kept(tmp_path, result())
    outputs = Outputs(str(tmp_path / "r.json"), str(tmp_path / "r.md"), None, "it")
    with pytest.raises(BrokenPipeError):
        publish(Done(result(), 0, state), outputs, Console())
    assert json.loads((tmp_path / "r.json").read_text())["is_complete"]
    assert "`it`" in (tmp_path / "r.md").read_text()
    assert "12 answers are kept; the same command with --resume goes on" in capsys.readouterr().err
    assert len(state.load()) == 12


def test_a_file_that_cannot_be_written_costs_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The result is shown all the same, and that it is kept is said."""
    state = kept(tmp_path, result())
    outputs = Outputs("-", str(tmp_path / "no" / "r.md"), None, "it")
    with pytest.raises(ResourceError):
        publish(Done(result(), 0, state), outputs, Console())
    written = capsys.readouterr()
    assert json.loads(written.out)["is_complete"]
    assert "12 answers are kept" in written.err
    assert len(state.load()) == 12


def test_what_is_published_is_no_longer_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = kept(tmp_path, result())
    publish(Done(result(), 0, state), Outputs("-", None, None, "it"), Console())
    assert json.loads(capsys.readouterr().out)["is_complete"]
    assert state.load() == []


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
    monkeypatch.setattr(bench_run, "require_plots", lambda: None)
    Outputs("-", None, None, "it").check()
    with pytest.raises(UsageError, match=f"--{option} -: only --json"):
        Outputs(**{"json": None, "markdown": None, "plots": None, "command": "it", option: "-"}).check()
