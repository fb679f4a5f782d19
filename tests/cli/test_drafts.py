"""`localspec drafts`: made, refused, listed and removed; a pair finds the copy."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from localspec.models.gguf.shards import read_model
from localspec.models.low_bit import low_bit_copy
from tests.cli.harness import assert_one_line, run_engine
from tests.heads.reference import TARGET


def call(home: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    return run_engine(*args, env={"LOCALSPEC_HOME": str(home)})


def test_a_copy_is_made_found_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "drafts"
    none = f"no copies in {folder}; localspec drafts make TARGET makes one\n"
    assert call(tmp_path, "drafts", "list").stdout.decode() == none
    missing = call(tmp_path, "run", "-m", f"{TARGET}+low-bit", "Once")
    assert_one_line(missing, 3, f"{TARGET} has no low-bit copy", f"to make one: localspec drafts make {TARGET}")
    done = call(tmp_path, "drafts", "make", str(TARGET), "--tokens", "600", "--skip", "3", "--force")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.decode().splitlines()
    (file,) = folder.glob("*.gguf")
    kind = first.removeprefix(f"{file}: ").split(",")[0]  # the one that is predicted to be faster here
    assert kind in ("Q2_K", "IQ2_XXS")
    assert second == f"try: localspec race {TARGET}+low-bit PROMPT"
    (line,) = call(tmp_path, "drafts", "list").stdout.decode().splitlines()
    assert line.split(maxsplit=3)[0] == file.stem
    assert line.endswith(f"{kind}, 7 of 8 layers, with importance matrix")
    made = json.loads(call(tmp_path, "drafts", "list", "--json").stdout)["drafts"]
    assert [(one["file"], one["layers"], one["was_predicted_to_pay"]) for one in made] == [(str(file), 7, False)]
    copy = low_bit_copy(read_model(file))
    assert copy is not None
    assert (copy.is_of(TARGET), copy.is_of(file)) == (True, False)
    answer = call(
        tmp_path, "run", "-m", f"{TARGET}+low-bit", "--raw", "Once", "-n", "16", "--temp", "0", "--json",
        "--method", "draft-model",
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert b"parameters" not in answer.stderr  # as many, but fewer bytes: no warning
    assert_one_line(call(tmp_path, "drafts", "rm", file.stem), 11, "would be removed", "-y removes without asking")
    assert call(tmp_path, "drafts", "rm", "-y", file.stem).returncode == 0
    assert not file.exists()


def test_where_it_cannot_pay_it_is_refused_with_the_figure(tmp_path: Path) -> None:
    done = call(tmp_path, "drafts", "make", str(TARGET))
    assert_one_line(
        done, 11, "would not pay here: drafting with it is predicted at 0.", "--force makes it all the same"
    )
    assert not (tmp_path / "data" / "drafts").exists()


def test_wrong_names_and_layers_are_told(tmp_path: Path) -> None:
    assert_one_line(call(tmp_path, "drafts", "rm", "x"), 3, "no low-bit copy x", "try: localspec drafts list")
    wrong = call(tmp_path, "drafts", "make", str(TARGET), "--skip", "0", "--force")
    assert_one_line(wrong, 2, "names no layers between the first and the last of 8", "--skip 4-5")
