"""`localspec plan --measure` on the bundled pair: it loads, times, keeps what passes take, and judges by that."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

from tests.cli.harness import (
    PAIR,
    REAL,
    ROOT,
    TIMEOUT,
    Terminal,
    assert_one_line,
    children,
    environment,
    json_of,
    needs_pair,
    run_engine,
    wait_for,
)

PLAN = ("plan", "storyteller", "-d", str(PAIR / "draft-q8_0.gguf"))  # without the heads beside it
MEASURED = (*PLAN, "--measure", "--seconds", "0.5")
pytestmark = needs_pair


def call(home: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    return run_engine(*args, env={"LOCALSPEC_HOME": str(home)})


def profiles(home: Path) -> list[Path]:
    return list((home / "cache" / "profiles").glob("*.json"))


def test_a_pair_is_measured_and_the_figures_kept(tmp_path: Path) -> None:
    first = json_of(call(tmp_path, *PLAN, "--json"))
    assert "is not expected to" in first["verdict"] or "is expected to" in first["verdict"]
    done = call(tmp_path, *MEASURED)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    verdicts = ("pays here: ", "gains little here: ", "does not pay here: copies only.")
    assert lines[0].startswith(tuple(f"draft-q8_0.gguf {each}" for each in verdicts))
    assert lines[1].startswith("It fits: ")
    (profile,) = profiles(tmp_path)
    assert json.loads(profile.read_text())["prices"]["rows"]["1"] > 0
    later = json_of(call(tmp_path, *PLAN, "--json"))
    assert later["verdict"] == lines[0], "kept: a later plan says the same"
    (worth,) = [row["worth"] for row in (later["chosen"], *later["alternatives"]) if row["draft"] is not None]
    assert worth["is_measured"]
    assert f"{worth['speedup']:.2f} times the speed without a draft" in done.stdout.decode()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = call(tmp_path / "file", *MEASURED)
    assert done.returncode == 0
    assert done.stderr.decode().count("so nothing of draft-q8_0.gguf is kept") == 1


def test_another_machine_and_files_elsewhere_are_not_measured(tmp_path: Path) -> None:
    assert_one_line(call(tmp_path, "plan", "storyteller", "--measure", "--ram", "8G"), 2, "another one is described")
    assert_one_line(call(tmp_path, "plan", "qwen3-8b", "--measure", "--offline"), 3, "localspec pull")
    for seconds in ("0", "nan"):
        assert_one_line(call(tmp_path, "plan", "storyteller", "--measure", "--seconds", seconds), 2, "--seconds")
    assert not profiles(tmp_path)


def test_an_interruption_ends_it(tmp_path: Path) -> None:
    """Ctrl-C: exit code 130 within a moment, and nothing is kept of a measurement that did not end."""
    args = [*REAL, "plan", "storyteller", "--measure", "--seconds", "3600"]
    env = environment({"LOCALSPEC_HOME": str(tmp_path)})
    subprocess.run([*REAL, "run", "storyteller", "-n", "1", "Once"], env=env, cwd=ROOT, check=True, capture_output=True)
    child = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=ROOT)
    wait_for(lambda: children(child.pid))  # the engine's process
    time.sleep(1)  # most likely the pair is loaded by now; whatever is interrupted, the same holds
    before = profiles(tmp_path)[0].read_bytes()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=TIMEOUT)
    assert (child.returncode, out, err) == (130, b"", b"stopped\n")
    assert profiles(tmp_path)[0].read_bytes() == before


def test_on_a_terminal(tmp_path: Path) -> None:
    """Progress is erased, and the terminal is left as it was."""
    env = {"LOCALSPEC_HOME": str(tmp_path)}
    terminal = Terminal([*MEASURED], program=REAL, env=env, columns=80, keeps_frames=True)
    assert terminal.wait() == 0
    assert terminal.text.startswith("draft-q8_0.gguf ")
    assert "timing passes" not in terminal.text
    assert any("timing passes of the target" in "".join(frame) for frame in terminal.frames)
    terminal.assert_clean()
