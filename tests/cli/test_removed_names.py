"""A name of an earlier version is one line wherever it is typed or kept: when it went, and what does its work."""

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
