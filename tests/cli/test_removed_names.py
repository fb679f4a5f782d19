"""A name of an earlier version is one line wherever it is typed or kept: when it went, and what does its work."""

from __future__ import annotations

import pytest

from localspec.settings.config_file import config_file
from localspec.settings.removed import REMOVED
from localspec.speculation import registered
from tests.cli.harness import assert_one_line, run

OF_AN_AXIS = [old.removeprefix("--").split() for old in REMOVED if len(old.split()) == 2 and old.startswith("--")]


def said(axis: str, name: str) -> tuple[str, str]:
    version, new = REMOVED[f"--{axis} {name}"]
    return f"--{axis} {name} was removed in {version}", f"try: {new}"


@pytest.mark.parametrize(("axis", "name"), OF_AN_AXIS)
def test_a_removed_name(axis: str, name: str) -> None:
    """On the command line, explained, in the environment, in config.toml, in a preset and in a chat."""
    new = REMOVED[f"--{axis} {name}"][1]
    assert new.split()[-1] in registered(axis), "what does its work is there"
    typed = {"typed": run("run", "-n", "1", f"--{axis}", name, "x"), "explained": run("explain", name)}
    typed["in the environment"] = run("run", "-n", "1", "x", env={f"LOCALSPEC_{axis.upper()}": name})
    path = config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    for place, text in (("kept", f'{axis} = "{name}"\n'), ("preset", f'[presets.p]\n{axis} = "{name}"\n')):
        path.write_text(text)
        typed[place] = run("run", "-n", "1", *(["--preset", "p"] if place == "preset" else []), "x")
    path.unlink()
    typed["chat"] = run("chat", "--no-save", "storyteller", "--plain", stdin=f"/set {axis} {name}\n".encode())
    for done in typed.values():
        assert_one_line(done, 2, *said(axis, name))


def test_a_removed_name_with_values() -> None:
    """What follows the colon changes nothing, and bench says the same of a contender."""
    assert_one_line(run("run", "--tree", "opt-tree:16,threshold=0.1", "x"), 2, *said("tree", "opt-tree"))
    assert_one_line(run("bench", "--methods", "opt-tree:16"), 2, *said("tree", "opt-tree"))


COMMANDS = {
    "calibrate storyteller": ("calibrate PAIR was removed in 0.2.0", "localspec plan PAIR --measure"),
    "calibrate storyteller --seconds 3": ("calibrate --seconds was removed in 0.2.0", "localspec plan PAIR --measure"),
    "doctor storyteller": ("doctor PAIR was removed in 0.2.0", "localspec plan PAIR --measure"),
    "doctor storyteller --seconds 3": ("doctor --seconds was removed in 0.2.0", "localspec plan PAIR --measure"),
    "calibrate storyteller --attention": ("calibrate --attention was removed in 0.2.0", "--flash-attn"),
}


@pytest.mark.parametrize("line", COMMANDS)
def test_a_removed_command_or_option_of_one(line: str) -> None:
    message, hint = COMMANDS[line]
    assert hint in assert_one_line(run(*line.split()), 2, message)
