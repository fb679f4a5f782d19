"""`localspec calibrate PAIR` and `localspec doctor PAIR` as people run them, on the bundled pair with little time."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from localspec.cli.staircase import staircase
from localspec.settings.jobs import SurveyRequest
from localspec.tuning import SIZES
from tests.cli.harness import (
    REAL,
    ROOT,
    TIMEOUT,
    Terminal,
    assert_advice,
    assert_one_line,
    environment,
    needs_pair,
    run_engine,
)
from tests.weights.random_gguf import Shape, write_random_gguf

MAMBA = Shape(arch="mamba", vocab=512, width=64, layers=2, ctx=1024, quant="F32")
CAUSES = ("devices", "rows", "draft", "accepted", "sampling", "template", "experts", "rollback", "memory",
          "threads", "drift")  # fmt: skip


def call(home: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    return run_engine(*args, env={"LOCALSPEC_HOME": str(home)})


def profiles(home: Path) -> list[Path]:
    return list((home / "cache" / "profiles").glob("*.json"))


@needs_pair
def test_a_pair_is_calibrated_and_the_profile_kept(tmp_path: Path) -> None:
    done = call(tmp_path, "calibrate", "storyteller", "--seconds", "2", "--json")
    assert done.returncode == 0, done.stderr
    wire = json.loads(done.stdout)
    assert wire["schema"] == "localspec.calibration/1"
    timed = [rows for rows, _ in wire["target"]["ms"]]
    assert timed == list(SIZES[: len(timed)])  # all of them, where no other program takes the two seconds
    assert wire["draft"]["ms"][0][1] > 0
    (profile,) = profiles(tmp_path)
    assert wire["profile"]["file"] == str(profile)
    assert wire["profile"]["is_kept"]
    kept = json.loads(profile.read_text())["prices"]["rows"]
    assert [int(rows) for rows in kept] == timed
    assert kept[str(timed[-1])] == pytest.approx(wire["target"]["ms"][-1][1] / 1e3)
    for lone in (1, 4):
        told = staircase({**wire, "profile": {**wire["profile"], "lone": lone}}, SurveyRequest())
        assert ("a token alone is given a pass of 4 rows" in told) == (lone == 4)


@needs_pair
def test_the_staircase_is_shown(tmp_path: Path) -> None:
    done = call(tmp_path, "calibrate", "storyteller", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    rows = [line.split() for line in text.splitlines() if "█" in line]
    assert [int(row[0]) for row in rows] == list(SIZES[: len(rows)])
    assert rows[0][3] == "1.00"
    assert "draft, 1 thread: a token " in text
    assert f"kept in {profiles(tmp_path)[0]}" in text
    assert b"\x1b" not in done.stdout


@needs_pair
def test_too_little_time_is_said(tmp_path: Path) -> None:
    done = call(tmp_path, "calibrate", "storyteller", "-d", "none", "--seconds", "0.000001")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert "not measured within 1e-06 s, or more than a pass takes: 2 to 128 rows" in text
    assert "no draft" in text


@needs_pair
def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = call(tmp_path / "file", "calibrate", "storyteller", "--seconds", "0.2", "--json")
    assert done.returncode == 0
    assert done.stderr.decode().count("cannot be written") == 1
    wire = json.loads(done.stdout)
    assert wire["target"]["ms"][0][1] > 0
    assert not wire["profile"]["is_kept"]


BAD = {
    "nothing": (("calibrate",), 2, "name a pair to calibrate"),
    "both": (("calibrate", "storyteller", "--machine"), 2, "--machine measures the machine"),
    "two pairs": (("calibrate", "a", "b"), 2, "one pair at a time"),
    "the machine's context": (("calibrate", "--machine", "--ctx", "64"), 2, "--machine has no --ctx"),
    "the machine's time": (("calibrate", "--machine", "--seconds", "5"), 2, "--machine has no --seconds"),
    "no time": (("calibrate", "storyteller", "--seconds", "0"), 2, "--seconds"),
    "not a time": (("calibrate", "storyteller", "--seconds", "nan"), 2, "--seconds"),
    "no such pair": (("calibrate", "nothere"), 3, "nothere"),
    "no such file": (("calibrate", "/nowhere/t.gguf"), 3, "/nowhere/t.gguf"),
    "no model": (("calibrate", "{text}"), 5, "not a valid GGUF file"),
    "an unknown cache": (("calibrate", "storyteller", "--kv", "f8"), 2, "--kv"),
    "doctor of two": (("doctor", "a", "b"), 2, "one pair at a time"),
    "doctor of no pair": (("doctor", "nothere"), 3, "nothere"),
    "doctor of no model": (("doctor", "{text}"), 5, "not a valid GGUF file"),
    "a time without a pair": (("doctor", "--seconds", "5"), 2, "--seconds is about a pair"),
    "a draft without a pair": (("doctor", "--draft", "none"), 2, "--draft is about a pair"),
    "doctor without time": (("doctor", "storyteller", "--seconds", "-1"), 2, "--seconds"),
    "a context too small": (("doctor", "storyteller", "--ctx", "16"), 8, "the context holds 16"),
}


@needs_pair
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(tmp_path: Path, case: str) -> None:
    text = tmp_path / "text.gguf"
    text.write_text("Once upon a time\n" * 100)
    args, code, words = BAD[case]
    line = assert_one_line(call(tmp_path, *[arg.format(text=text) for arg in args]), code, words)
    assert_advice(line)
    assert not profiles(tmp_path) or case == "a context too small"


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[bytes]:
    return call(tmp_path_factory.mktemp("home"), "doctor", "storyteller", "--seconds", "30", "--json")


@needs_pair
def test_a_pair_is_examined(examined: subprocess.CompletedProcess[bytes]) -> None:
    """Every cause has its line; figures agree with each other."""
    assert examined.returncode == 0, examined.stderr
    wire = json.loads(examined.stdout)
    assert (wire["schema"], wire["is_complete"]) == ("localspec.doctor/1", True)
    checks = {one["name"]: one for one in wire["checks"]}
    assert tuple(checks) == CAUSES
    assert {one["state"] for one in wire["checks"]} <= {"ok", "note", "bad"}
    assert checks["rollback"]["facts"] == {"can_rollback": True}
    passes, draft = dict(wire["measured"]["passes"]["target"]["ms"]), checks["draft"]["facts"]
    assert draft["target_ms"] == passes[draft["target_rows"]]
    assert draft["draft_ms"] == dict(wire["measured"]["passes"]["draft"]["ms"])[1]
    assert draft["ratio"] == pytest.approx(draft["draft_ms"] / draft["target_ms"])
    tried = wire["measured"]["acceptance"]
    assert {"greedy", "sampled"} <= set(tried)
    for one in tried.values():
        assert 0 < one["accepted"] < one["judged"]
        assert one["share"] == one["accepted"] / one["judged"]
    raced = wire["measured"]["race"]["speedup"]
    if all(one["speculative"]["acceptance"] is None for one in wire["measured"]["race"]["rounds"]):
        assert wire["speedup"] is raced is None
        assert wire["verdict"].startswith("auto drafted nothing here, so there is no speedup")
    elif wire["speedup"] is None:  # the rounds do not agree, or lie far apart, as on a busy machine
        assert re.search("not show whether speculation pays here|too far apart for", wire["verdict"])
    else:
        assert wire["speedup"] == raced["median"] > 0
        assert f"{wire['speedup']:.2f}× plain" in wire["verdict"]


@needs_pair
def test_without_a_draft(tmp_path: Path) -> None:
    done = call(tmp_path, "doctor", "storyteller", "-d", "none", "--seconds", "5")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert [line.split()[1] for line in lines if line.split()[:1] in (["ok"], ["note"], ["BAD"])] == list(CAUSES)
    assert "not measured: the pair has no draft model" in done.stdout.decode()
    verdicts = "× plain|too far apart for|auto drafted nothing here, so there is no speedup|not show whether"
    assert re.search(verdicts, lines[0])


def test_models_that_keep_a_state(tmp_path: Path) -> None:
    """They draft for each other: that both keep a state is no finding."""
    target, draft = (write_random_gguf(tmp_path / f"{name}.gguf", MAMBA, seed) for seed, name in enumerate("td"))
    done = call(tmp_path, "doctor", f"{target}+{draft}", "--seconds", "2", "--json")
    assert done.returncode == 0, done.stderr
    checks = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    assert checks["rollback"]["state"] != "bad"
    assert "cannot take tokens back" not in checks["rollback"]["message"]


@needs_pair
@pytest.mark.parametrize("command", ["calibrate", "doctor"])
def test_an_interruption_ends_it(tmp_path: Path, command: str) -> None:
    """Ctrl-C: exit code 130, one object, within a moment; a calibration that did not end keeps nothing of it."""
    args = [*REAL, command, "storyteller", "--seconds", "3600", "--json"]
    env = environment({"LOCALSPEC_HOME": str(tmp_path)})
    subprocess.run([*REAL, "run", "storyteller", "-n", "1", "Once"], env=env, cwd=ROOT, check=True, capture_output=True)
    child = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=ROOT)
    deadline, started = time.monotonic() + TIMEOUT, Path(f"/proc/{child.pid}/task/{child.pid}/children")
    while not started.read_text():  # the engine's process
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(1)  # most likely the pair is loaded by now; whatever is interrupted, the same holds
    before = profiles(tmp_path)[0].read_bytes()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=TIMEOUT)
    assert child.returncode == 130, err
    wire = json.loads(out)
    assert wire.get("error", {}).get("kind") == "interrupted" or wire["is_complete"] is False
    assert command == "doctor" or profiles(tmp_path)[0].read_bytes() == before
    assert err.endswith(b"interrupted\n")
    assert b"Traceback" not in err


@needs_pair
def test_on_a_terminal(tmp_path: Path) -> None:
    """Progress is erased, marks are coloured, and the terminal is left as it was."""
    terminal = Terminal(
        ["doctor", "storyteller", "--seconds", "2"], program=REAL, env={"LOCALSPEC_HOME": str(tmp_path)}, columns=200
    )
    assert terminal.wait() == 0
    verdict, empty, *causes = terminal.text.splitlines()
    assert verdict.startswith(("auto ", "speed not measured"))
    assert empty == ""
    assert causes[0].startswith(("ok", "note", "BAD"))
    assert "timing passes" not in terminal.text
    assert any("timing passes of the target" in "".join(frame) for frame in terminal.frames)
    terminal.assert_clean()
