"""Raw prompts with a gap, settings of the template from every source, and reasoning in every form of output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.cli.option_sources import options_of
from localspec.cli.run import run as run_command
from localspec.settings.config_file import config_file, read_configuration
from localspec.settings.request import Request
from tests.cli.fakes import FakeWorker
from tests.cli.harness import Terminal, assert_one_line, localspec, needs_pair, run, run_engine
from tests.cli.test_declared_settings import collected_from

THOUGHT = json.dumps(["<thi", "nk>Let", " me see.", "</", "think>\n\nYes", ", it is."])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Return the requests that reach the worker."""
    made = FakeWorker()
    monkeypatch.setattr("tests.cli.harness.from_environment", lambda: made)
    return made.requests


def test_an_unknown_template_lists_the_known_ones() -> None:
    """A name may be one of the model's own, so it is looked for when the model is loaded."""
    done = localspec("run", "x", "--template", "gema")
    assert_one_line(done, 3, "'gema'", "chatml, ", "gemma", "llama3", "mistral")


def test_a_suffix_makes_a_raw_prompt_with_a_gap(asked: list[Request], tmp_path: Path) -> None:
    (tmp_path / "after.py").write_bytes(b"\r\nreturn x\n")
    assert run("run", "def f():", "--suffix", "@after.py", cwd=tmp_path).returncode == 0
    assert (asked[0].prompt, asked[0].suffix, asked[0].messages) == ("def f():", "\nreturn x", ())
    assert run("run", "--suffix", "", "", cwd=tmp_path).returncode == 0
    assert (asked[1].prompt, asked[1].suffix) == ("", "")
    assert_one_line(run("run", "x", "--suffix", "y", "-s", "z"), 2, "--raw takes no --system")
    assert_one_line(run("run", "x", "--suffix", "@none.py", cwd=tmp_path), 3, "--suffix @none.py")
    assert_one_line(run("run", "x", "--suffix", "y", "-c"), 2, "cannot continue a conversation")


def test_what_begins_a_conversation_may_be_continued(asked: list[Request]) -> None:
    assert run("run", "Once", "--no-save").returncode == 0
    assert asked[0].continues
    assert asked[0].prompt is None


def test_template_arguments_come_from_every_source(
    asked: list[Request], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"LOCALSPEC_HOME": str(tmp_path), "LOCALSPEC_TEMPLATE_ARG": "effort=low\nn=[1,2]"}
    assert run("run", "hi", env=env).returncode == 0
    assert (
        run("run", "hi", "--template-arg", "effort=high", "--template-arg", 'deep={"a": true}', env=env).returncode == 0
    )
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text(
        'think = "off"\n[template-arg]\neffort = "low"\nlevel = 2\n[template-arg.deep]\na = [true]\n'
    )
    assert run("run", "hi", env={"LOCALSPEC_HOME": str(tmp_path)}).returncode == 0
    assert [request.template_args for request in asked] == [
        (("effort", "low"), ("n", (1, 2))),
        (("effort", "high"), ("deep", {"a": True})),
        (("effort", "low"), ("level", 2), ("deep", {"a": (True,)})),
    ]
    assert [request.think for request in asked] == ["auto", "auto", "off"]


def test_a_table_of_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    config_file().parent.mkdir()
    config_file().write_text("[run]\ntemplate-arg = { effort = 1 }\n[chat.template-arg]\neffort = 2\n")
    assert [(entry.path, entry.value, entry.line) for entry in read_configuration().entries] == [
        (("run", "template-arg"), ["effort=1"], 2),
        (("chat", "template-arg"), ["effort=2"], 4),
    ]
    assert collected_from(Request).template_args == (("effort", 1),)
    assert "template-arg" in options_of(run_command)


def test_reasoning_is_no_part_of_the_answer() -> None:
    done = run("run", "hi", env={"FAKE_PASSES": THOUGHT})
    assert done.stdout == b"Yes, it is.\n"
    made = json.loads(run("run", "hi", "--json", env={"FAKE_PASSES": THOUGHT}).stdout)
    assert (made["text"], made["reasoning"]) == ("Yes, it is.", "Let me see.")
    lines = [
        json.loads(line) for line in run("run", "hi", "--events", env={"FAKE_PASSES": THOUGHT}).stdout.splitlines()
    ]
    steps = [line for line in lines if line["type"] == "step"]
    assert "".join(step["reasoning"] for step in steps) == "Let me see."
    assert "".join(step["text"] for step in steps) + lines[-1]["tail"] == "Yes, it is."


def test_an_answer_without_reasoning_has_none() -> None:
    made = json.loads(run("run", "hi", "--json", env={"FAKE_PASSES": '["a </think> b"]'}).stdout)
    assert (made["text"], made["reasoning"]) == ("a </think> b", None)


def test_reasoning_alone_is_kept_and_told() -> None:
    """It was cut by -n: the answer is empty, and what was thought is not lost."""
    made = json.loads(run("run", "hi", "--json", env={"FAKE_PASSES": '["<think>Let", " me"]'}).stdout)
    assert (made["text"], made["reasoning"]) == ("", "Let me")


def test_the_line_chat_keeps_the_answer_alone(tmp_path: Path) -> None:
    env = {"FAKE_PASSES": THOUGHT, "LOCALSPEC_HOME": str(tmp_path)}
    assert b"think>" not in run("chat", "--plain", stdin=b"hi\n", env=env).stdout
    shown = run("logs", "show", env={"LOCALSPEC_HOME": str(tmp_path)}).stdout.decode()
    assert "Yes, it is." in shown
    assert "think>" not in shown


@pytest.mark.parametrize(("args", "is_shown"), [([], True), (["-q"], False)])
def test_a_terminal_shows_reasoning_before_the_answer(args: list[str], is_shown: bool) -> None:
    terminal = Terminal(["run", "hi", *args], env={"FAKE_PASSES": THOUGHT})
    terminal.wait()
    text = terminal.text
    assert ("thinking: Let me see." in text) == is_shown
    assert "Yes, it is." in text
    assert "</think>" not in text


@needs_pair
@pytest.mark.parametrize("option", ["--template", "--chat-template"])
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("{% for m in messages %}", 6, "Unexpected end of template"),
        ("{{ messages[9].content }}", 6, "no element 9"),
        ("", 2, " is empty"),
        ("{{ raise_exception('not today') }}", 6, "not today"),
    ],
)
def test_a_template_that_cannot_be_used_is_told_by_its_file(
    option: str, text: str, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.jinja").write_text(text)
    done = run_engine("run", "hi", "-n", "1", option, "mine.jinja", cwd=tmp_path)
    assert_one_line(done, code, "--template mine.jinja ", said)
