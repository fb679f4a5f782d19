"""`localspec early-exit tune`, and `run --method early-exit` on what it kept."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench.exit_survey import MeasuredExit, exits_to_try
from localspec.cli.early_exit import _table
from localspec.models.exit_files import Exits
from localspec.models.gguf.header import read_header
from tests.cli.harness import REAL, ROOT, TIMEOUT, assert_one_line, environment, run_engine
from tests.integration.gguf_models import TINY, random_gguf


@pytest.fixture
def model() -> str:
    return str(random_gguf(TINY))


def call(home: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    return run_engine(*args, env={"LOCALSPEC_HOME": str(home)})


def tune(home: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    return call(home, "early-exit", "tune", *args)


def run(home: Path, model: str, *args: str) -> subprocess.CompletedProcess[bytes]:
    return call(home, "run", "-m", model, "--method", "early-exit", "--raw", "abc", "-n", "8", "--temp", "0", *args)


def kept(home: Path) -> list[Path]:
    return sorted((home / "cache" / "early-exit").glob("*.gguf"))


def test_it_measures_and_keeps_the_best(tmp_path: Path, model: str) -> None:
    """Every exit and every single skip once; of the files only the best one's stays, and `run` takes it."""
    prompts = tmp_path / "prompts"
    prompts.write_text("abc\n\nOnce upon\n")
    done = tune(tmp_path, model, "-n", "8", "--skips", "1", "--prompts", str(prompts), "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert [one["layers"] for one in made["results"]] == [[0], [0, 1], [1, 2], [0, 2]]  # [0, 1] is a skip too
    assert [one["options"] for one in made["results"]] == [{"exit": "1"}, {"exit": "2"}, {"skip": "0"}, {"skip": "1"}]
    assert made["n_prompts"] == 2
    best = max(made["results"], key=lambda one: one["ratio"])
    assert made["best"] == best
    assert made["pays"] == (best["ratio"] > 1)
    for one in made["results"]:
        assert 0 <= one["acceptance"] <= 1 <= one["tokens_per_pass"]
        assert 0 < one["bytes"] < Path(model).stat().st_size
    assert kept(tmp_path) == [Exits(read_header(model), tmp_path / "cache" / "early-exit").path(tuple(best["layers"]))]
    before = kept(tmp_path)[0].stat().st_mtime_ns
    assert run(tmp_path, model).returncode == 0
    assert [path.stat().st_mtime_ns for path in kept(tmp_path)] == [before]


def test_files_that_were_there_stay(tmp_path: Path, model: str) -> None:
    """What `run` made before is not tune's to remove."""
    assert run(tmp_path, model, "-o", "exit=1").returncode == 0
    assert run(tmp_path, model, "-o", "exit=2").returncode == 0
    before = kept(tmp_path)
    assert len(before) == 2
    done = tune(tmp_path, model, "-n", "8")
    assert done.returncode == 0, done.stderr
    assert kept(tmp_path) == before
    assert done.stdout.decode().splitlines()[-1].startswith("kept: -o exit=")


def test_an_interruption_leaves_nothing(tmp_path: Path, model: str) -> None:
    """Ctrl-C in the middle: no output, no file, exit code 130."""
    process = subprocess.Popen(
        [*REAL, "early-exit", "tune", model, "-n", "500"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({"LOCALSPEC_HOME": str(tmp_path)}),
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + TIMEOUT
    while not kept(tmp_path):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=TIMEOUT) == (b"", b"stopped\n")
    assert process.returncode == 130
    assert kept(tmp_path) == []


def test_the_table_says_when_none_pays() -> None:
    """The best is marked, and honestly."""
    slow, slower = MeasuredExit((0, 1), 0.5, 2.25, 0.8, 2_600_000), MeasuredExit((0, 1, 3), 0.625, 3.0, 0.7, 3_100_000)
    assert _table(4, [slow, slower], slow) == (
        "layers  accepted  tok/pass  speed   draft\n"
        "exit=2       50%      2.25  0.80×  2.6 MB  best\n"
        "skip=2       62%      3.00  0.70×  3.1 MB\n"
        "kept: -o exit=2 of 4 layers, 0.80× plain: none pays here, plain decoding is faster"
    )
    fast = MeasuredExit((0,), 0.5, 2.0, 1.5, 1_000_000)
    assert _table(4, [fast], fast).splitlines()[-1] == "kept: -o exit=1 of 4 layers, 1.50× plain"


def test_a_large_model_is_not_tried_everywhere() -> None:
    """All exits of a few layers, up to eight of many, each one possible."""
    assert exits_to_try(2) == [1]
    assert exits_to_try(8) == [1, 2, 3, 4, 5, 6, 7]
    assert exits_to_try(32) == [2, 4, 6, 8, 12, 16, 20, 24]
    for n in range(2, 200):
        exits = exits_to_try(n)
        assert exits == sorted(set(exits))
        assert 1 <= exits[0] <= exits[-1] < n


def test_a_model_without_exits(tmp_path: Path) -> None:
    """Refused before anything is loaded or made."""
    single = str(random_gguf(replace(TINY, layers=1)))
    assert_one_line(tune(tmp_path, single), 6, "single layer")
    assert_one_line(run(tmp_path, single), 6, "single layer")
    assert kept(tmp_path) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path, model: str) -> None:
    (tmp_path / "cache").write_text("in the way")
    assert_one_line(run(tmp_path, model), 7, "cannot be kept", "LOCALSPEC_HOME")
    assert_one_line(tune(tmp_path, model, "-n", "8"), 7, "cannot be kept")
