"""`localspec drafts`: made, refused, listed and removed; a pair finds the copy."""

import json
import subprocess
from pathlib import Path

from localspec.models.gguf.shards import read_model
from localspec.models.low_bit import low_bit_copy
from tests.cli.harness import assert_one_line, run_engine
from tests.heads.reference import TARGET

DRAFT = TARGET.with_name("draft-q8_0.gguf")


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


def test_a_copy_of_a_draft_in_four_bits_drafts_in_its_place(tmp_path: Path) -> None:
    """All of its matrices are of the type that a processor's kernels read fastest, the output matrix too."""
    target, draft = (tmp_path / f"{name}.gguf" for name in ("target", "draft"))
    target.symlink_to(TARGET)
    draft.symlink_to(DRAFT)
    done = call(tmp_path, "drafts", "make", str(draft), "--bits", "4", "--tokens", "300")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.decode().splitlines()
    (file,) = (tmp_path / "data" / "drafts").glob("draft-4bit-*.gguf")
    assert first.startswith(f"{file}: Q4_0, "), first
    assert first.endswith(" % of its model")
    assert second == f"try: localspec race TARGET+{file} PROMPT"
    kinds = {tensor.type for tensor in read_model(file).tensors if len(tensor.shape) == 2}
    assert kinds == {"Q4_0"}
    (line,) = call(tmp_path, "drafts", "list").stdout.decode().splitlines()
    assert line.endswith("Q4_0, with importance matrix")
    alone = call(tmp_path, "run", "-m", f"{draft}+low-bit", "Once")
    assert_one_line(alone, 3, f"{draft} has no low-bit copy", f"to make one: localspec drafts make {draft}")
    answer = call(tmp_path, "run", "-m", f"{target}+auto", "--raw", "Once", "-n", "4", "--temp", "0", "--events", "-")
    assert answer.returncode == 0, answer.stderr
    assert str(file) in answer.stdout.decode()
    again = call(tmp_path, "drafts", "make", str(draft), "--bits", "4", "--tokens", "300", "--json")
    assert json.loads(again.stdout).keys() == {
        "stage", "path", "kind", "bytes", "target_bytes", "has_matrix", "seconds", "warning",
    }  # fmt: skip


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
