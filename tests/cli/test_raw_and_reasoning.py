"""Raw prompts with a gap, settings of the template from every source, and reasoning in every form of output."""

import json
from pathlib import Path

import pytest

from localspec.cli.option_sources import options_of
from localspec.cli.run import run as run_command
from localspec.settings.config_file import config_file, read_configuration
from localspec.settings.request import Request
from tests.cli.fakes import FakeWorker
from tests.cli.harness import Terminal, run
from tests.cli.test_declared_settings import collected_from

THOUGHT = json.dumps(["<thi", "nk>Let", " me see.", "</", "think>\n\nYes", ", it is."])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    made = FakeWorker()
    monkeypatch.setattr("tests.cli.harness.from_environment", lambda: made)
    return made.requests


def test_what_begins_a_conversation_may_be_continued(asked: list[Request]) -> None:
    assert run("run", "Once", "--no-save").returncode == 0
    assert asked[0].continues
    assert asked[0].prompt is None


def test_a_table_of_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    config_file().parent.mkdir()
    config_file().write_text("[run]\ntemplate-arg = { effort = 1 }\n[chat.template-arg]\neffort = 2\n")
    assert read_configuration() == {("run", "template-arg"): ["effort=1"], ("chat", "template-arg"): ["effort=2"]}
    assert collected_from(Request).template_args == (("effort", 1),)
    assert "template-arg" in options_of(run_command)


@pytest.mark.parametrize(("args", "is_shown"), [([], True), (["-q"], False)])
def test_a_terminal_shows_reasoning_before_the_answer(args: list[str], is_shown: bool) -> None:
    terminal = Terminal(["run", "hi", *args], env={"FAKE_PASSES": THOUGHT})
    terminal.wait()
    text = terminal.text
    assert ("thinking: Let me see." in text) == is_shown
    assert "Yes, it is." in text
    assert "</think>" not in text
