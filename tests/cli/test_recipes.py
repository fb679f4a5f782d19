"""Each recipe of docs/recipes.md, run as it stands there, with a scripted engine."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.harness import FAKE, ROOT, environment

BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "recipes.md").read_text("utf-8"), re.DOTALL)
PRESET, HOOK, ALIAS, FUNCTION, EDITOR = BLOCKS
MESSAGE = "Add a line about cats"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a git repository with a staged file, and localspec on the path, which answers MESSAGE."""
    program = tmp_path / "bin" / "localspec"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(FAKE)} "$@"\n')
    program.chmod(0o755)
    sh(tmp_path, "git init -q . && echo cats > cats.txt && git add cats.txt")
    sh(tmp_path, PRESET.replace("qwen2.5-coder:7b", "storyteller"))
    return tmp_path


def sh(home: Path, script: str, stdin: str = "") -> str:
    env = environment({"FAKE_PASSES": json.dumps([MESSAGE]), "LOCALSPEC_HOME": str(home / "state"), "HOME": str(home)})
    env |= {"PATH": f"{home / 'bin'}:{env['PATH']}", "GIT_EDITOR": "true"}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@b.c"}
    done = subprocess.run(["sh", "-c", script], cwd=home, env=env, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_hook_writes_the_message(home: Path) -> None:
    hook = home / ".git" / "hooks" / "prepare-commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)
    sh(home, "git commit -q")
    assert sh(home, "git log --format=%s") == f"{MESSAGE}\n"
    sh(home, "echo dogs >> cats.txt && git commit -qam Dogs")
    assert sh(home, "git log --format=%s -1") == "Dogs\n", "a message that was given stays"


def test_the_alias_commits(home: Path) -> None:
    sh(home, f"{ALIAS}git aic")
    assert sh(home, "git log --format=%s") == f"{MESSAGE}\n"
    assert "no conversations" in sh(home, "localspec logs"), "the preset keeps no diff"


def test_the_function_answers_from_words_and_from_a_pipe(home: Path) -> None:
    assert sh(home, f"{FUNCTION}ask why is the sky blue") == f"{MESSAGE}\n"
    assert sh(home, f"{FUNCTION}ask what failed", stdin="disk full\n") == f"{MESSAGE}\n"
    shown = sh(home, "localspec logs show")
    assert "disk full" in shown
    assert "what failed" in shown


def test_an_editor_replaces_the_file(home: Path) -> None:
    (home / "notes.txt").write_text("me has cats\n")
    sh(home, EDITOR)
    assert (home / "notes.txt").read_text() == f"{MESSAGE}\n"
