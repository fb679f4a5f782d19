"""Settings from config.toml and the environment: who wins, what is refused and where that is said, and completion."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from localspec.cli.app import COMPLETE, cli, commands
from localspec.cli.option_sources import ONCE, options_of
from localspec.cli.settings_table import described, read_words
from localspec.conversations.store import Store
from localspec.errors import UsageError
from localspec.settings.config_file import config_file
from localspec.settings.folders import conversations_file
from tests.cli.harness import ROOT, assert_one_line, environment, run

BUNDLED_HEADS = ("eagle1", "eagle3", "mask-tokens", "medusa")
BUNDLED_NAMES = ["plain,storyteller", *(f"plain,storyteller+{head}" for head in BUNDLED_HEADS)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in os.environ:
        if name.startswith("LOCALSPEC_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    return tmp_path


RUN, PRESET, SHOW = ("run", "hi"), ("run", "-P", "p", "hi"), ("config", "show", "--origin")


def test_edit_opens_the_editor_and_checks_afterwards(tmp_path: Path) -> None:
    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\nprintf "temp = 1\\ntmep = 2\\n" > "$1"\n')
    script.chmod(0o755)
    env = {"LOCALSPEC_HOME": str(tmp_path), "VISUAL": str(script)}
    assert_one_line(run("config", "edit", env=env), 2, f"{config_file()}: ", "'tmep'")
    assert config_file().read_text() == "temp = 1\ntmep = 2\n"
    assert_one_line(run("config", "edit", env={**env, "VISUAL": "", "EDITOR": ""}), 11, "no terminal")
    assert_one_line(run("config", "edit", env={**env, "VISUAL": "/none/there"}), 2, "/none/there")


def test_no_two_variables_are_the_same() -> None:
    """A variable for one command is never the one of another option for all."""
    general, own = set(), set()
    for path, command in commands():
        for option in options_of(command).values():
            names = option.variables(path)
            own.add(names[0])
            general |= set(names[1:])
    assert len(own) > len(general) > 50
    assert not own & general


def test_an_option_means_the_same_in_every_command() -> None:
    """A key at the top of the file is for all commands, so the kinds must agree, but for those that are their own."""
    kinds: dict[str, set[str]] = {}
    for _, command in commands():
        for key, option in options_of(command).items():
            if not option.is_own:
                kinds.setdefault(key, set()).add(option.kind)
    kinds["gpu"].discard("choice")  # early-exit tune takes no number of layers
    assert {key: found for key, found in kinds.items() if len(found) > 1} == {}


def complete(*words: str) -> list[str]:
    found = get_completion_class("bash")
    assert found is not None
    asked = found(cli, {}, "localspec", COMPLETE)
    return [f"{item.type},{item.value}" for item in asked.get_completions(list(words[:-1]), words[-1])]


def test_completion_finds_names() -> None:
    config_file().write_text("temp = \n")  # a broken file is no hindrance
    assert complete("r") == ["plain,run", "plain,rm", "plain,rpc-serve", "plain,race", "plain,rank"]
    assert complete("run", "--method", "s") == ["plain,suffix"]
    assert complete("run", "--tree", "dy") == ["plain,dyspec"]
    assert "plain,traversal" in complete("chat", "--verify", "t")
    assert complete("run", "-m", "storyt") == BUNDLED_NAMES
    assert complete("run", "-m", "./x") == ["file,./x"]
    assert complete("race", "storyt") == BUNDLED_NAMES
    assert complete("config", "set", "top-") == ["plain,top-k", "plain,top-p"]
    assert complete("config", "set", "bench.res") == complete("config", "set", "dry-run") == [], "it is not for files"
    with Store.open(conversations_file()) as store:
        kept = [store.create("storyteller").id for _ in range(2)]
    assert sorted(complete("chat", "--session", "")) == sorted(f"plain,{each}" for each in kept)
    assert complete("logs", "show", kept[0]) == [f"plain,{kept[0]}"]
    assert complete("explain", "seq") == ["plain,sequoia"]


def test_completion_needs_no_engine(tmp_path: Path) -> None:
    code = (
        "import sys; from localspec.cli.entry import outcome; outcome([]);"
        "print(sorted({'llama_cpp', 'textual', 'huggingface_hub'} & set(sys.modules)), file=sys.stderr)"
    )
    env = environment({"_LOCALSPEC_COMPLETE": "bash_complete", "COMP_WORDS": "localspec run -m st", "COMP_CWORD": "3"})
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == BUNDLED_NAMES
    assert done.stderr == b"[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_sound(shell: str, tmp_path: Path) -> None:
    out = run("completions", shell).stdout.decode()
    assert "_LOCALSPEC_COMPLETE" in out
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(out)
        assert subprocess.run([shell, "-n", str(script)], check=False).returncode == 0


def test_what_is_said_once_is_no_setting() -> None:
    names = {each.name for each in described(("run",))}
    assert not names & ONCE
    with pytest.raises(UsageError, match="no command 'walk'"):
        described(("walk",))


def test_every_option_has_an_example_that_it_takes() -> None:
    """Or a placeholder in capitals, such as the metavar."""
    for path, command in commands():
        for key, option in options_of(command).items():
            flag, _, value = option.example.partition(" ")
            assert flag in option.opts, (path, key)
            assert value, (path, option.example)
            assert "|" not in value, (path, option.example)
            if not any(letter.isupper() for letter in value.replace("Q8_0", "")):
                read_words(option, [value])
