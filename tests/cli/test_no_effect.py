"""What has no effect is told in one line: settings beside others, and a draft that no method will use."""

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.settings import folders
from tests.cli.harness import PAIR, REAL, localspec, needs_pair, run_engine

TARGET, DRAFT = PAIR / "target-q8_0.gguf", PAIR / "draft-q8_0.gguf"


@needs_pair
def test_earlier_answers_are_copied_from(tmp_path: Path) -> None:
    said = ("run", "-m", str(TARGET), "-d", "none", "--temp", "0", "-n", "60", "--json", "--method", "copy")

    def answered(*words: str) -> tuple[str, int, list[str]]:
        found = json.loads(run_engine(*said, *words, "Once upon a time", env={"LOCALSPEC_HOME": str(tmp_path)}).stdout)
        return found["text"], found["spec"]["passes"], [each["message"] for each in found["warnings"]]

    hidden = answered("--no-save", "--corpus", "answers")
    assert hidden[2] == [], "there is no earlier answer, and that is no news"
    text, n_plain, _ = answered()
    for _ in range(20):  # the index is built beside the answer, and kept
        copied, n_passes, warnings = answered("--no-save", "--corpus", "answers")
        assert (copied, warnings) == (text, [])
        if n_passes < n_plain / 2:
            return
    pytest.fail("no earlier answer was copied from")


@needs_pair
def test_a_prediction_is_read_from_its_file_and_copied_from(tmp_path: Path) -> None:
    def answered(*words: str) -> dict[str, Any]:
        settings = ("--temp", "0", "-n", "24", "--no-save", "--json")
        done = run_engine("run", "-m", str(TARGET), "-d", "none", *settings, *words)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    text = answered("--method", "plain", "hi")["text"]
    (tmp_path / "answer.txt").write_text(text)
    found = answered("--method", "copy", "--prediction", f"@{tmp_path}/answer.txt", "hi")
    assert found["text"] == text
    assert found["spec"]["passes"] < answered("--method", "copy", "hi")["spec"]["passes"]


def test_no_home_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(_name: str) -> None:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr("platformdirs.user_config_path", homeless)
    monkeypatch.setattr(folders.os, "environ", {"PATH": ""})
    with pytest.raises(folders.ResourceError, match="no home folder"):
        folders.config_folder()


@needs_pair
def test_a_warning_beside_the_text_is_told_below_it(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    told = ("run", "--no-save", "-m", f"{TARGET}", "-n", "5", "--corpus", str(tmp_path / "empty.txt"), "Once")
    done = localspec(*told, program=["sh", "-c", 'exec "$@" 2>&1', "sh", *REAL])
    text, _, below = done.stdout.decode().partition("\n")
    assert text
    assert below == "localspec: warning: the corpus has no text\n"
