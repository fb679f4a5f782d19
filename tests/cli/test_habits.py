"""The habits of ollama, llama.cpp and llm: each is understood, or one line says what to type here."""

import re
from pathlib import Path
from typing import Any

import click
import pytest

from localspec.cli.app import commands
from localspec.cli.habits import is_model, model_first
from localspec.cli.options import collected
from localspec.cli.run import run as run_command
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.cli.harness import PAIR, Terminal, needs_pair, run
from tests.recorded import recorded_expressions

TARGET, DRAFT = PAIR / "target-q8_0.gguf", PAIR / "draft-q8_0.gguf"


def given(*words: str) -> dict[str, Any]:
    """Return what click collects for `localspec run` with these words."""
    with run_command.make_context("run", list(words), parent=click.Context(click.Group("localspec"))) as ctx:
        return ctx.params


def test_a_file_may_have_blanks_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my model.gguf").touch()
    for word in (str(tmp_path / "my model.gguf"), "~/my model.gguf"):
        assert model_first((word, "hi")) == (word, ("hi",))
    assert model_first(("what is in my model.gguf", "hi")) == (None, ("what is in my model.gguf", "hi"))


@needs_pair
@pytest.mark.parametrize("words", [["run"], ["run", "storyteller"], ["run", "-m", "storyteller"]])
def test_run_without_a_prompt_opens_a_chat_on_a_terminal(words: list[str]) -> None:
    terminal = Terminal([*words, "-q", "--temp", "0"], env={"ACCESSIBLE": "1"})
    terminal.wait_for(lambda: ">" in terminal.text or "you" in terminal.text.lower())
    terminal.type("/quit\r")
    assert terminal.wait() == 0


# Spellings that mean the same, with the setting that they change.
SAME = [
    (LoadSettings, "-ngl 99", "gpu", "99"),
    (LoadSettings, "--n-gpu-layers 7", "gpu", "7"),
    (LoadSettings, "-ngld 5", "draft_gpu", "5"),
    (LoadSettings, "-t 3", "threads", 3),
    (LoadSettings, "--ctx-size 512", "ctx", 512),
    (LoadSettings, "--ctx-size=512", "ctx", 512),
    (LoadSettings, "-ctk q8_0 -ctv q8_0", "kv_type", "q8_0"),
    (LoadSettings, "-fa off", "flash_attn", "off"),
    (LoadSettings, "--no-mmap", "mmap", False),
    (Sampling, "--top-k 7", "top_k", 7),
    (Sampling, "--typical 0.5", "typical_p", 0.5),
    (Sampling, "--repeat-last-n 5", "penalty_last_n", 5),
    (Sampling, "-l 13-1.5", "logit_bias", ((13, -1.5),)),
    (Speculation, "--draft-max 5", "k", 5),
    (Speculation, "--draft-n 5", "k", 5),
    (Request, "--n-predict 5", "max_tokens", 5),
    (Request, "--predict 5", "max_tokens", 5),
    (Request, "-r User:", "stop", ("User:",)),
    (Request, "--chat-template chatml", "template", "chatml"),
]


@pytest.mark.parametrize(("holder", "typed", "field", "value"), SAME, ids=[typed for _, typed, _, _ in SAME])
def test_a_spelling_that_means_the_same(holder: type[Any], typed: str, field: str, value: object) -> None:
    parts = {"target": "t"} if holder is LoadSettings else {}
    assert getattr(collected(holder, given(*typed.split(), "hi"), **parts), field) == value


@pytest.mark.parametrize(
    ("typed", "parameter", "value"),
    [
        ("-hf org/repo", "model", "org/repo"),
        ("-md draft.gguf", "draft", "draft.gguf"),
        ("-hfd org/repo", "draft", "org/repo"),
        ("-sys Brief.", "system", "Brief."),
        ("-p Hello", "text", "Hello"),
    ],
)
def test_a_spelling_of_another_option(typed: str, parameter: str, value: object) -> None:
    assert given(*typed.split(), "hi")[parameter] == value


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "3", "more"],
        ["-c", "127", "more"],
        ["-s", "-5 is cold", "hi"],
        ["--", "-c", "4096"],
        ["-sbe brief", "hi"],
    ],
)
def test_what_can_be_meant_is_left_alone(words: list[str]) -> None:
    assert given(*words)


def test_a_draft_may_be_named_by_its_kind() -> None:
    assert is_model("storyteller+eagle3")
    assert is_model("big.gguf+mtp")
    assert not is_model("storyteller+nothing")
    assert not is_model("mtp")


GROUPS = [(), *((name,) for name, _ in ((path[0], path) for path, _ in commands() if len(path) > 1))]


@pytest.mark.parametrize("path", sorted(set(GROUPS)), ids=lambda path: " ".join(path) or "localspec")
def test_the_help_of_a_group_has_whole_sentences(path: tuple[str, ...]) -> None:
    """One line for each command at 80 columns, which ends as a sentence does."""
    shown = run(*path, "--help", env={"COLUMNS": "80"}).stdout.decode()
    lines = shown.partition("Commands:\n")[2].splitlines()
    assert lines
    for line in lines:
        assert re.match(r"  [a-z]", line), f"{line!r} goes on from the line above"
        assert line.endswith("."), line
        assert not line.endswith("..."), line
        assert len(line) < 80


test_what_is_recorded = recorded_expressions(__file__, model_first)
