"""`localspec heads train` and `heads eval`: options, progress, figures."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.suites import load_suite
from localspec.cli import heads_train
from localspec.errors import UsageError
from localspec.settings.lone_jobs import TrainOptions
from tests.cli.harness import PAIR, assert_one_line, run_engine
from tests.heads.reference import TARGET, write_random_head
from tests.integration.gguf_models import TINY, random_gguf

DONE = {"stage": "done", "path": "/heads/h.gguf", "kind": "eagle3", "bytes": 2_000_000, "accepted": [0.5, 0.25]}
EVENTS = [
    {"stage": "text", "part": "held", "tokens": 80, "of": 100, "seconds_left": 70.0},
    {"stage": "timing"},
    {"stage": "training", "updates": 20, "of": 40, "seconds_left": 9.0, "loss": 1.5, "accepted": [0.4, 0.2]},
    {"stage": "training", "updates": 40, "of": 40, "seconds_left": 0.0, "loss": None, "accepted": []},
    DONE,
]


def call(home: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    return run_engine("heads", *args, env={"LOCALSPEC_HOME": str(home)})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[TrainOptions]:
    """Play a training; return the options of each."""
    found: list[TrainOptions] = []

    def played(options: TrainOptions) -> Iterator[dict[str, Any]]:
        found.append(options)
        yield from EVENTS

    monkeypatch.setattr(heads_train, "answers", played)
    return found


def test_a_training_tells_its_figures(tmp_path: Path, asked: list[TrainOptions]) -> None:
    done = call(tmp_path, "train", str(TARGET), "--minutes", "5", "--tokens", "1000")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.decode().splitlines()
    assert first == "/heads/h.gguf: eagle3, 2.0 MB, 1.50, 1.75 tokens a pass with 1 to 2 guesses"
    assert second == f"try: localspec race {TARGET}+/heads/h.gguf PROMPT"
    assert b"after 20 updates: 1.40, 1.60 tokens a pass" in done.stderr
    (options,) = asked
    questions = [prompt.text for name in ("spec-bench", "gsm8k", "humaneval") for prompt in load_suite(name).prompts]
    folder = str(tmp_path / "cache" / "heads")  # the target has a chat template
    assert options == TrainOptions(str(TARGET), "", folder, tuple(questions), tokens=1000, minutes=5.0)
    assert json.loads(call(tmp_path, "train", str(TARGET), "--json").stdout) == DONE


def test_a_target_without_a_chat_template_continues_stories(tmp_path: Path, asked: list[TrainOptions]) -> None:
    assert call(tmp_path, "train", str(random_gguf(TINY))).returncode == 0
    assert asked[0].prompts == ()
    assert asked[0].raw == tuple(prompt.text for prompt in load_suite("stories").prompts)


def test_prompts_come_from_a_file(tmp_path: Path, asked: list[TrainOptions]) -> None:
    (tmp_path / "p.txt").write_text("one\n\ntwo\n")
    (tmp_path / "p.jsonl").write_text('{"prompt": "three"}\n{"prompt": "four"}\n')
    for name in ("p.txt", "p.jsonl"):
        assert call(tmp_path, "train", str(TARGET), "--prompts", str(tmp_path / name)).returncode == 0
    assert [options.prompts for options in asked] == [("one", "two"), ("three", "four")]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("-o", "/nowhere/head.gguf"), 3, "no folder /nowhere"),
        (("--kind", "hydra"), 2, "hydra"),
        (("--prompts", "/nowhere/p.txt"), 3, "/nowhere/p.txt"),
        (("--tokens", "5"), 2, "tokens"),
    ],
)
def test_wrong_options_are_one_line(
    tmp_path: Path, asked: list[TrainOptions], args: tuple[str, ...], code: int, said: str
) -> None:
    done = call(tmp_path, "train", str(TARGET), *args)
    assert_one_line(done, code)
    assert said in done.stderr.decode()
    assert not asked


def test_an_error_of_the_training_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(options: TrainOptions) -> Iterator[dict[str, Any]]:
        raise UsageError("training needs the package torch", hint="pip install 'localspec[train]'")
        yield {}

    monkeypatch.setattr(heads_train, "answers", refused)
    assert_one_line(call(tmp_path, "train", str(TARGET)), 2)


def test_a_training_that_dies_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.worker.lone_jobs.COMMAND", (sys.executable, "-c", "import os; os._exit(3)"))
    done = call(tmp_path, "train", str(TARGET))
    assert_one_line(done, 1)
    assert "the training ended" in done.stderr.decode()
    assert "Repeat the command" in done.stderr.decode()


def test_eval_counts_the_tokens_of_a_pass(tmp_path: Path) -> None:
    head = write_random_head(tmp_path / "head.gguf", "eagle3")
    (tmp_path / "p.txt").write_text("Once upon a time\nThe fox said\n")
    pair = f"{TARGET}+{head}"
    done = call(tmp_path, "eval", pair, "--prompts", str(tmp_path / "p.txt"), "-n", "12", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], [row["k"] for row in found["counted"]]) == ("eagle3", [1, 2, 3, 4])
    assert all(row["tokens"] == 24 and row["passes"] <= 24 for row in found["counted"])
    lines = call(tmp_path, "eval", pair, "--prompts", str(tmp_path / "p.txt"), "-n", "12").stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    for wrong in (str(TARGET), f"{TARGET}+{PAIR / 'draft-q8_0.gguf'}"):
        assert call(tmp_path, "eval", wrong).returncode in (2, 6)
